"""One record's fate within a group: what became of one offset, change by change, and what of it is not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from acktrail.model.offset_history.offset_status import Condition, Standing
from acktrail.model.offset_history.status_changes import Cause, Change, Evidence
from acktrail.model.offset_history.status_intervals import Ending, Interval, intervals

__all__ = ["Blank", "Fate", "NotKnown", "fate"]


class NotKnown(StrEnum):
    """Why something about a record is not known."""

    DELIVERIES = "deliveries"
    """Kafka writes how a delivery ended, never that one began: true of every record."""
    EARLIER = "earlier"
    """Nothing is known of the time before `until`: the records of it were gone when the export began."""
    GAP = "gap"
    """Records between `since` and `until` were pruned before they were exported."""
    UNREADABLE = "unreadable"
    """A record, `since`, cannot be read; `until` the next one tells."""
    UNDATED = "undated"
    """The record `until` shows it first; it may have been so before."""
    SKIPPED_ENDINGS = "skipped_endings"
    """The delivery count grew by more than one at `until`: deliveries in between ended without a record."""
    PASSED_UNRECORDED = "passed_unrecorded"
    """The start offset moved past it at `until` and no delivery state of it had been recorded."""
    NEVER_IN_SCOPE = "never_in_scope"
    """The start offset was above it when the share partition was first seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blank:
    """Something that is not known: from the record `since` to the record `until`, where these mean something."""

    reason: NotKnown
    since: Evidence | None = None
    until: Evidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What is known of one offset of one share partition, oldest first.

    `intervals` follow each other without a hole; the last one holds to this day. Neighbours differ.
    """

    offset: int
    intervals: tuple[Interval, ...]
    blanks: tuple[Blank, ...]

    @property
    def now(self) -> Interval:
        """What holds to this day."""
        return self.intervals[-1]

    @property
    def last_recorded(self) -> Interval | None:
        """The last delivery state that was ever recorded of it; None: none ever was."""
        recorded = (found for found in reversed(self.intervals) if found.condition.standing is Standing.RECORDED)
        return next(recorded, None)


def fate(offset: int, changes: Iterable[Change]) -> Fate | None:
    """The fate of `offset` by the changes of its share partition on one state partition, in log order; None: none."""
    own = tuple(
        replace(found, first_offset=offset, last_offset=offset)
        for found in intervals(change for change in changes if change.covers(offset))
        if found.first_offset <= offset <= found.last_offset
    )
    return Fate(offset=offset, intervals=own, blanks=tuple(_blanks(own))) if own else None


def _blanks(own: Sequence[Interval]) -> Iterator[Blank]:
    yield Blank(reason=NotKnown.DELIVERIES)
    if own[0].condition.standing is Standing.UNKNOWN and own[0].until is not None:
        yield Blank(reason=NotKnown.EARLIER, until=own[0].until)
    for found in own:
        yield from _of_interval(found)
    for before, after in pairwise(own):
        yield from _of_step(before, after)
    if _never_in_scope(own):
        yield Blank(reason=NotKnown.NEVER_IN_SCOPE, until=own[0].until)


def _of_interval(found: Interval) -> Iterator[Blank]:
    if found.since is None:
        return
    if found.condition.standing is Standing.UNKNOWN and found.since.cause in _OF_CAUSE:
        yield Blank(reason=_OF_CAUSE[found.since.cause], since=found.since, until=found.until)
    elif found.condition.standing is Standing.RECORDED and not found.is_dated:
        yield Blank(reason=NotKnown.UNDATED, until=found.since)


_OF_CAUSE = {Cause.GAP: NotKnown.GAP, Cause.UNREADABLE: NotKnown.UNREADABLE}


def _of_step(before: Interval, after: Interval) -> Iterator[Blank]:
    if after.condition.standing is Standing.RECORDED and after.is_dated and _endings(before, after) > 1:
        yield Blank(reason=NotKnown.SKIPPED_ENDINGS, since=before.since, until=after.since)
    if before.ended_by is Ending.PASSED and before.condition.standing is Standing.UNRECORDED:
        yield Blank(reason=NotKnown.PASSED_UNRECORDED, since=before.since, until=after.since)


def _endings(before: Interval, after: Interval) -> int:
    """By how much the delivery count grew."""
    return _count(after.condition) - _count(before.condition)


def _count(condition: Condition) -> int:
    return condition.delivery_count or 0


def _never_in_scope(own: Sequence[Interval]) -> bool:
    seen = [found.condition.standing for found in own if found.condition.standing not in _BEFORE_ALL]
    return bool(seen) and seen[0] is Standing.BELOW_START


_BEFORE_ALL = frozenset({Standing.ABSENT, Standing.UNKNOWN, Standing.UNINITIALIZED})
