"""Which partitions had the records of a key before an expansion, for each partition that has them after it."""

from __future__ import annotations

from enum import StrEnum
from math import gcd

from acktrail.model.expansion.key_mapping import KeyMapping


class DependencyKind(StrEnum):
    """Why a partition depends on another one."""

    NEW_PARTITION = "new_partition"
    """Keys moved into a partition that the expansion made."""
    EXISTING_MOVE = "existing_move"
    """Keys moved between partitions that were there before: the count was not multiplied. KIP-253 keeps leader epochs
    for new partitions alone, and does not see it."""
    ALL_LOWER = "all_lower"
    """It is not known how keys are mapped: every partition that was there before, as in KIP-253."""


def destinations_of(source: int, old_count: int, new_count: int, mapping: KeyMapping) -> tuple[int, ...]:
    """The partitions that depend on `source`, ascending.

    A key with hash h was in partition h mod `old_count` and is in h mod `new_count`. Both leave the same remainder by
    their greatest common divisor, and every pair that does is some key's. Where the mapping is not known, each new
    partition depends on every old one, and nothing is known to move between old ones.

    Raises:
        ValueError: `new_count` is not above `old_count`, or `source` not from 0 to below it.
    """
    if not 0 <= source < old_count < new_count:
        raise ValueError(f"partition {source} has no dependents in an expansion from {old_count} to {new_count}")
    if mapping is KeyMapping.NONE:
        return tuple(range(old_count, new_count))
    step = gcd(old_count, new_count)
    return tuple(found for found in range(source % step, new_count, step) if found != source)
