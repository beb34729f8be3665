"""Copied records as Arrow tables in the order of their log, for an import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from acktrail.errors import InputError
from acktrail.offline.read.column_files import COLUMN_SUFFIXES, read_column_batches
from acktrail.offline.read.copied_files import conflicting_records, read_file
from acktrail.offline.read.open_file import bare_suffix
from acktrail.offline.read.read_report import ReadReport

if TYPE_CHECKING:
    import pyarrow as pa


FILE: Final = "file"
"""The column of a loaded table that numbers the file a record is from."""

_ROWS_AT_ONCE: Final = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """The number of records in a file, and the lowest and highest offset of each state partition in it."""

    file: Path
    records: int
    offset_ranges: dict[int, tuple[int, int]]


def summarize_file(file: Path, reading: ReadReport) -> FileSummary:
    """Read `file` once, with one batch of rows in memory.

    Raises:
        InputError: as ``read_file``; and a record without an address.
    """
    records, offset_ranges = 0, dict[int, tuple[int, int]]()
    for batch in raw_batches(file, reading):
        records += batch.num_rows
        for partition, lowest, highest in _offset_ranges(batch):
            if partition < 0 or lowest < 0:
                raise InputError(f"{file}: records without state partition or offset", hint="give --state-partition")
            before = offset_ranges.get(partition, (lowest, highest))
            offset_ranges[partition] = (min(lowest, before[0]), max(highest, before[1]))
    return FileSummary(file=file, records=records, offset_ranges=offset_ranges)


def ascending_groups(surveys: Sequence[FileSummary]) -> list[list[FileSummary]]:
    """The files in an order in which every state partition's offsets ascend from file to file, one file a group; all
    files in one group where there is no such order.
    """
    ordered = sorted(
        surveys, key=lambda summary: sorted((low, part) for part, (low, _) in summary.offset_ranges.items())
    )
    reached: dict[int, int] = {}
    for summary in ordered:
        for partition, (lowest, highest) in summary.offset_ranges.items():
            if lowest < reached.get(partition, 0):
                return [list(ordered)]
            reached[partition] = max(highest, reached.get(partition, 0))
    return [[summary] for summary in ordered]


def load_records(files: Sequence[Path], reading: ReadReport) -> pa.Table:
    """The records of `files` by state partition and offset, each address once: columns of ``RAW_RECORDS`` and `FILE`.

    Raises:
        InputError: as ``read_file``; and two different records claim one address.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from acktrail.columnar.schemas.table_schemas import RAW_RECORDS

    schema = RAW_RECORDS.append(pa.field(FILE, pa.int32()))
    batches = [
        pa.RecordBatch.from_arrays(
            [*batch.columns, pa.repeat(pa.scalar(number, pa.int32()), batch.num_rows)], schema=schema
        )
        for number, file in enumerate(files)
        for batch in raw_batches(file, reading)
    ]
    table = pa.Table.from_batches(batches, schema)
    order = pc.sort_indices(table, [("partition", "ascending"), ("offset", "ascending"), (FILE, "ascending")])
    if not np.array_equal(order, np.arange(len(order))):
        table = table.take(order)
    return _distinct(table)


def raw_batches(file: Path, reading: ReadReport) -> Iterator[pa.RecordBatch]:
    """The rows of a file as batches of ``RAW_RECORDS``; raises as ``read_file``."""
    if bare_suffix(file) in COLUMN_SUFFIXES:
        yield from read_column_batches(file)
        return
    import pyarrow as pa

    from acktrail.columnar.schemas.table_schemas import RAW_RECORDS

    records = read_file(file, reading)
    while rows := [*islice(records, _ROWS_AT_ONCE)]:
        columns = zip(*((r.state_partition, r.offset, r.timestamp_ms, r.key, r.value) for r in rows), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, RAW_RECORDS, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=RAW_RECORDS)


def _offset_ranges(batch: pa.RecordBatch) -> Iterable[tuple[int, int, int]]:
    import pyarrow as pa

    table = pa.Table.from_batches([batch]).select(["partition", "offset"])
    grouped = table.group_by("partition", use_threads=False).aggregate([("offset", "min"), ("offset", "max")])
    names = ("partition", "offset_min", "offset_max")
    return zip(*(grouped[name].to_pylist() for name in names), strict=True)


def _distinct(table: pa.Table) -> pa.Table:
    """`table`, which is in order, without rows that repeat the row before."""
    import numpy as np
    import pyarrow as pa

    partition, offset = (np.asarray(table[name]) for name in ("partition", "offset"))
    again = np.flatnonzero((partition[1:] == partition[:-1]) & (offset[1:] == offset[:-1])) + 1
    if not len(again):
        return table
    content = table.select(["partition", "offset", "key", "value"])
    for one, other in zip(
        content.take(pa.array(again - 1)).to_pylist(), content.take(pa.array(again)).to_pylist(), strict=True
    ):
        if one != other:
            raise conflicting_records(one["partition"], one["offset"])
    kept = np.ones(table.num_rows, np.bool_)
    kept[again] = False
    return table.filter(pa.array(kept))
