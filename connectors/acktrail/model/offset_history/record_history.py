"""The history of one record within a group: the status of its offset, change by change, and what is not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from acktrail.model.offset_history.offset_status import OffsetStatusKind
from acktrail.model.offset_history.status_changes import Cause, RecordPosition, StatusChange
from acktrail.model.offset_history.status_intervals import StatusEnd, StatusInterval, status_intervals


class UnknownReason(StrEnum):
    """Why something about a record is not known. `since` and `until` are those of ``UnknownPeriod``."""

    DELIVERIES = "deliveries"
    """Kafka writes how a delivery ended, never that one began: applies to every record."""
    EARLIER = "earlier"
    """Nothing is known before `until`: older state records were deleted before the export began."""
    GAP = "gap"
    """Records between `since` and `until` were pruned before they were exported."""
    UNREADABLE = "unreadable"
    """The record `since` cannot be read; it is known again from `until` on."""
    UNDATED = "undated"
    """The record `until` is the first to show it; it may have happened before."""
    SKIPPED_ENDINGS = "skipped_endings"
    """The delivery count grew by more than one at `until`: deliveries in between ended without a record."""
    PASSED_UNRECORDED = "passed_unrecorded"
    """The start offset moved past it at `until` and no delivery state of it had been recorded."""
    NEVER_IN_SCOPE = "never_in_scope"
    """The start offset was above it when the share partition was first seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownPeriod:
    """Something that is not known, from the record `since` to the record `until` where these apply."""

    reason: UnknownReason
    since: RecordPosition | None = None
    until: RecordPosition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordHistory:
    """The history of one offset of one share partition, oldest first.

    `intervals` are contiguous, neighbours differ, and the last one has not ended.
    """

    offset: int
    intervals: tuple[StatusInterval, ...]
    unknown_periods: tuple[UnknownPeriod, ...]

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


def record_history(offset: int, changes: Iterable[StatusChange]) -> RecordHistory | None:
    """The history of `offset` by the changes of its share partition on one state partition, in log order; or None."""
    own = tuple(
        replace(interval, first_offset=offset, last_offset=offset)
        for interval in status_intervals(change for change in changes if change.covers(offset))
        if interval.first_offset <= offset <= interval.last_offset
    )
    return RecordHistory(offset=offset, intervals=own, unknown_periods=tuple(_unknown_periods(own))) if own else None


_OF_CAUSE: Final = {Cause.GAP: UnknownReason.GAP, Cause.UNREADABLE: UnknownReason.UNREADABLE}
_BEFORE_ALL: Final = frozenset({OffsetStatusKind.ABSENT, OffsetStatusKind.UNKNOWN, OffsetStatusKind.UNINITIALIZED})


def _unknown_periods(own: Sequence[StatusInterval]) -> Iterator[UnknownPeriod]:
    yield UnknownPeriod(reason=UnknownReason.DELIVERIES)
    if own[0].status.kind is OffsetStatusKind.UNKNOWN and own[0].until is not None:
        yield UnknownPeriod(reason=UnknownReason.EARLIER, until=own[0].until)
    for interval in own:
        kind, since = interval.status.kind, interval.since
        if kind is OffsetStatusKind.UNKNOWN and since is not None and since.cause in _OF_CAUSE:
            yield UnknownPeriod(reason=_OF_CAUSE[since.cause], since=since, until=interval.until)
        elif kind is OffsetStatusKind.RECORDED and since is not None and not interval.is_dated:
            yield UnknownPeriod(reason=UnknownReason.UNDATED, until=since)
    for before, after in pairwise(own):
        yield from _between(before, after)
    seen = [interval.status.kind for interval in own if interval.status.kind not in _BEFORE_ALL]
    if seen and seen[0] is OffsetStatusKind.BELOW_START:
        yield UnknownPeriod(reason=UnknownReason.NEVER_IN_SCOPE, until=own[0].until)


def _between(before: StatusInterval, after: StatusInterval) -> Iterator[UnknownPeriod]:
    endings = (after.status.delivery_count or 0) - (before.status.delivery_count or 0)
    if after.status.kind is OffsetStatusKind.RECORDED and after.is_dated and endings > 1:
        yield UnknownPeriod(reason=UnknownReason.SKIPPED_ENDINGS, since=before.since, until=after.since)
    if before.ended_by is StatusEnd.PASSED and before.status.kind is OffsetStatusKind.UNRECORDED:
        yield UnknownPeriod(reason=UnknownReason.PASSED_UNRECORDED, since=before.since, until=after.since)
