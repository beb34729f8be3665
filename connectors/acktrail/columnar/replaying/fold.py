"""Replay of many share partitions at once: what ``acktrail.model.replay`` leaves, without going record by record."""

from __future__ import annotations

from typing import Final

import numpy as np

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.record_columns import NumberColumn, RecordColumns
from acktrail.columnar.replaying.combine_batches import LOWEST, Segments, combine_batches
from acktrail.columnar.replaying.concatenated_records import ConcatenatedRecords

__all__ = ["fold"]

_OF_BASE: Final = ("snapshot_epoch", "state_epoch", "create_timestamp_ms", "write_timestamp_ms")
_OF_NEWEST: Final = ("delivery_complete_count", "offset", "timestamp_ms")
_FORWARD: Final = ("leader_epoch", "start_offset")
"""Taken from the newest record that says them."""


def fold(records: ConcatenatedRecords, order: Int64Array, heads: Int64Array) -> RecordColumns:
    """The state of each share partition after its records: one row for each of `heads`.

    `order` numbers rows of `records`: share partition by share partition, in log order; rows that it
    leaves out have no say. `heads` are the places in `order` where a share partition begins. Its first record is its
    base: a snapshot, a state, or the update that becomes one; the others are updates.

    Equal to applying the records one after another. At each offset the batch with the highest delivery count, then the
    highest delivery state, wins, whichever record has it: the order of records matters only for what was dropped below
    a start offset on the way. So each record's batches are cut once, at the highest start offset in force from that
    record on (starts may go back), and merged once. A base that no update follows stays as it was written.

    Cost: O(n log n) for n batches, without a Python step for a record (``combine_batches`` says when there is one).
    """
    segments = Segments.of(order, heads)
    forward = {name: records.column(name) for name in _FORWARD}
    starts = _starts_in_force(forward["start_offset"], segments)
    return RecordColumns(
        numbers={
            **records.numbers_of(order[segments.heads], _OF_BASE),
            **records.numbers_of(order[segments.tails], _OF_NEWEST),
            **{name: column.take(order[_newest_known(column, segments)]) for name, column in forward.items()},
        },
        batches=combine_batches(records, starts, _cuts(starts, segments), segments),
    )


def _newest_known(column: NumberColumn, segments: Segments) -> Int64Array:
    """The newest place of each segment that has a number; the head where none has."""
    if column.known is None:
        return segments.tails
    places = np.where(column.known[segments.order], np.arange(len(segments.order)), 0)
    newest: Int64Array = np.maximum(np.maximum.reduceat(places, segments.heads), segments.heads)
    return newest


def _starts_in_force(column: NumberColumn, segments: Segments) -> Int64Array:
    """The start offset after each record; the lowest number where none is known yet."""
    known = column.mask[segments.order]
    starts = np.where(known, column.values[segments.order], LOWEST)
    known[segments.heads] = True
    source = np.maximum.accumulate(np.where(known, np.arange(len(known)), 0))
    in_force: Int64Array = starts[source]
    return in_force


def _cuts(starts: Int64Array, segments: Segments) -> Int64Array:
    """For each record the highest start offset that it, or a later record, is merged under.

    A base is merged under the starts of the updates after it, not under its own.
    """
    cuts = starts.copy()
    cuts[segments.heads] = LOWEST
    falls = np.zeros(len(cuts), np.bool_)
    falls[1:] = cuts[1:] < cuts[:-1]
    falls[segments.heads] = False
    highest: Int64Array = np.repeat(cuts[segments.tails], segments.lengths)
    if falls.any():
        goes_back = np.maximum.reduceat(falls, segments.heads)
        places = np.flatnonzero(np.repeat(goes_back, segments.lengths))
        highest[places] = _highest_from_here(cuts[places], segments.numbers[places])
    return highest


def _highest_from_here(numbers: Int64Array, owners: Int64Array) -> Int64Array:
    """Each number or the highest after it that has the same owner; each step doubles how far a row looks."""
    numbers, step = numbers.copy(), 1
    while step < len(numbers):
        same = owners[step:] == owners[:-step]
        if not same.any():
            break
        np.maximum(numbers[:-step], np.where(same, numbers[step:], LOWEST), out=numbers[:-step])
        step *= 2
    return numbers
