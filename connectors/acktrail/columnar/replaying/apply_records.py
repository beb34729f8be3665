"""States and the records after them to new states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from acktrail.columnar.binary_column import Integers, Mask
from acktrail.columnar.replaying.concatenated_records import Part, Parts
from acktrail.columnar.replaying.fold import fold
from acktrail.columnar.replaying.pending_records import RetainedRecords
from acktrail.columnar.replaying.state_columns import StateColumns
from acktrail.columnar.sorting import by_owner_and_offset

__all__ = ["advance", "states_after"]

_NONE: Final = np.empty(0, np.bool_)


def advance(states: StateColumns, retained: Sequence[RetainedRecords]) -> StateColumns:
    """The states after `retained`: records that follow on the `states`, or at whose head stands a snapshot or the
    update that becomes the state. Records that cannot be read are passed over.

    Those with values out of the ordinary are read together at last: taking few of them at a time costs more.
    """
    read = [list(piece.read()) for piece in retained]
    regular = [np.concatenate([_NONE, *(mask for _, mask in found)]) for found in read]
    odd = RetainedRecords.packed([piece.where(~mask) for piece, mask in zip(retained, regular, strict=True)])
    odd_records, readable = odd.read_odd()
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
    *, owners: Integers, offsets: Integers, rows: Integers, records: Sequence[Part], counted: Mask
) -> StateColumns:
    """The state that the `counted` records of each owner leave, in any order; of two at one offset one counts.

    What a record says is row ``rows[i]`` of `records`. An owner's first record is its base; all others are updates.
    """
    order = by_owner_and_offset(owners, offsets)
    if not counted.all():
        order = order[counted[order]]
    order = _without_repeats(order, owners, offsets)
    ordered = owners[order]
    heads = np.flatnonzero(np.diff(ordered, prepend=-1))
    folded = fold(Parts(records), rows[order], heads)
    return StateColumns(owners=ordered[heads], floors=folded.numbers["offset"].values + 1, records=folded)


def _without_repeats(order: Integers, owners: Integers, offsets: Integers) -> Integers:
    grouped, ordered = owners[order], offsets[order]
    repeats = (grouped[1:] == grouped[:-1]) & (ordered[1:] == ordered[:-1])
    return order[np.concatenate([[True], ~repeats])[: len(order)]] if repeats.any() else order
