"""Records of which the batches are left as they are spelled until it is known which of them matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from acktrail.columnar.binary_column import BinaryColumn, BoolArray, Int64Array
from acktrail.columnar.decoding.regular_values import (
    BATCH,
    batch_columns,
    find_regular,
    gather_batches,
    rows_with_tags,
    without,
)
from acktrail.columnar.record_columns import BatchColumns, NumberColumn
from acktrail.columnar.replaying.clipped_batches import ClippedBatches, batches_from

__all__ = ["LazyBatches", "LazyRecords", "read_lazy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyBatches:
    """Batches in their bytes: row i's `counts[i]` begin at ``first[i]`` of `column`. `last` offsets are read of all."""

    column: BinaryColumn
    first: Int64Array
    counts: Int64Array
    last: Int64Array

    def take(self, rows: Int64Array) -> BatchColumns:
        """The batches of `rows`, in that order."""
        return batch_columns(self.counts[rows], gather_batches(self.column, self.first[rows], self.counts[rows]))

    def cut(self, owners: Int64Array, cuts: Int64Array) -> ClippedBatches:
        """What is left of them at or above `cuts`, one for each row; `owners` are the rows'. No other is read."""
        chosen, rows = batches_from(self.last, self.counts, cuts)
        places = chosen - (np.cumsum(self.counts) - self.counts)[rows]
        structures = self.column.gather(self.first[rows] + BATCH.itemsize * places, BATCH)
        return ClippedBatches.of(structures, owners[rows], cuts[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyRecords:
    """Records, one a row: numbers by column name, and the batches."""

    numbers: dict[str, NumberColumn]
    batches: LazyBatches


def read_lazy(
    column: BinaryColumn, is_snapshot: BoolArray, trusted: BoolArray | None = None
) -> tuple[LazyRecords, BoolArray]:
    """What the regular values say (``find_regular``), and which are; others have no batch, and no number of meaning."""
    sure = np.ones(len(is_snapshot), np.bool_) if trusted is None else trusted
    found = find_regular(column, is_snapshot, sure)
    batches = gather_batches(column, found.first, found.counts)
    tagged = rows_with_tags(batches, found.counts)
    if len(tagged):
        return read_lazy(column, is_snapshot, without(sure, tagged))
    last = batches["last_offset"].astype(np.int64)
    spelled = LazyBatches(column=column, first=found.first, counts=found.counts, last=last)
    return LazyRecords(numbers=found.numbers, batches=spelled), found.regular
