"""The rules of state batches on the batches of many records at once.

The reference is ``model.strict.offset_window.batch_violations``: a record breaks one of ``ORDER_RULES`` exactly
when one of ``inverted``, ``out_of_order`` and ``overlapping`` names it. Each rule names the records with a batch that
breaks it; what bounds the batches has one element a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.model.delivery import TERMINAL_STATES

_TERMINAL: Final = tuple(int(state) for state in TERMINAL_STATES)
_FIELDS: Final = ("first_offset", "last_offset", "delivery_state", "delivery_count")


@dataclass(frozen=True, slots=True, eq=False)
class RecordBatches:
    """The batches of `records` records: arrays of int64 with one element a batch.

    `record` is the index of the record that a batch belongs to, ascending; batches of a record are in its own order.
    """

    records: int
    record: Int64Array
    first: Int64Array
    last: Int64Array
    state: Int64Array
    count: Int64Array

    def records_of(self, batches: BoolArray) -> BoolArray:
        """The records that have one of `batches`."""
        return self.marked(self.record[batches])

    def marked(self, indices: Int64Array) -> BoolArray:
        """The records at `indices`, which may repeat."""
        found = np.zeros(self.records, np.bool_)
        found[indices] = True
        return found


def record_batches(column: pa.Array | pa.ChunkedArray) -> RecordBatches:
    """A column of ``BATCHES`` taken apart; a null has no batches.

    Raises:
        ValueError: a batch with a null in it.
    """
    lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    flat = pc.list_flatten(lists)
    if flat.null_count or any(flat.field(name).null_count for name in _FIELDS):
        raise ValueError("a state batch has a null in it")
    first, last, state, count = (np.asarray(flat.field(name).cast(pa.int64())) for name in _FIELDS)
    record = np.repeat(np.arange(len(lists), dtype=np.int64), lengths)
    return RecordBatches(len(lists), record, first, last, state, count)


def inverted(batches: RecordBatches) -> BoolArray:
    """Records with a batch that ends before it begins."""
    return batches.records_of(batches.last < batches.first)


def out_of_order(batches: RecordBatches) -> BoolArray:
    """Records with a batch that begins below the one before it."""
    same = batches.record[1:] == batches.record[:-1]
    return batches.marked(batches.record[1:][same & (batches.first[1:] < batches.first[:-1])])


def overlapping(batches: RecordBatches) -> BoolArray:
    """Records with two batches that share an offset, in any order; inverted ones cover none.

    Sorted by first offset, two batches that overlap mean that two neighbours do.
    """
    covering = np.flatnonzero(batches.last >= batches.first)
    order = covering[np.lexsort((batches.first[covering], batches.record[covering]))]
    record, first, last = batches.record[order], batches.first[order], batches.last[order]
    return batches.marked(record[1:][(record[1:] == record[:-1]) & (first[1:] <= last[:-1])])


def belonging_to(batches: RecordBatches, marked: Int64Array) -> BoolArray:
    """Records that are `marked` (not 0) and have a batch."""
    return batches.records_of(marked[batches.record] != 0)


def beginning_below(batches: RecordBatches, start: Int64Array) -> BoolArray:
    return batches.records_of(batches.first < start[batches.record])


def ending_at_or_above(batches: RecordBatches, end: Int64Array) -> BoolArray:
    return batches.records_of(batches.last >= end[batches.record])


def in_other_states(batches: RecordBatches, *allowed: int) -> BoolArray:
    return batches.records_of(~np.isin(batches.state, allowed))


def counts_outside(batches: RecordBatches, least: int, most: int) -> BoolArray:
    return batches.records_of((batches.count < least) | (batches.count > most))


def counts_above(batches: RecordBatches, limit: Int64Array) -> BoolArray:
    return batches.records_of(batches.count > limit[batches.record])


def terminal_offsets(batches: RecordBatches, start: Int64Array) -> Int64Array:
    """Offsets of each record at or above its `start` that are acknowledged or archived; batches must not overlap.

    The rule is ``acktrail.model.delivery.terminal_count``.
    """
    covered = np.maximum(0, batches.last - np.maximum(batches.first, start[batches.record]) + 1)
    covered[~np.isin(batches.state, _TERMINAL)] = 0
    total = np.zeros(batches.records, np.int64)
    np.add.at(total, batches.record, covered)
    return total
