"""What batches of one share partition have in common: how many offsets are complete, which rules order them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from acktrail.model.delivery import StateBatch, covered
from acktrail.model.strict.violations import Rule

ORDER_RULES: Final = frozenset({Rule.BATCH_FIRST_LE_LAST, Rule.BATCHES_ASCENDING, Rule.BATCHES_NON_OVERLAPPING})
"""Batches that break none of these are ascending and disjoint."""


def terminal_count(batches: Iterable[StateBatch], start_offset: int | None) -> int:
    """Offsets at or above `start_offset` in a terminal state; the batches must not overlap."""
    return sum(covered(batch, start_offset) for batch in batches if batch.is_terminal)
