"""Which partitions had the records of a key before an expansion, for each partition that has them after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Dependency:
    """Records of `source` from before the expansion are to be finished before records of `destination` that came after
    it."""

    destination: int
    source: int
    kind: DependencyKind


def dependencies(old_count: int, new_count: int, mapping: KeyMapping) -> tuple[Dependency, ...]:
    """Every dependency of an expansion, ascending by destination and source.

    A key with hash h was in partition h mod `old_count` and is in h mod `new_count`. Both leave the same remainder by
    their greatest common divisor, and every pair that does is some key's: so a destination depends on the other
    partitions of its remainder. Where the mapping is not known, each new partition depends on every old one, and
    nothing is known to move between old ones. At most `old_count` * `new_count` results.

    Raises:
        ValueError: `new_count` is not above `old_count`, or `old_count` not above 0.
    """
    if not 0 < old_count < new_count:
        raise ValueError(f"no expansion: from {old_count} to {new_count} partitions")
    if mapping is KeyMapping.NONE:
        kind = DependencyKind.ALL_LOWER
        pairs = ((new, old) for new in range(old_count, new_count) for old in range(old_count))
        return tuple(Dependency(destination=new, source=old, kind=kind) for new, old in pairs)
    step = gcd(old_count, new_count)
    return tuple(
        Dependency(
            destination=destination,
            source=source,
            kind=DependencyKind.NEW_PARTITION if destination >= old_count else DependencyKind.EXISTING_MOVE,
        )
        for destination in range(new_count)
        for source in range(destination % step, old_count, step)
        if source != destination
    )


def destinations_of(source: int, old_count: int, new_count: int, mapping: KeyMapping) -> tuple[int, ...]:
    """The partitions that depend on `source`, ascending: what `dependencies` gives of it, without the others' cost.

    Raises:
        ValueError: as for `dependencies`, or `source` is not below `old_count`.
    """
    if not 0 <= source < old_count < new_count:
        raise ValueError(f"partition {source} has no dependents in an expansion from {old_count} to {new_count}")
    if mapping is KeyMapping.NONE:
        return tuple(range(old_count, new_count))
    step = gcd(old_count, new_count)
    return tuple(found for found in range(source % step, new_count, step) if found != source)


def sources_across(counts: Sequence[int], destination: int, mapping: KeyMapping) -> dict[int, int]:
    """What `destination` waits for after the last of several changes of a topic's partitions: each source, with the
    index in `counts` (oldest first) of the newest count by which keys moved from there.

    The source's records up to the change that ended that count are to be finished. The newest count alone is not
    enough: from 4 to 6 to 9 a key can move from 0 to 4 to 1, and 4 can have no record of it, so that 1 is to wait for
    0, too, which no single change shows. Counts may fall, as they do in KIP-253. Cost: the sum of `counts`.

    Raises:
        ValueError: `counts` has fewer than two members or one that is not above 0, or there is no such destination.
    """
    if len(counts) < 2 or min(counts) < 1 or not 0 <= destination < counts[-1]:
        raise ValueError(f"no change of partitions with {destination} as destination: {list(counts)}")
    found: dict[int, int] = {}
    for index, count in enumerate(counts[:-1]):
        step = 1 if mapping is KeyMapping.NONE else gcd(count, counts[-1])
        found.update(dict.fromkeys(range(destination % step, count, step), index))
    found.pop(destination, None)
    return found
