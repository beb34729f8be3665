"""What holds of every state that a broker writes, checked on the replayed one (named as the expectations name it)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from acktrail.model.delivery import DURABLE_STATES, TERMINAL_STATES
from acktrail.model.lag import counts_by_state
from acktrail.model.replay import SharePartitionState

HIGHEST_DELIVERY_COUNT: Final = 25
"""Greatest value of group.share.max.delivery.count.limit: no configuration allows more."""


def broken_rules(state: SharePartitionState) -> tuple[str, ...]:
    """Names of the rules that `state` breaks, in the order of ``STATE_RULES``."""
    return tuple(name for name, (_, _, is_broken) in STATE_RULES.items() if is_broken(state))


def _inverted(state: SharePartitionState) -> bool:
    return any(batch.first_offset > batch.last_offset for batch in state.batches)


def _descending(state: SharePartitionState) -> bool:
    return any(later.first_offset < batch.first_offset for batch, later in pairwise(state.batches))


def _overlapping(state: SharePartitionState) -> bool:
    ascending = sorted((b.first_offset, b.last_offset) for b in state.batches if b.first_offset <= b.last_offset)
    return any(first <= last for (_, last), (first, _) in pairwise(ascending))


def _below_start(state: SharePartitionState) -> bool:
    start = state.start_offset
    return start is not None and any(batch.first_offset < start for batch in state.batches)


def _foreign_state(state: SharePartitionState) -> bool:
    return any(batch.delivery_state not in DURABLE_STATES for batch in state.batches)


def _impossible_count(state: SharePartitionState) -> bool:
    return any(not 0 <= batch.delivery_count <= HIGHEST_DELIVERY_COUNT for batch in state.batches)


def _batches_without_start(state: SharePartitionState) -> bool:
    return state.start_offset is None and bool(state.batches)


def _undercounted(state: SharePartitionState) -> bool:
    count = state.delivery_complete_count
    if count is None or state.start_offset is None:
        return False
    counts = counts_by_state(state)
    return count < sum(counts[kind] for kind in TERMINAL_STATES)


STATE_RULES: Final[dict[str, tuple[str, str, Callable[[SharePartitionState], bool]]]] = {
    "batch_first_le_last": ("critical", "a batch ends before it begins", _inverted),
    "batches_ascending": ("critical", "a batch begins before the one it follows", _descending),
    "batches_non_overlapping": ("critical", "two batches share an offset", _overlapping),
    "batches_not_below_start": ("critical", "a batch lies below the start offset", _below_start),
    "delivery_state_allowed": ("critical", "a batch is in a state that no broker persists", _foreign_state),
    "delivery_count_possible": ("error", "a delivery count that no configuration allows", _impossible_count),
    "uninitialized_without_batches": ("error", "batches without a start offset", _batches_without_start),
    "delivery_complete_count_covers": (
        "warning",
        "fewer records are counted as complete than the batches show",
        _undercounted,
    ),
}
"""Severity, wording and test of each rule."""
