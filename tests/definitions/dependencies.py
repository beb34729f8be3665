"""Every dependency of an expansion, pair by pair: the definition."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from acktrail.model.expansion.dependencies import DependencyKind
from acktrail.model.expansion.key_mapping import KeyMapping


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
