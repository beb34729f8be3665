"""States and the records after them to new states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.replaying.concatenated_records import AnyRecords, ConcatenatedRecords
from acktrail.columnar.replaying.fold import fold
from acktrail.columnar.replaying.pending_records import PendingRecords
from acktrail.columnar.replaying.state_columns import StateColumns
from acktrail.columnar.sorting import by_partition_and_offset

__all__ = ["apply_records", "states_after"]

_NONE: Final = np.empty(0, np.bool_)


def apply_records(states: StateColumns, retained: Sequence[PendingRecords]) -> StateColumns:
    """The states after `retained`: records that follow on the `states`, or at whose head stands a snapshot or the
    update that becomes the state. Records that cannot be read are passed over.

    Those with values out of the ordinary are read together at last: taking few of them at a time costs more.
    """
    read = [list(piece.read()) for piece in retained]
    regular = [np.concatenate([_NONE, *(mask for _, mask in found)]) for found in read]
    odd = PendingRecords.packed([piece.where(~mask) for piece, mask in zip(retained, regular, strict=True)])
    odd_records, readable = odd.read_irregular()
    counted = np.concatenate([np.ones(len(states.owners), np.bool_), *regular])
    rows = np.arange(len(counted))
    places = np.flatnonzero(~counted)
    rows[places] = len(rows) + np.arange(len(places))
    counted[places] = readable
    return states_after(
        owners=np.concatenate([states.owners, *(piece.owners for piece in retained)]),
        offsets=np.concatenate([states.floors - 1, *(piece.offsets for piece in retained)]),
        records=[states.records, *(records for found in read for records, _ in found), odd_records],
        rows=rows,
        counted=counted,
    )


def states_after(
    *, owners: Int64Array, offsets: Int64Array, rows: Int64Array, records: Sequence[AnyRecords], counted: BoolArray
) -> StateColumns:
    """The state that the `counted` records of each owner leave, in any order; of two at one offset one counts.

    What a record says is row ``rows[i]`` of `records`. An owner's first record is its base; all others are updates.
    """
    order = by_partition_and_offset(owners, offsets)
    if not counted.all():
        order = order[counted[order]]
    order = _without_repeats(order, owners, offsets)
    ordered = owners[order]
    heads = np.flatnonzero(np.diff(ordered, prepend=-1))
    folded = fold(ConcatenatedRecords(records), rows[order], heads)
    return StateColumns(owners=ordered[heads], floors=folded.numbers["offset"].values + 1, records=folded)


def _without_repeats(order: Int64Array, owners: Int64Array, offsets: Int64Array) -> Int64Array:
    grouped, ordered = owners[order], offsets[order]
    repeats = (grouped[1:] == grouped[:-1]) & (ordered[1:] == ordered[:-1])
    return order[np.concatenate([[True], ~repeats])[: len(order)]] if repeats.any() else order
