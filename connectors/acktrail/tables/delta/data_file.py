"""Data files of ``state_records``, written by Arrow row group by row group as the rows lie in memory: delta-rs's writer
takes twice the time, and needs the rows in one piece to keep their order."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from acktrail.tables.delta.table_layout import measured_columns, parquet_options
from acktrail.tables.delta.table_place import TablePlace

_LONGEST_TEXT: Final = 32
"""Characters of a text in the log's statistics."""
_BEYOND: Final = "\U0010ffff"


def write_data_file(place: TablePlace, rows: pa.Table) -> AddAction:
    """A new file with `rows`, in their order; it is no part of the table before its action is committed. Raises OSError
    of the storage; then nothing is left of it."""
    options = parquet_options(place.name)
    group = options.pop("row_group_size")
    path = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
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
    return AddAction(
        path=path,
        size=content.size if file is None else file.stat().st_size,
        partition_values={},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=_statistics(writer.writer.metadata, rows, measured_columns(place.name, rows.schema)),
    )


def _statistics(file: pq.FileMetaData, rows: pa.Table, names: list[str]) -> str:
    """Counts and bounds of the columns `names`, as Delta's protocol has them. A column without a bound has no values:
    delta-rs takes an absent bound for one that no value satisfies."""
    least, greatest, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    groups = [file.row_group(number) for number in range(file.num_row_groups)]
    index = {groups[0].column(number).path_in_schema: number for number in range(file.num_columns)}
    for name in names:
        found = [group.column(index[name]).statistics for group in groups]
        nulls[name] = sum(each.null_count for each in found)
        filled = [each for each in found if each.num_values]
        if not filled:
            continue
        if all(each.has_min_max for each in filled):
            bounds = min(each.min for each in filled), max(each.max for each in filled)
        else:  # Parquet has none of long texts
            bounds = tuple(pc.min_max(rows[name]).as_py().values())
        least[name], greatest[name] = lower_bound(bounds[0]), upper_bound(bounds[1])
    content = {"numRecords": file.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return statistics_text(content)


def statistics_text(content: dict[str, Any]) -> str:
    """As JSON without escapes: delta-rs reads those of characters beyond U+FFFF as other characters."""
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def lower_bound(value: Any) -> Any:
    """`value`, or a short text that is no greater than it."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


def upper_bound(value: Any) -> Any:
    """`value`, or a short text that is no less than it, where there is one."""
    if not isinstance(value, str) or len(value) <= _LONGEST_TEXT or value[_LONGEST_TEXT] == _BEYOND:
        return value
    return value[:_LONGEST_TEXT] + _BEYOND
