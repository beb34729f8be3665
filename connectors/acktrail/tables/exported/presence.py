"""The records of ``export_ranges`` that are in ``state_records``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from acktrail.model.offset_ranges import OffsetRanges
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.continuity import LostOffsets
from acktrail.tables.exported.record_files import RECORDS

__all__ = ["Presence", "missing_records", "present_records", "unranged_records"]

_ADDRESS: Final = ("state_partition", "offset")
_RANGE: Final = ("state_partition", "first_offset", "last_offset", "records_read", "offset_shift")


@dataclass(slots=True, kw_only=True)
class Presence:
    """Offsets that have a row, by state partition, and how many rows there are."""

    offsets: dict[int, OffsetRanges] = field(default_factory=dict)
    rows: Counter[int] = field(default_factory=Counter)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in the addresses of records."""
        numbers, offsets = (batch.column(name).to_numpy(zero_copy_only=False) for name in _ADDRESS)
        for number in np.unique(numbers).tolist():
            own = np.unique(offsets[numbers == number])
            self.rows[number] += int((numbers == number).sum())
            edges = np.flatnonzero(np.diff(own) != 1)
            firsts, lasts = own[np.concatenate(([0], edges + 1))], own[np.concatenate((edges, [-1]))]
            ranges = self.offsets.setdefault(number, OffsetRanges())
            for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
                ranges.add(first, last)

    @property
    def doubles(self) -> dict[int, int]:
        """How many rows have an offset that another one has too, by state partition."""
        distinct = {n: sum(last - first + 1 for first, last in ranges) for n, ranges in self.offsets.items()}
        return {n: self.rows[n] - distinct[n] for n in sorted(distinct) if self.rows[n] > distinct[n]}

    def absent(self, state_partition: int, first: int, last: int) -> list[tuple[int, int]]:
        """The parts of a range that have no row."""
        return list(self.offsets.get(state_partition, OffsetRanges()).outside(first, last))


def present_records(
    tables: Tables, *, without: Collection[str] = (), progress: Callable[[int], None] = lambda _: None
) -> Presence:
    """The records of ``state_records``, except those in its files `without`. Reads two columns of all rows; `progress`
    gets how many were read.

    Raises:
        DamagedTables, ConfigurationError, RetryableError: a file cannot be read.
    """
    presence, read = Presence(), 0
    snapshot = tables.snapshot(RECORDS)
    if snapshot is not None:
        paths = [file.path for file in snapshot.files() if file.path not in without]
        for batch in tables.file_batches(RECORDS, paths, columns=_ADDRESS) if paths else ():
            presence.add(batch)
            read += batch.num_rows
            progress(read)
    return presence


def missing_records(tables: Tables, presence: Presence) -> list[LostOffsets]:
    """Offsets that ``export_ranges`` has as exported and that have no row, ascending, neighbours joined.

    Where Kafka itself lacked offsets inside a range, its count of records is smaller: then nothing is missing.
    """
    snapshot = tables.snapshot("export_ranges")
    if snapshot is None:
        return []
    rows = (row for batch in snapshot.batches(columns=list(_RANGE)) for row in batch.to_pylist())
    return list(_joined(sorted(each for row in rows for each in _missing_of(row, presence))))


def unranged_records(tables: Tables, presence: Presence) -> list[LostOffsets]:
    """Offsets that have a row and are in no range of ``export_ranges``, ascending."""
    ranged: dict[int, OffsetRanges] = {}
    snapshot = tables.snapshot("export_ranges")
    for batch in () if snapshot is None else snapshot.batches(columns=list(_RANGE)):
        for row in batch.to_pylist():
            if row["first_offset"] is not None:
                own = ranged.setdefault(row["state_partition"], OffsetRanges())
                own.add(row["first_offset"], row["last_offset"])
    return [
        LostOffsets(state_partition=number, first_offset=begin, last_offset=end)
        for number, there in sorted(presence.offsets.items())
        for first, last in there
        for begin, end in ranged.get(number, OffsetRanges()).outside(first, last)
    ]


def _missing_of(row: Mapping[str, Any], presence: Presence) -> Iterator[LostOffsets]:
    number, first, last, read, shift = (row[name] for name in _RANGE)
    if first is None:
        return
    absent = presence.absent(number, first, last)
    there = last - first + 1 - sum(end - begin + 1 for begin, end in absent)
    if there < (read or 0):
        yield from (
            LostOffsets(state_partition=number, first_offset=begin, last_offset=end, offset_shift=shift or 0)
            for begin, end in absent
        )


def _joined(lost: Iterable[LostOffsets]) -> Iterator[LostOffsets]:
    before: LostOffsets | None = None
    for each in lost:
        if before is None:
            before = each
        elif _home(each) == _home(before) and each.first_offset <= before.last_offset + 1:
            before = replace(before, last_offset=max(before.last_offset, each.last_offset))
        else:
            yield before
            before = each
    if before is not None:
        yield before


def _home(lost: LostOffsets) -> tuple[int, int]:
    """The log that the offsets are of."""
    return lost.state_partition, lost.offset_shift
