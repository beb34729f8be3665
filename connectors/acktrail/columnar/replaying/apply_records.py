"""Records applied to the states before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from acktrail.columnar.binary_column import BoolArray, Int64Array, by_partition_and_offset
from acktrail.columnar.record_columns import content_columns
from acktrail.columnar.replaying.combine_batches import AnyRecords, ConcatenatedRecords
from acktrail.columnar.replaying.fold import fold
from acktrail.columnar.replaying.pending_records import PendingRecords
from acktrail.columnar.replaying.state_columns import StateColumns

_NONE: Final = np.empty(0, np.bool_)


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


def replay_decoded(records: pa.Table, partition_index: Int64Array, states: StateColumns) -> StateColumns:
    """The states after `records`: what ``acktrail.model.replay`` leaves for each share partition.

    Args:
        records: decoded snapshots and updates, the address and content columns of ``STATE_RECORDS``, in any order; none
            before the newest base of its share partition (``first_replayed``).
        partition_index: int64, shape (records,): the share partition of each.
        states: the states to resume from; the records come after them. None from before a newest base.
    """
    if not records.num_rows:
        return states
    count = len(states.partition_index) + records.num_rows
    contents = [content_columns(batch, ("offset", "timestamp_ms")) for batch in records.to_batches()]
    return states_after(
        partition_index=np.concatenate([states.partition_index, partition_index]),
        offsets=np.concatenate([states.next_offsets - 1, records["offset"].to_numpy()]),
        rows=np.arange(count),
        records=[states.records, *contents],
        counted=np.ones(count, np.bool_),
    )
