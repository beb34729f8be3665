"""Records whose batches stay encoded until replay knows which ones it needs."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyBatches:
    """Encoded batches: the ``counts[i]`` of row i begin at byte ``first[i]`` of `column`.

    Only their last offsets are decoded: `last`, end to end.
    """

    column: BinaryColumn
    first: Int64Array
    counts: Int64Array
    last: Int64Array

    def take(self, rows: Int64Array) -> BatchColumns:
        """The decoded batches of `rows`, in that order."""
        return batch_columns(self.counts[rows], gather_batches(self.column, self.first[rows], self.counts[rows]))

    def clip(self, segment: Int64Array, prune_below: Int64Array) -> ClippedBatches:
        """The batches at or above `prune_below`; both arguments have one number for each row. Decodes no others."""
        chosen, rows = batches_from(self.last, self.counts, prune_below)
        places = chosen - (np.cumsum(self.counts) - self.counts)[rows]
        structures = self.column.gather(self.first[rows] + BATCH.itemsize * places, BATCH)
        return ClippedBatches.of(structures, segment[rows], prune_below[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyRecords:
    """One record a row: numbers by column name, and encoded batches."""

    numbers: dict[str, NumberColumn]
    batches: LazyBatches


def read_lazy(
    column: BinaryColumn, is_snapshot: BoolArray, trusted: BoolArray | None = None
) -> tuple[LazyRecords, BoolArray]:
    """The content of the regular values (``find_regular``), and which values are regular.

    Other rows have no batch, and numbers without meaning.
    """
    candidates = np.ones(len(is_snapshot), np.bool_) if trusted is None else trusted
    values = find_regular(column, is_snapshot, candidates)
    batches = gather_batches(column, values.first, values.counts)
    tagged = rows_with_tags(batches, values.counts)
    if len(tagged):
        return read_lazy(column, is_snapshot, without(candidates, tagged))
    last = batches["last_offset"].astype(np.int64)
    lazy = LazyBatches(column=column, first=values.first, counts=values.counts, last=last)
    return LazyRecords(numbers=values.numbers, batches=lazy), values.regular
