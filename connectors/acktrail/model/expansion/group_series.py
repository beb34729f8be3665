"""What readings of one group's positions in one topic prove about a dependency: positions to verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from acktrail.model.expansion.ordering import (
    ExpansionFence,
    GroupPosition,
    OrderingAudit,
    OrderingVerdict,
    audit_ordering,
    has_begun,
)

NO_POSITION: Final = -1
"""In place of a position: the group was asked and has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReading:
    """Where one group was in one topic: a partition that is absent has no position, None is not known. `is_known`
    False: the group or the topic could not be asked."""

    observed_at_ms: int
    positions: Mapping[int, int | None] = field(default_factory=dict)
    is_known: bool = True

    def position(self, partition: int) -> int | None:
        """NO_POSITION: the group has none. None: not known."""
        return self.positions.get(partition, NO_POSITION if self.is_known else None)

    @property
    def is_empty(self) -> bool:
        """The group was asked and has no position in the topic."""
        return self.is_known and all(position == NO_POSITION for position in self.positions.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedDependency:
    """`source` with its fence and when every producer knew the count, `destination` with where its first record from
    after the expansion lies (a new partition's is 0, low and high)."""

    source: int
    destination: int
    fence: ExpansionFence
    begins: ExpansionFence
    settles_at_ms: int | None


def audit_group(
    readings: Sequence[GroupReading], dependency: AuditedDependency, *, at_once: bool = True
) -> OrderingAudit:
    """Judge one dependency by the readings of one group, oldest first.

    A position that falls below the last one that is known, or is gone, is a restart of the group in that partition: the
    series of the dependency begins with the last one in either partition. A destination is begun for certain where the
    position is also above the group's first one there: a first position can be where its configuration places a group
    (``auto.offset.reset`` latest). NOT_APPLICABLE: since the restart the group had no position in the topic at a
    reading from `settles_at_ms` on, and its first one in the source is at the high fence or behind it; `at` is that
    reading. Cost: O(len(readings)).
    """
    sources = [each.position(dependency.source) for each in readings]
    destinations = [each.position(dependency.destination) for each in readings]
    falls = [a or b for a, b in zip(_falls(sources), _falls(destinations), strict=True)]
    began = _begun(destinations, dependency.begins)
    series = [
        GroupPosition(source=None if at == NO_POSITION else at, started=started, restarted=fell)
        for at, started, fell in zip(sources, began, falls, strict=True)
    ]
    first = max((index for index, fell in enumerate(falls) if fell), default=0)
    joined = _joined_later(readings, series, first, dependency)
    if joined is not None:
        return OrderingAudit(verdict=OrderingVerdict.NOT_APPLICABLE, at=joined)
    return audit_ordering(series, dependency.fence, at_once=at_once)


def _falls(positions: Sequence[int | None]) -> list[bool]:
    """Whether each position is below the last one known before it; none at all is below each."""
    found: list[bool] = []
    last: int | None = None
    for position in positions:
        found.append(position is not None and last is not None and position < last)
        last = last if position is None else position
    return found


def _begun(positions: Sequence[int | None], begins: ExpansionFence) -> list[bool | None]:
    found: list[bool | None] = []
    first: int | None = None
    for position, fell in zip(positions, _falls(positions), strict=True):
        first = None if fell else first
        if position == NO_POSITION:
            found.append(False)
            continue
        first = position if first is None else first
        started = has_begun(position, begins)
        found.append(None if started and position == first else started)
    return found


def _joined_later(
    readings: Sequence[GroupReading], series: Sequence[GroupPosition], first: int, dependency: AuditedDependency
) -> int | None:
    """The reading that shows that the group joined after the expansion, behind everything from before it."""
    known = next((index for index in range(first, len(series)) if series[index].source is not None), None)
    high, settles_at = dependency.fence.high, dependency.settles_at_ms
    if known is None or high is None or settles_at is None or (series[known].source or 0) < high:
        return None
    earlier = readings[first:known]
    was_away = any(each.is_empty and each.observed_at_ms >= settles_at for each in earlier)
    return known if was_away else None
