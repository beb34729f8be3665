"""Data files, written by Arrow row group by row group as the rows lie in memory: executors write, the driver commits
the names. (delta-rs's writer takes twice the time, and needs the rows in one piece to keep their order.)"""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from acktrail.tables.delta.table_layout import CHUNK, measured_columns, parquet_options
from acktrail.tables.delta.table_place import TablePlace

_LONGEST_TEXT: Final = 32
"""Characters of a text in the log's statistics."""
_BEYOND: Final = "\U0010ffff"
WRITTEN_FILES: Final = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("table", "path", "stats")),
        *(pa.field(name, pa.int64()) for name in ("size", "modification_time", "rows")),
    ]
)
"""A data file that is no part of its table yet."""


def write_data_file(
    place: TablePlace,
    rows: pa.Table,
    *,
    edges: Sequence[int] = (),
    chunk: str | None = None,
    modified_ms: int | None = None,
) -> AddAction:
    """A new file with `rows`, in their order, of a chunk in a chunked table; it is no part of the table before its
    action is committed. `edges`: rows with which row groups begin, beside those of full ones. `modified_ms`: as old as
    that; None: it is new. Raises OSError of the storage; then nothing is left of it."""
    options = parquet_options(place.name)
    group = options.pop("row_group_size")
    path = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, **options) as writer:
        for begin, end in pairwise((0, *edges, rows.num_rows)):
            writer.write_table(rows.slice(begin, end - begin), row_group_size=group)
    content = sink.getvalue()
    place.put_file(path, content)
    return AddAction(
        path=path,
        size=content.size,
        partition_values={} if chunk is None else {CHUNK: chunk},
        modification_time=modified_ms or time.time_ns() // 1_000_000,
        data_change=True,
        stats=_statistics(rows, measured_columns(place.name, rows.schema)),
    )


def written_file(place: TablePlace, rows: pa.Table) -> pa.Table:
    """Write `rows` as a new file; gives its row of ``WRITTEN_FILES``; none for no rows. Raises OSError."""
    if not rows.num_rows:
        return WRITTEN_FILES.empty_table()
    done = write_data_file(place, rows)
    named = {name: getattr(done, name) for name in ("path", "stats", "size", "modification_time")}
    return pa.Table.from_pylist([{"table": place.name, "rows": rows.num_rows, **named}], schema=WRITTEN_FILES)


def add_actions(files: pa.Table, chunk: int | None = None) -> list[AddAction]:
    """What makes `files` (``WRITTEN_FILES``) part of their table, or of a chunk of it."""
    columns = files.select(["path", "stats", "size", "modification_time"]).to_pylist()
    values = {} if chunk is None else {CHUNK: str(chunk)}
    return [AddAction(**each, partition_values=values, data_change=True) for each in columns]


def _statistics(rows: pa.Table, columns: Iterable[str]) -> str:
    """Counts and bounds of `rows`, as Delta's protocol has them."""
    nulls, least, greatest = dict[str, int](), dict[str, Any](), dict[str, Any]()
    for name in columns:
        column = rows[name]
        nulls[name] = column.null_count
        if pa.types.is_dictionary(column.type):
            column = column.unique().dictionary_decode()
        if _has_bounds(column.type) and column.null_count < len(column):
            found = pc.min_max(column)
            least[name], greatest[name] = _lower_bound(found["min"].as_py()), _upper_bound(found["max"].as_py())
    content = {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    # Without escapes: delta-rs reads those of characters beyond U+FFFF as other characters.
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False, default=_instant_text)


def _has_bounds(kind: pa.DataType) -> bool:
    """Whether the log gets least and greatest values of such a column: those that are text in one way alone."""
    is_instant = pa.types.is_timestamp(kind) and kind.tz is not None
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or is_instant)


def _instant_text(value: dt.datetime) -> str:
    """A file has instants in UTC and in µs."""
    return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}"


def _lower_bound(value: Any) -> Any:
    """`value`, or a short text that is no greater than it."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def _upper_bound(value: Any) -> Any:
    """`value`, or a short text that is no less than it, where there is one."""
    if not isinstance(value, str) or len(value) <= _LONGEST_TEXT or value[_LONGEST_TEXT] == _BEYOND:
        return value
    return value[:_LONGEST_TEXT] + _BEYOND
