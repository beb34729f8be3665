"""What batches of one share partition have in common: how many offsets are complete, and how they are ordered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from acktrail.model.batches import StateBatch, covered


def in_order(batches: Sequence[StateBatch]) -> bool:
    """Whether they are ascending and disjoint: none ends before it begins, each begins after the one before ends."""
    return all(batch.first_offset <= batch.last_offset for batch in batches) and all(
        one.last_offset < other.first_offset for one, other in pairwise(batches)
    )


def terminal_count(batches: Iterable[StateBatch], start_offset: int | None) -> int:
    """Offsets at or above `start_offset` in a terminal state; the batches must not overlap."""
    return sum(covered(batch, start_offset) for batch in batches if batch.is_terminal)
