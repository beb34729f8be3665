"""The order in which copied records are imported: files, and the records of files that overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.offline.read.copied_files import conflicting_records, raw_batches
from acktrail.offline.read.log_segment import ReadReport

FILE: Final = "file"
"""The column of loaded records that numbers the file a record is from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """The number of records in a file, and the lowest and highest offset of each state partition in it."""

    file: Path
    records: int
    offset_ranges: dict[int, tuple[int, int]]


def summarize_file(file: Path, reading: ReadReport) -> FileSummary:
    """Read `file` once, with one batch of rows in memory. Raises InputError (as ``read_file``; and a record without an
    address)."""
    records, offset_ranges = 0, dict[int, tuple[int, int]]()
    for batch in raw_batches(file, reading):
        records += batch.num_rows
        offsets = pa.Table.from_batches([batch]).group_by("partition", use_threads=False)
        ends = offsets.aggregate([("offset", "min"), ("offset", "max")])
        columns = (ends[name].to_pylist() for name in ("partition", "offset_min", "offset_max"))
        for partition, lowest, highest in zip(*columns, strict=True):
            if partition < 0 or lowest < 0:
                raise InputError(f"{file}: records without state partition or offset", hint="give --state-partition")
            before = offset_ranges.get(partition, (lowest, highest))
            offset_ranges[partition] = (min(lowest, before[0]), max(highest, before[1]))
    return FileSummary(file=file, records=records, offset_ranges=offset_ranges)


def ascending_groups(surveys: Sequence[FileSummary]) -> list[list[FileSummary]]:
    """The files in an order in which every state partition's offsets ascend from file to file, one file a group; all
    files in one group where there is no such order."""
    ordered = sorted(surveys, key=lambda each: sorted((low, part) for part, (low, _) in each.offset_ranges.items()))
    reached: dict[int, int] = {}
    for summary in ordered:
        for partition, (lowest, highest) in summary.offset_ranges.items():
            if lowest < reached.get(partition, 0):
                return [list(ordered)]
            reached[partition] = max(highest, reached.get(partition, 0))
    return [[summary] for summary in ordered]


def load_records(files: Sequence[Path], reading: ReadReport) -> pa.Table:
    """The records of `files` by state partition and offset, each address once: columns of ``RAW_RECORDS`` and `FILE`.
    Raises InputError (as ``read_file``; and two different records claim one address)."""
    schema = RAW_RECORDS.append(pa.field(FILE, pa.int32()))
    batches = [
        pa.RecordBatch.from_arrays([*batch.columns, pa.repeat(np.int32(number), batch.num_rows)], schema=schema)
        for number, file in enumerate(files)
        for batch in raw_batches(file, reading)
    ]
    table = pa.Table.from_batches(batches, schema)
    order = pc.sort_indices(table, [("partition", "ascending"), ("offset", "ascending"), (FILE, "ascending")])
    if not np.array_equal(order, np.arange(len(order))):
        table = table.take(order)
    return _distinct(table)


def _distinct(table: pa.Table) -> pa.Table:
    """`table`, which is in order, without rows that repeat the row before."""
    partition, offset = (np.asarray(table[name]) for name in ("partition", "offset"))
    again = np.flatnonzero((partition[1:] == partition[:-1]) & (offset[1:] == offset[:-1])) + 1
    if not len(again):
        return table
    content = table.select(["partition", "offset", "key", "value"])
    before, repeated = (content.take(pa.array(rows)).to_pylist() for rows in (again - 1, again))
    for one, other in zip(before, repeated, strict=True):
        if one != other:
            raise conflicting_records(one["partition"], one["offset"])
    kept = np.ones(table.num_rows, np.bool_)
    kept[again] = False
    return table.filter(pa.array(kept))
