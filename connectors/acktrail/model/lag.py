"""How much of a topic partition a share group has not completed yet, in records (offsets)."""

from __future__ import annotations

from collections import Counter

from acktrail.model.batches import combine_state_batches
from acktrail.model.delivery import covered
from acktrail.model.replay import SharePartitionState


def durable_lag(state: SharePartitionState, log_end_offset: int | None) -> int | None:
    """The lag as a broker computes it (KIP-1226): log end - start offset - delivery complete count.

    None when one of the three is not known. Negative where the state reaches past the log end, as a broker shows it.
    """
    if log_end_offset is None or state.start_offset is None or state.delivery_complete_count is None:
        return None
    return log_end_offset - state.start_offset - state.delivery_complete_count


def effective_backlog(
    state: SharePartitionState, log_start_offset: int | None, log_end_offset: int | None
) -> int | None:
    """Records that can still be delivered: from the start offset or the log start, whichever is later, to the log end,
    without those in a terminal state.

    Unlike the lag it counts no record that retention has taken, and needs no complete count. None when an offset is not
    known; never negative.
    """
    if log_start_offset is None or log_end_offset is None or state.start_offset is None:
        return None
    first = max(state.start_offset, log_start_offset)
    batches = combine_state_batches(state.batches, (), first)
    done = sum(max(0, min(b.last_offset, log_end_offset - 1) - b.first_offset + 1) for b in batches if b.is_terminal)
    return max(0, log_end_offset - first - done)


def counts_by_state(state: SharePartitionState) -> Counter[int]:
    """Offsets at or above the start offset by the delivery state that they are in, each counted once."""
    counts: Counter[int] = Counter()
    for batch in combine_state_batches(state.batches, (), state.start_offset):
        counts[batch.delivery_state] += covered(batch, state.start_offset)
    return counts
