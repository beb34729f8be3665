"""What readings of one group's positions in one topic prove about a dependency: positions to verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from definitions.ordering_audit import GroupPosition, OrderingAudit, audit_ordering

from acktrail.model.expansion.ordering import (
    CLOCKS_MS,
    NO_POSITION,
    ExpansionFence,
    OrderingReason,
    OrderingVerdict,
    has_begun,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedWork:
    """When the first state record that shows a delivery in a destination was written, by the broker's clock, or that
    moved the start offset past its first record from after the expansion. `is_first` False: an earlier one can be
    missing."""

    at_ms: int
    is_first: bool

    @property
    def quiet_until_ms(self) -> int | None:
        """Up to then there was no such record; None: not known."""
        return self.at_ms - CLOCKS_MS if self.is_first else None


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
    after the expansion lies (a new partition's is 0, low and high). Of share groups `work` is what state records show
    of the destination (None: nothing), and `resets` when each partition was last reset, as far as is known.
    `gone_at_ms`: the first look that no longer showed a known record of the source below its low fence;
    `cleared_at_ms`: the first that showed none below its high one; None: no look.
    """

    source: int
    destination: int
    fence: ExpansionFence
    begins: ExpansionFence
    settles_at_ms: int | None
    work: RecordedWork | None = None
    resets: Mapping[int, int] = field(default_factory=dict)
    gone_at_ms: int | None = None
    cleared_at_ms: int | None = None


def audit_group(
    readings: Sequence[GroupReading], dependency: AuditedDependency, *, at_once: bool = True
) -> OrderingAudit:
    """Judge one dependency by the readings of one group, oldest first.

    A position that falls below the last one that is known, or is gone, is a restart of the group in that partition, as
    is the first reading after a known reset: the series of the dependency begins with the last one in either partition.
    `at_once` False: a share group, whose partitions are not read at once, and whose start offset stands while records
    behind it are finished. It rules a beginning out where there is none, or up to where state records show no work. A
    destination is begun for certain where the position is also above the group's first one there: a first position can
    be where its configuration places a group
    (``auto.offset.reset`` latest). NOT_APPLICABLE: since the restart the group had no position in the topic at a
    reading from `settles_at_ms` on, and its first one in the source is at the high fence or behind it; `at` is that
    reading. Cost: O(len(readings)).
    """
    sources = [each.position(dependency.source) for each in readings]
    destinations = [each.position(dependency.destination) for each in readings]
    own_falls, falls = (
        _restarts(positions, _cut(readings, dependency.resets.get(partition)))
        for partition, positions in ((dependency.destination, destinations), (dependency.source, sources))
    )
    falls = [a or b for a, b in zip(own_falls, falls, strict=True)]
    began = _begun(destinations, own_falls, dependency.begins)
    doubts = [None] * len(readings) if at_once else _doubts(readings, destinations, dependency.work)
    series = [
        GroupPosition(
            source=None if at == NO_POSITION else at,
            started=None if started is False and doubt and dependency.work else started,
            restarted=fell,
            is_gone=_is_since(each, dependency.gone_at_ms),
            is_cleared=_is_since(each, dependency.cleared_at_ms),
            doubt=doubt if started is False else None,
        )
        for each, at, started, doubt, fell in zip(readings, sources, began, doubts, falls, strict=True)
    ]
    first = max((index for index, fell in enumerate(falls) if fell), default=0)
    joined = _joined_later(readings, series, first, dependency)
    if joined is not None:
        return OrderingAudit(verdict=OrderingVerdict.NOT_APPLICABLE, at=joined)
    return audit_ordering(series, dependency.fence, at_once=at_once)


def _is_since(reading: GroupReading, at_ms: int | None) -> bool:
    return at_ms is not None and reading.observed_at_ms >= at_ms


def _restarts(positions: Sequence[int | None], cut: int | None) -> list[bool]:
    """Whether each position is below the last one known before it, where none at all is below each, or is the first
    since a reset."""
    found: list[bool] = []
    last: int | None = None
    for index, position in enumerate(positions):
        found.append(index == cut or (position is not None and last is not None and position < last))
        last = last if position is None else position
    return found


def _cut(readings: Sequence[GroupReading], reset_at_ms: int | None) -> int | None:
    """The first reading after a reset."""
    if reset_at_ms is None:
        return None
    return next((index for index, each in enumerate(readings) if each.observed_at_ms > reset_at_ms), None)


def _doubts(
    readings: Sequence[GroupReading], positions: Sequence[int | None], work: RecordedWork | None
) -> list[OrderingReason | None]:
    """Why each reading of a share group's destination does not rule a beginning out."""
    until = None if work is None else work.quiet_until_ms
    reason = OrderingReason.WORK_NOT_RECORDED if until is None else OrderingReason.WORK_RECORDED
    return [
        None if position == NO_POSITION or (until is not None and each.observed_at_ms <= until) else reason
        for each, position in zip(readings, positions, strict=True)
    ]


def _begun(positions: Sequence[int | None], falls: Sequence[bool], begins: ExpansionFence) -> list[bool | None]:
    found: list[bool | None] = []
    first: int | None = None
    for position, fell in zip(positions, falls, strict=True):
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
