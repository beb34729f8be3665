"""Records applied to the states before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from acktrail.format.columns.binary_column import BoolArray, Int64Array, by_partition_and_offset
from acktrail.format.columns.record_columns import CONTENT_NUMBERS, content_columns
from acktrail.replay.combine_batches import AnyRecords, ConcatenatedRecords
from acktrail.replay.fold import fold
from acktrail.replay.pending_records import PendingRecords
from acktrail.replay.state_columns import StateColumns

REPLAYED_COLUMNS: Final = ("offset", "timestamp_ms", *CONTENT_NUMBERS, "batches")
"""The columns of ``STATE_RECORDS`` that make a state, once it is known whose it is."""
_NONE: Final = np.empty(0, np.bool_)
_NEVER: Final = np.iinfo(np.int64).max


def apply_records(states: StateColumns, pending: Sequence[PendingRecords]) -> StateColumns:
    """The states after `pending`: records after the `states`, or from a new base on (a snapshot, or an update without
    one). Records that cannot be read are skipped.

    Irregular values of all pieces are decoded together at the end: decoding a few at a time costs more.
    """
    regular_records = [list(piece.read()) for piece in pending]
    regular = [np.concatenate([_NONE, *(mask for _, mask in pieces)]) for pieces in regular_records]
    irregular = PendingRecords.packed([piece.where(~mask) for piece, mask in zip(pending, regular, strict=True)])
    irregular_records, readable = irregular.read_irregular()
    counted = np.concatenate([np.ones(len(states.partition_index), np.bool_), *regular])
    # Row i of the log is row i of the records, except irregular ones: these are appended behind all others.
    rows = np.arange(len(counted))
    places = np.flatnonzero(~counted)
    rows[places] = len(rows) + np.arange(len(places))
    counted[places] = readable
    return states_after(
        partition_index=np.concatenate([states.partition_index, *(piece.partition_index for piece in pending)]),
        offsets=np.concatenate([states.next_offsets - 1, *(piece.offsets for piece in pending)]),
        records=[states.records, *(records for pieces in regular_records for records, _ in pieces), irregular_records],
        rows=rows,
        counted=counted,
    )


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
