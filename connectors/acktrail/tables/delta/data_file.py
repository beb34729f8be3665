"""Data files, written by Arrow row group by row group as the rows lie in memory: executors write, the driver commits
the names. (delta-rs's writer takes twice the time, and needs the rows in one piece to keep their order.)"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
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


def write_data_file(place: TablePlace, rows: pa.Table) -> AddAction:
    """A new file with `rows`, in their order; it is no part of the table before its action is committed. Raises OSError
    of the storage; then nothing is left of it."""
    options = parquet_options(place.name)
    group = options.pop("row_group_size")
    path = new_path()
    file = Path(place.uri, path) if place.root.is_local else None
    sink = pa.BufferOutputStream()
    try:
        with pq.ParquetWriter(file or sink, rows.schema, **options) as writer:
            writer.write_table(rows, row_group_size=group)
        if file is None:
            content = sink.getvalue()
            place.put_file(path, content)
    except BaseException:
        if file is not None:
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)
        raise
    size = content.size if file is None else file.stat().st_size
    measure = Measure.of(rows, measured_columns(place.name, rows.schema))
    return add_action(path, size, [measure], modified_ms=time.time_ns() // 1_000_000)


def new_path(chunk: str | None = None) -> str:
    """A name for a data file, of a chunk in a chunked table, that no other file has."""
    return f"{'' if chunk is None else f'{CHUNK}={chunk}/'}part-00000-{uuid.uuid4()}-c000.zstd.parquet"


def add_action(
    path: str, size: int, measures: Sequence[Measure], *, modified_ms: int, chunk: str | None = None
) -> AddAction:
    """What makes a file part of its table, with new rows."""
    return AddAction(
        path=path,
        size=size,
        partition_values={} if chunk is None else {CHUNK: chunk},
        modification_time=modified_ms,
        data_change=True,
        stats=Measure.text(measures),
    )


WRITTEN_FILES: Final = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("table", "path", "stats")),
        *(pa.field(name, pa.int64()) for name in ("size", "modification_time", "rows")),
    ]
)
"""A data file that is no part of its table yet."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Counts and bounds of some rows, for the log."""

    rows: int
    nulls: dict[str, int]
    least: dict[str, Any]
    greatest: dict[str, Any]

    @classmethod
    def of(cls, rows: pa.Table, columns: Iterable[str]) -> Measure:
        nulls, least, greatest = dict[str, int](), dict[str, Any](), dict[str, Any]()
        for name in columns:
            column = rows[name]
            nulls[name] = column.null_count
            if pa.types.is_dictionary(column.type):
                column = column.unique().dictionary_decode()
            if not _has_bounds(column.type):
                continue
            found = pc.min_max(column)
            least[name], greatest[name] = found["min"].as_py(), found["max"].as_py()
        return cls(rows=rows.num_rows, nulls=nulls, least=least, greatest=greatest)

    @staticmethod
    def text(parts: Sequence[Measure]) -> str:
        """The statistics of a file, as Delta's protocol has them."""
        nulls = {name: sum(part.nulls[name] for part in parts) for name in parts[0].nulls}
        least = {name: _bound(min, parts, "least", name) for name in parts[0].least}
        greatest = {name: _bound(max, parts, "greatest", name) for name in parts[0].greatest}
        return _text(
            {
                "numRecords": sum(part.rows for part in parts),
                "minValues": {name: _lower_bound(_plain(value)) for name, value in least.items() if value is not None},
                "maxValues": {
                    name: _upper_bound(_plain(value)) for name, value in greatest.items() if value is not None
                },
                "nullCount": nulls,
            }
        )


def _has_bounds(kind: pa.DataType) -> bool:
    """Whether the log gets least and greatest values of such a column: those that are text in one way alone."""
    is_instant = pa.types.is_timestamp(kind) and kind.tz is not None
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or is_instant)


def _bound(choose: Callable[..., Any], parts: Sequence[Measure], side: str, name: str) -> Any:
    return choose((value for part in parts if (value := getattr(part, side)[name]) is not None), default=None)


def _plain(value: Any) -> Any:
    """Instants as text; a file has them in UTC and in µs."""
    return value if isinstance(value, int | str) else f"{value:%Y-%m-%dT%H:%M:%S.%fZ}"


def _text(content: dict[str, Any]) -> str:
    """As JSON without escapes: delta-rs reads those of characters beyond U+FFFF as other characters."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def _lower_bound(value: Any) -> Any:
    """`value`, or a short text that is no greater than it."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def _upper_bound(value: Any) -> Any:
    """`value`, or a short text that is no less than it, where there is one."""
    if not isinstance(value, str) or len(value) <= _LONGEST_TEXT or value[_LONGEST_TEXT] == _BEYOND:
        return value
    return value[:_LONGEST_TEXT] + _BEYOND
