"""Records applied to the states before them, equal to ``acktrail.model.replay``, without a step for each record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from acktrail.format.columns.binary_column import BoolArray, Int64Array, by_partition_and_offset
from acktrail.format.columns.record_columns import CONTENT_NUMBERS, NumberColumn, RecordColumns, content_columns
from acktrail.replay.combine_batches import LOWEST, AnyRecords, ConcatenatedRecords, Segments, combine_batches
from acktrail.replay.state_columns import StateColumns

_OF_BASE: Final = ("snapshot_epoch", "state_epoch", "create_timestamp_ms", "write_timestamp_ms")
_OF_NEWEST: Final = ("delivery_complete_count", "offset", "timestamp_ms")
_OF_NEWEST_KNOWN: Final = ("leader_epoch", "start_offset")
"""From the newest record that has them: in an update null means unchanged."""
REPLAYED_COLUMNS: Final = ("offset", "timestamp_ms", *CONTENT_NUMBERS, "batches")
"""The columns of ``STATE_RECORDS`` that make a state, once it is known whose it is."""
_NEVER: Final = np.iinfo(np.int64).max


def states_after(
    *,
    partition_index: Int64Array,
    offsets: Int64Array,
    rows: Int64Array,
    records: Sequence[AnyRecords],
    counted: BoolArray,
) -> StateColumns:
    """The state of each share partition after its `counted` records.

    Args:
        partition_index, offsets, counted: shape (n,), in any order. Of two records of a share partition at one offset
            the first one counts.
        rows: int64, shape (n,): where the content of each is in `records`, end to end.
        records: the content. A share partition's first record is its base; all others are updates.
    """
    order = by_partition_and_offset(partition_index, offsets)
    if not counted.all():
        order = order[counted[order]]
    ordered, at = partition_index[order], offsets[order]
    repeats = (ordered[1:] == ordered[:-1]) & (at[1:] == at[:-1])
    if repeats.any():
        order = order[np.append(True, ~repeats)]
        ordered = partition_index[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    folded = fold(ConcatenatedRecords(records), rows[order], starts)
    return StateColumns(
        partition_index=ordered[starts], next_offsets=folded.numbers["offset"].values + 1, records=folded
    )


def replay_decoded(
    records: pa.Table, partition_index: Int64Array, states: StateColumns, first_replayed: Int64Array
) -> StateColumns:
    """The states after `records`: what ``acktrail.model.replay`` leaves for each share partition.

    Args:
        records: snapshots, updates and others, the columns ``REPLAYED_COLUMNS``, in any order.
        partition_index: int64, shape (records,): the share partition of each; -1 for those that do not count.
        states: the states to resume from; the records come after them.
        first_replayed: int64, shape (share partitions,): the offset before which nothing counts, neither a record nor a
            state: the newest base (``NewestOffsets.first_replayed``).
    """
    states = states.where(states.next_offsets > first_replayed[states.partition_index])
    offsets = records["offset"].to_numpy()
    rows = np.flatnonzero(offsets >= np.append(first_replayed, _NEVER)[partition_index])
    if not len(rows):
        return states
    count = len(states.partition_index)
    contents = [content_columns(batch, REPLAYED_COLUMNS[:2]) for batch in records.to_batches()]
    return states_after(
        partition_index=np.concatenate([states.partition_index, partition_index[rows]]),
        offsets=np.concatenate([states.next_offsets - 1, offsets[rows]]),
        rows=np.concatenate([np.arange(count), count + rows]),
        records=[states.records, *contents],
        counted=np.ones(count + len(rows), np.bool_),
    )


def fold(records: ConcatenatedRecords, order: Int64Array, starts: Int64Array) -> RecordColumns:
    """The state of each share partition after its records: one row for each of `starts`.

    Args:
        records: snapshots, states and updates; rows that `order` leaves out do not count.
        order: int64, shape (places,): rows of `records`, share partition by share partition, each in log order.
        starts: int64, shape (share partitions,): the places in `order` where each begins. Its first record is its base
            (a snapshot, a state, or the update that becomes one); the others are updates.

    Equal to applying the records one after another. The invariant: at each offset the batch with the highest delivery
    count, then the highest delivery state, wins, whichever record has it; so the order of records matters only for what
    is dropped below a start offset in between. Each record's batches are therefore pruned once, at the highest start
    offset in force from that record on (start offsets may go back), and combined once. A base without updates stays as
    written.

    Cost: O(n log n) for n batches; see ``combine_batches`` for the exceptions.

    One share partition, whose update moves the start offset from 0 to 6 and leaves the leader epoch:

    >>> from acktrail.format.columns.record_columns import BatchColumns
    >>> from acktrail.model.batches import StateBatch
    >>> batches = [StateBatch(first_offset=5, last_offset=9, delivery_state=2, delivery_count=1)]
    >>> numbers = {name: NumberColumn(values=np.array([7, 8])) for name in (*_OF_BASE, *_OF_NEWEST)}
    >>> numbers["start_offset"] = NumberColumn(values=np.array([0, 6]))
    >>> numbers["leader_epoch"] = NumberColumn(values=np.array([3, 0]), known=np.array([True, False]))
    >>> records = RecordColumns(numbers=numbers, batches=BatchColumns.of_batches([batches, []]))
    >>> state = fold(ConcatenatedRecords([records]), order=np.arange(2), starts=np.array([0]))
    >>> {name: int(state.numbers[name].values[0]) for name in ("snapshot_epoch", "offset", "leader_epoch")}
    {'snapshot_epoch': 7, 'offset': 8, 'leader_epoch': 3}
    >>> state.batches.first_offset.tolist(), state.batches.last_offset.tolist()
    ([6], [9])
    """
    segments = Segments.of(order, starts)
    newest_known = {name: records.column(name) for name in _OF_NEWEST_KNOWN}
    start_offsets = starts_in_force(newest_known["start_offset"], segments)
    return RecordColumns(
        numbers={
            **records.numbers_of(order[segments.starts], _OF_BASE),
            **records.numbers_of(order[segments.ends], _OF_NEWEST),
            **{name: column.take(order[_newest_known(column, segments)]) for name, column in newest_known.items()},
        },
        batches=combine_batches(records, start_offsets, _prune_below(start_offsets, segments), segments),
    )


def _newest_known(column: NumberColumn, segments: Segments) -> Int64Array:
    """The newest place of each segment that has a number; its start where none has."""
    if column.known is None:
        return segments.ends
    places = np.where(column.known[segments.order], np.arange(len(segments.order)), 0)
    newest: Int64Array = np.maximum(np.maximum.reduceat(places, segments.starts), segments.starts)
    return newest


def starts_in_force(column: NumberColumn, segments: Segments) -> Int64Array:
    """The start offset in force after each record; ``LOWEST`` where none is known yet."""
    known = column.mask[segments.order]
    values = np.where(known, column.values[segments.order], LOWEST)
    known[segments.starts] = True  # no number is carried over from the segment before
    source = np.maximum.accumulate(np.where(known, np.arange(len(known)), 0))  # forward fill: newest known place
    in_force: Int64Array = values[source]
    return in_force


def _prune_below(start_offsets: Int64Array, segments: Segments) -> Int64Array:
    """For each record the highest start offset in force when it, or a later record, is applied.

    A base is pruned by the start offsets of the updates after it, not by its own.
    """
    own = start_offsets.copy()
    own[segments.starts] = LOWEST
    falls = np.zeros(len(own), np.bool_)
    falls[1:] = own[1:] < own[:-1]
    falls[segments.starts] = False
    # Where start offsets only rise, the last one is the highest for every record of the segment.
    highest: Int64Array = np.repeat(own[segments.ends], segments.lengths)
    if falls.any():
        goes_back = np.maximum.reduceat(falls, segments.starts)
        places = np.flatnonzero(np.repeat(goes_back, segments.lengths))
        highest[places] = _highest_from_here(own[places], segments.numbers[places])
    return highest


def _highest_from_here(numbers: Int64Array, segment: Int64Array) -> Int64Array:
    """Each number or the highest after it in its segment: a suffix maximum by doubling steps, log2(n) of them."""
    numbers, step = numbers.copy(), 1
    while step < len(numbers):
        same = segment[step:] == segment[:-step]
        if not same.any():
            break
        np.maximum(numbers[:-step], np.where(same, numbers[step:], LOWEST), out=numbers[:-step])
        step *= 2
    return numbers
