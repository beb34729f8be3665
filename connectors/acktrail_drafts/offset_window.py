"""The window of a share partition (start offset, end offset, the batches between) and the rules it must keep."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from acktrail.model.batches import cover, prune_state_batches
from acktrail.model.delivery import DeliveryState, StateBatch
from acktrail_drafts.violations import Rule

DOCUMENTED_STATES: Final = frozenset({DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})
"""The states that the founding documents let a record have at rest; Kafka 4.3 and later add archiving."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetWindow:
    """Where delivery continues: offsets below `start_offset` are complete, no batch has one at or above `end_offset`
    (exclusive). Both None: not initialised.
    """

    start_offset: int | None
    end_offset: int | None
    batches: tuple[StateBatch, ...]


def overlay_state_batches(
    so_far: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int | None
) -> tuple[StateBatch, ...]:
    """As ``acktrail.model.batches.combine_state_batches``, but the last writer wins at every offset.

    So the founding documents read.
    """
    batches = prune_state_batches((*so_far, *new), start_offset)
    return cover(batches, range(0, -len(batches), -1))


def first_unfinished_offset(start_offset: int | None, batches: Sequence[StateBatch]) -> int | None:
    """`start_offset` moved over the leading terminal batches; it stops at a gap and at anything not terminal.

    Batches may be in any order but do not overlap; batches below the start are ignored.
    """
    if start_offset is None:
        return None
    offset = start_offset
    for batch in sorted(prune_state_batches(batches, start_offset), key=lambda b: b.first_offset):
        if batch.first_offset > offset or not batch.is_terminal:
            break
        offset = max(offset, batch.last_offset + 1)
    return offset


def effective_window(
    start_offset: int | None, batches: Sequence[StateBatch], *, end_offset: int | None = None
) -> OffsetWindow:
    """The window after its leading terminal batches.

    `end_offset` is the recorded one, where a generation records it; the result's is at least that, one past every
    batch, and the start: a lower bound of the broker's own, which persists no first delivery.
    """
    start = first_unfinished_offset(start_offset, batches)
    ends = [offset for offset in (start, end_offset) if offset is not None]
    ends += [batch.last_offset + 1 for batch in batches]
    return OffsetWindow(
        start_offset=start, end_offset=max(ends, default=None), batches=prune_state_batches(batches, start)
    )


def window_violations(
    start_offset: int | None,
    end_offset: int | None,
    batches: Sequence[StateBatch],
    durable_states: frozenset[DeliveryState] = DOCUMENTED_STATES,
) -> tuple[Rule, ...]:
    """The rules that a window breaks, each once, in a fixed order. An unknown end bounds nothing."""
    broken = set(batch_violations(batches, durable_states))
    if start_offset is None:
        if batches:
            broken.add(Rule.UNINITIALISED_HAS_NO_BATCHES)
    else:
        end = math.inf if end_offset is None else end_offset
        if start_offset > end:
            broken.add(Rule.START_LE_END)
        if any(batch.first_offset < start_offset or batch.last_offset >= end for batch in batches):
            broken.add(Rule.BATCH_WITHIN_WINDOW)
    return tuple(rule for rule in Rule if rule in broken)


def batch_violations(
    batches: Sequence[StateBatch], durable_states: frozenset[DeliveryState] = DOCUMENTED_STATES
) -> tuple[Rule, ...]:
    """The rules that batches break in any window; each once, in a fixed order.

    The rule of KIP-932 for batches in ShareFetch and ShareAcknowledge, strict: one shared offset is an overlap.
    """
    broken = {
        Rule.BATCHES_ASCENDING if other.last_offset < one.first_offset else Rule.BATCHES_NON_OVERLAPPING
        for one, other in pairwise(batches)
        if other.first_offset <= one.last_offset
    }
    for batch in batches:
        if batch.first_offset > batch.last_offset:
            broken.add(Rule.BATCH_FIRST_LE_LAST)
        if batch.delivery_state not in durable_states:
            broken.add(Rule.STATE_IS_DURABLE)
        if batch.delivery_count < 0:
            broken.add(Rule.DELIVERY_COUNT_RANGE)
        elif batch.delivery_state == DeliveryState.ACKNOWLEDGED and batch.delivery_count == 0:
            broken.add(Rule.ACKNOWLEDGED_COUNT_GE_1)
    return tuple(rule for rule in Rule if rule in broken)
