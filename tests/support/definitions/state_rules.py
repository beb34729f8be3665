"""The rules that hold of every state that a broker writes, state by state."""

from __future__ import annotations

from itertools import pairwise

from acktrail.model.batches import DURABLE_STATES, HIGHEST_DELIVERY_COUNT, TERMINAL_STATES
from acktrail.model.replay import SharePartitionState, counts_by_state
from acktrail.reconcile.derived_columns import STATE_RULES


def broken_rules(state: SharePartitionState) -> tuple[str, ...]:
    """Names of the rules that `state` breaks, in the order of ``STATE_RULES``."""
    batches, start, done = state.batches, state.start_offset, state.delivery_complete_count
    ascending = sorted((b.first_offset, b.last_offset) for b in batches if b.first_offset <= b.last_offset)
    least = sum(counts_by_state(state)[kind] for kind in TERMINAL_STATES)
    broken = {
        "batch_first_le_last": any(b.first_offset > b.last_offset for b in batches),
        "batches_ascending": any(later.first_offset < batch.first_offset for batch, later in pairwise(batches)),
        "batches_non_overlapping": any(first <= last for (_, last), (first, _) in pairwise(ascending)),
        "batches_not_below_start": start is not None and any(b.first_offset < start for b in batches),
        "delivery_state_allowed": any(b.delivery_state not in DURABLE_STATES for b in batches),
        "delivery_count_possible": any(not 0 <= b.delivery_count <= HIGHEST_DELIVERY_COUNT for b in batches),
        "uninitialized_without_batches": start is None and bool(batches),
        "delivery_complete_count_covers": done is not None and start is not None and done < least,
    }
    return tuple(rule for rule in STATE_RULES if broken[rule])
