"""The window of a share partition (start offset, end offset, the batches between) and the rules it must keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from acktrail.model.batches import prune_state_batches
from acktrail.model.delivery import DeliveryState, StateBatch
from acktrail.model.strict.violations import Rule

ORDER_RULES: Final = frozenset({Rule.BATCH_FIRST_LE_LAST, Rule.BATCHES_ASCENDING, Rule.BATCHES_NON_OVERLAPPING})
"""Batches that break none of these are ascending and disjoint."""

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


def effective_start_offset(start_offset: int | None, batches: Sequence[StateBatch]) -> int | None:
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
    start = effective_start_offset(start_offset, batches)
    ends = [offset for offset in (start, end_offset) if offset is not None]
    ends += [batch.last_offset + 1 for batch in batches]
    return OffsetWindow(
        start_offset=start, end_offset=max(ends, default=None), batches=prune_state_batches(batches, start)
    )


def window_violations(
    window: OffsetWindow, *, durable_states: frozenset[DeliveryState] = DOCUMENTED_STATES
) -> tuple[Rule, ...]:
    """The rules that a window breaks, each once, in a fixed order. An unknown end bounds nothing."""
    broken = set(batch_violations(window.batches, durable_states=durable_states))
    broken.update(_outside(window))
    return tuple(rule for rule in Rule if rule in broken)


def batch_violations(
    batches: Sequence[StateBatch], *, durable_states: frozenset[DeliveryState] = DOCUMENTED_STATES
) -> tuple[Rule, ...]:
    """The rules that batches break in any window; each once, in a fixed order.

    The rule of KIP-932 for batches in ShareFetch and ShareAcknowledge, strict: one shared offset is an overlap.
    """
    broken = {rule for batch in batches for rule in _broken_by(batch, durable_states)}
    broken.update(
        _broken_between(one, other) for one, other in pairwise(batches) if other.first_offset <= one.last_offset
    )
    return tuple(rule for rule in Rule if rule in broken)


def _broken_by(batch: StateBatch, durable_states: frozenset[DeliveryState]) -> Iterator[Rule]:
    if batch.first_offset > batch.last_offset:
        yield Rule.BATCH_FIRST_LE_LAST
    if batch.delivery_state not in durable_states:
        yield Rule.STATE_IS_DURABLE
    if batch.delivery_count < 0:
        yield Rule.DELIVERY_COUNT_RANGE
    elif batch.delivery_state == DeliveryState.ACKNOWLEDGED and batch.delivery_count == 0:
        yield Rule.ACKNOWLEDGED_COUNT_GE_1


def _broken_between(one: StateBatch, other: StateBatch) -> Rule:
    return Rule.BATCHES_ASCENDING if other.last_offset < one.first_offset else Rule.BATCHES_NON_OVERLAPPING


def _outside(window: OffsetWindow) -> Iterator[Rule]:
    start, end = window.start_offset, window.end_offset
    if start is None:
        if window.batches:
            yield Rule.UNINITIALISED_HAS_NO_BATCHES
        return
    if end is not None and start > end:
        yield Rule.START_LE_END
    if any(b.first_offset < start or (end is not None and b.last_offset >= end) for b in window.batches):
        yield Rule.BATCH_WITHIN_WINDOW
