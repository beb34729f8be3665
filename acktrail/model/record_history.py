"""The history of one record: how long it kept each status, what ended it, and what is not known of it.

Here, too: which offsets were archived, when, and after how many deliveries: the poison records of a group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from acktrail.model.batches import DeliveryState
from acktrail.model.offset_changes import (
    Cause,
    OffsetStatus,
    OffsetStatusKind,
    RecordPosition,
    StatusChange,
    UnknownReason,
)
from acktrail.model.offset_ranges import OffsetRanges
from acktrail.model.share_partition import SharePartition

_BEFORE_ALL: Final = frozenset({OffsetStatusKind.ABSENT, OffsetStatusKind.UNKNOWN, OffsetStatusKind.UNINITIALIZED})
_ARCHIVED: Final = int(DeliveryState.ARCHIVED)
_REASONS: Final = {Cause.GAP: UnknownReason.GAP, Cause.UNREADABLE: UnknownReason.UNREADABLE}


class StatusEnd(StrEnum):
    """How an interval ended."""

    CHANGED = "changed"
    """Another delivery state or delivery count was recorded."""
    PASSED = "passed"
    """The start offset moved past it."""
    STARTED = "started"
    """The share partition was created, or got its start offset."""
    REWOUND = "rewound"
    """The start offset went back below it."""
    RESET = "reset"
    """The state was started again."""
    DROPPED = "dropped"
    """A snapshot does not have it any more."""
    DELETED = "deleted"
    """The state was deleted, with the group, the topic or the offsets."""
    LOST = "lost"
    """The next records were not exported, or cannot be read."""
    SHOWN = "shown"
    """It became known again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInterval:
    """One status of an offset, from the record `since` to the one before `until`.

    `since` None: from before the first known record. `is_dated`: it began with `since`; otherwise that record only
    shows what may have begun before. `until` and `ended_by` None: it has not ended.
    """

    status: OffsetStatus
    since: RecordPosition | None = None
    is_dated: bool = False
    until: RecordPosition | None = None
    ended_by: StatusEnd | None = None


def _intervals(changes: Sequence[StatusChange]) -> Iterator[StatusInterval]:
    """The intervals between the changes of one offset, in log order: before the first one, and after each."""
    begun = StatusInterval(status=changes[0].before)
    for change in changes:
        yield replace(begun, until=change.at, ended_by=_status_end(change))
        begun = StatusInterval(status=change.after, since=change.at, is_dated=change.is_dated)
    yield begun


def _status_end(change: StatusChange) -> StatusEnd:
    """How the status before `change` ended."""
    return (
        _OF_CAUSE.get(change.at.cause)
        or _FROM_NOTHING.get(change.before.kind)
        or _OF_STANDING.get(change.after.kind)
        or _NO_MORE.get(change.before.kind, StatusEnd.STARTED)
    )


_OF_CAUSE: Final = {
    Cause.GAP: StatusEnd.LOST,
    Cause.UNREADABLE: StatusEnd.LOST,
    Cause.INITIALIZE: StatusEnd.STARTED,
    Cause.RESET: StatusEnd.RESET,
    Cause.TOMBSTONE: StatusEnd.DELETED,
}


_FROM_NOTHING: Final = {
    OffsetStatusKind.UNKNOWN: StatusEnd.SHOWN,
    OffsetStatusKind.ABSENT: StatusEnd.STARTED,
    OffsetStatusKind.UNINITIALIZED: StatusEnd.STARTED,
}


_OF_STANDING: Final = {OffsetStatusKind.RECORDED: StatusEnd.CHANGED, OffsetStatusKind.BELOW_START: StatusEnd.PASSED}
"""By the status after."""


_NO_MORE: Final = {OffsetStatusKind.RECORDED: StatusEnd.DROPPED, OffsetStatusKind.BELOW_START: StatusEnd.REWOUND}
"""By the status before, where the offset afterwards is at or above the start offset without a delivery state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownPeriod:
    """Something that is not known, from the record `since` to the record `until` where these apply; of ``DROPPED``
    changes before `before_ms` (ms since the epoch)."""

    reason: UnknownReason
    since: RecordPosition | None = None
    until: RecordPosition | None = None
    before_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHistory:
    """The history of one offset of one share partition, oldest first.

    `intervals` are contiguous, neighbours differ, and the last one has not ended.
    """

    offset: int
    intervals: tuple[StatusInterval, ...]
    unknown_periods: tuple[UnknownPeriod, ...]

    @property
    def kept_from_ms(self) -> int | None:
        """The time before which changes are not kept, so that the first interval may have had others before it; None:
        all are kept."""
        return next((each.before_ms for each in self.unknown_periods if each.before_ms is not None), None)

    @property
    def now(self) -> StatusInterval:
        """The interval that has not ended."""
        return self.intervals[-1]

    @property
    def last_recorded(self) -> StatusInterval | None:
        """The newest interval with a delivery state; None: there is none."""
        recorded = (
            interval for interval in reversed(self.intervals) if interval.status.kind is OffsetStatusKind.RECORDED
        )
        return next(recorded, None)


def record_history(
    offset: int, changes: Iterable[StatusChange], kept_from_ms: int | None = None
) -> RecordHistory | None:
    """The history of `offset` by the changes of its share partition on one state partition, in log order; or None.
    `kept_from_ms`: changes before this time are not kept; None: all are."""
    own = [change for change in changes if change.covers(offset)]
    return _history(offset, tuple(_intervals(own)), kept_from_ms) if own else None


def history_without_changes(offset: int, status: OffsetStatus, kept_from_ms: int) -> RecordHistory:
    """The history of an offset all of whose changes were before `kept_from_ms`: the status that it has since."""
    return _history(offset, (StatusInterval(status=status),), kept_from_ms)


def _history(offset: int, own: tuple[StatusInterval, ...], kept_from_ms: int | None) -> RecordHistory:
    return RecordHistory(offset=offset, intervals=own, unknown_periods=tuple(_unknown_periods(own, kept_from_ms)))


def _unknown_periods(own: Sequence[StatusInterval], kept_from_ms: int | None) -> Iterator[UnknownPeriod]:
    yield UnknownPeriod(reason=UnknownReason.DELIVERIES)
    if kept_from_ms is not None:
        yield UnknownPeriod(reason=UnknownReason.DROPPED, before_ms=kept_from_ms)
    elif own[0].status.kind is OffsetStatusKind.UNKNOWN and own[0].until is not None:
        yield UnknownPeriod(reason=UnknownReason.EARLIER, until=own[0].until)
    for interval in own:
        kind, since = interval.status.kind, interval.since
        if kind is OffsetStatusKind.UNKNOWN and since is not None:
            reason = _REASONS.get(since.cause, UnknownReason.NO_SNAPSHOT)
            yield UnknownPeriod(reason=reason, since=since, until=interval.until)
        elif kind is OffsetStatusKind.RECORDED and since is not None and not interval.is_dated:
            yield UnknownPeriod(reason=UnknownReason.UNDATED, until=since)
    for before, after in pairwise(own):
        yield from _between(before, after)
    seen = [interval.status.kind for interval in own if interval.status.kind not in _BEFORE_ALL]
    if kept_from_ms is None and seen and seen[0] is OffsetStatusKind.BELOW_START:
        yield UnknownPeriod(reason=UnknownReason.NEVER_IN_SCOPE, until=own[0].until)


def _between(before: StatusInterval, after: StatusInterval) -> Iterator[UnknownPeriod]:
    endings = (after.status.delivery_count or 0) - (before.status.delivery_count or 0)
    if after.status.kind is OffsetStatusKind.RECORDED and after.is_dated and endings > 1:
        yield UnknownPeriod(reason=UnknownReason.SKIPPED_ENDINGS, since=before.since, until=after.since)
    if before.ended_by is StatusEnd.PASSED and before.status.kind is OffsetStatusKind.UNRECORDED:
        yield UnknownPeriod(reason=UnknownReason.PASSED_UNRECORDED, since=before.since, until=after.since)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedRange:
    """Offsets `first_offset` to `last_offset`, both inclusive, archived with `delivery_count` by the record `at`.

    Not `is_dated`: the record only shows it; it may have happened before.
    """

    key: SharePartition
    first_offset: int
    last_offset: int
    delivery_count: int | None
    at: RecordPosition
    is_dated: bool

    @property
    def records(self) -> int:
        """How many offsets."""
        return self.last_offset - self.first_offset + 1


def archived_ranges(changes: Iterable[StatusChange]) -> Iterator[ArchivedRange]:
    """The offsets archived by `changes`, which are in log order for each share partition on each state partition.

    Needs every change to or from archived and every change from an unknown status; others are ignored.

    Each is an ending: if a record shows it archived after an unknown period (undated), it is returned only if
    it was not archived when it was last known. An offset that is archived again after a reset or a deletion is
    returned again: ``archived_records`` counts it once.
    """
    archived: dict[tuple[SharePartition, int], OffsetRanges] = {}
    for change in changes:
        known = archived.setdefault((change.key, change.at.state_partition), OffsetRanges())
        own = (change.first_offset, change.last_offset)
        if change.after.delivery_state == _ARCHIVED:
            new = [] if change.before.delivery_state == _ARCHIVED else [own] if change.is_dated else known.outside(*own)
            for first, last in new:
                yield ArchivedRange(
                    key=change.key,
                    first_offset=first,
                    last_offset=last,
                    delivery_count=change.after.delivery_count,
                    at=change.at,
                    is_dated=change.is_dated,
                )
            known.add(*own)
        elif change.after.kind is not OffsetStatusKind.UNKNOWN:
            known.remove(*own)


_STAYS: Final = frozenset({OffsetStatusKind.UNKNOWN, OffsetStatusKind.BELOW_START})
"""A record that was archived and has one of these was not handed out again."""


def archived_now(changes: Sequence[StatusChange]) -> list[ArchivedRange]:
    """Return the offsets that are archived after all of `changes` (as of `archived_ranges`), each once with its newest
    ending, the newest first."""
    gone: defaultdict[tuple[SharePartition, int], OffsetRanges] = defaultdict(OffsetRanges)
    for change in changes:
        own = gone[change.key, change.at.state_partition]
        if change.after.delivery_state == _ARCHIVED:
            own.remove(change.first_offset, change.last_offset)
        elif change.after.kind not in _STAYS:
            own.add(change.first_offset, change.last_offset)
    found = []
    for each in reversed([*archived_ranges(changes)]):
        own = gone[each.key, each.at.state_partition]
        for first, last in [*own.outside(each.first_offset, each.last_offset)]:
            found.append(replace(each, first_offset=first, last_offset=last))
            own.add(first, last)
    return found


def archived_records(ranges: Iterable[ArchivedRange]) -> int:
    """How many records have `ranges`, each once however often it was archived."""
    found: defaultdict[SharePartition, OffsetRanges] = defaultdict(OffsetRanges)
    for each in ranges:
        found[each.key].add(each.first_offset, each.last_offset)
    return sum(last - first + 1 for own in found.values() for first, last in own)
