"""Records of which the batches are left as they are spelled until it is known which of them matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from acktrail.columnar.binary_column import BinaryColumn, Integers, Mask
from acktrail.columnar.decoding.regular_values import (
    BATCH,
    batch_columns,
    find_regular,
    rows_with_tags,
    spelled_batches,
    without,
)
from acktrail.columnar.record_columns import BatchColumns, Column
from acktrail.columnar.replaying.clipped_batches import LiveBatches, above

__all__ = ["SpelledBatches", "SpelledRecords", "read_spelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpelledBatches:
    """Batches in their bytes: row i's `counts[i]` begin at ``first[i]`` of `column`. `last` offsets are read of all."""

    column: BinaryColumn
    first: Integers
    counts: Integers
    last: Integers

    def take(self, rows: Integers) -> BatchColumns:
        """The batches of `rows`, in that order."""
        return batch_columns(self.counts[rows], spelled_batches(self.column, self.first[rows], self.counts[rows]))

    def cut(self, owners: Integers, cuts: Integers) -> LiveBatches:
        """What is left of them at or above `cuts`, one for each row; `owners` are the rows'. No other is read."""
        chosen, rows = above(self.last, self.counts, cuts)
        places = chosen - (np.cumsum(self.counts) - self.counts)[rows]
        structures = self.column.gather(self.first[rows] + BATCH.itemsize * places, BATCH)
        return LiveBatches.of(structures, owners[rows], cuts[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class SpelledRecords:
    """Records, one a row: numbers by column name, and the batches."""

    numbers: dict[str, Column]
    batches: SpelledBatches


def read_spelled(column: BinaryColumn, is_snapshot: Mask, trusted: Mask | None = None) -> tuple[SpelledRecords, Mask]:
    """What the regular values say (``find_regular``), and which are; others have no batch, and no number of meaning."""
    sure = np.ones(len(is_snapshot), np.bool_) if trusted is None else trusted
    found = find_regular(column, is_snapshot, sure)
    batches = spelled_batches(column, found.first, found.counts)
    tagged = rows_with_tags(batches, found.counts)
    if len(tagged):
        return read_spelled(column, is_snapshot, without(sure, tagged))
    last = batches["last_offset"].astype(np.int64)
    spelled = SpelledBatches(column=column, first=found.first, counts=found.counts, last=last)
    return SpelledRecords(numbers=found.numbers, batches=spelled), found.regular
