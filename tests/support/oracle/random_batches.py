"""State batches of any kind, such as no broker would write, too."""

from __future__ import annotations

import random

from acktrail.model.batches import StateBatch

__all__ = ["random_batches"]


def random_batches(source: random.Random, *, width: int, longest: int) -> tuple[StateBatch, ...]:
    """A few batches in any order, overlapping or not, that begin below `width` and are at most `longest` long."""
    found = []
    for _ in range(source.choice((0, 1, 1, 2, 3, 5))):
        first = source.randrange(width)
        found.append(
            StateBatch(
                first_offset=first,
                last_offset=first + source.randrange(longest),
                delivery_state=source.choice((0, 1, 2, 3, 4)),
                delivery_count=source.randrange(1, 6),
            )
        )
    return tuple(found)
