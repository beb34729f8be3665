"""States and the records after them to new states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from acktrail.columnar.columns import RecordColumns
from acktrail.columnar.fold import fold
from acktrail.columnar.gather import Integers, Mask
from acktrail.columnar.retained import RetainedRecords
from acktrail.columnar.states import StateColumns

__all__ = ["advance", "states_after"]


def advance(states: StateColumns, retained: Sequence[RetainedRecords]) -> StateColumns:
    """The states after `retained`: records that follow on the `states`, or at whose head stands a snapshot or the
    update that becomes the state. Records that cannot be read are passed over."""
    read = [part for piece in retained for part in piece.read()]
    return states_after(
        owners=np.concatenate([states.owners, *(piece.owners for piece in retained)]),
        offsets=np.concatenate([states.floors - 1, *(piece.offsets for piece in retained)]),
        records=[states.records, *(records for records, _ in read)],
        counted=np.concatenate([np.ones(len(states.owners), np.bool_), *(readable for _, readable in read)]),
    )


def states_after(
    *, owners: Integers, offsets: Integers, records: Sequence[RecordColumns], counted: Mask
) -> StateColumns:
    """The state that the `counted` records of each owner leave, in any order; of two at one offset one counts.

    `owners` and `offsets` are those of all `records`, end to end. An owner's first record is its base; all others are
    updates.
    """
    order = _log_order(owners, offsets)
    if not counted.all():
        order = order[counted[order]]
    order = _without_repeats(order, owners, offsets)
    ordered = owners[order]
    heads = np.flatnonzero(np.diff(ordered, prepend=-1))
    folded = fold(records, order, heads)
    return StateColumns(owners=ordered[heads], floors=folded.numbers["offset"].values + 1, records=folded)


def _log_order(owners: Integers, offsets: Integers) -> Integers:
    """Rows by owner, then by offset. Where offsets ascend already, sorting packed integers is several times faster."""
    row_bits = max(1, len(owners).bit_length())
    packed = owners << row_bits | np.arange(len(owners))
    packed.sort()
    order: Integers = packed & ((1 << row_bits) - 1)
    grouped, ordered = owners[order], offsets[order]
    if ((ordered[1:] < ordered[:-1]) & (grouped[1:] == grouped[:-1])).any():
        return np.lexsort((offsets, owners))
    return order


def _without_repeats(order: Integers, owners: Integers, offsets: Integers) -> Integers:
    grouped, ordered = owners[order], offsets[order]
    repeats = (grouped[1:] == grouped[:-1]) & (ordered[1:] == ordered[:-1])
    return order[np.concatenate([[True], ~repeats])[: len(order)]] if repeats.any() else order
