"""What a history lacks: the state records that were not exported or cannot be read, and their times.

An answer from a history that lacks some says "at least" instead of passing for the whole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Final

from acktrail.model.offset_history.offset_status import OffsetStatusKind
from acktrail.model.offset_history.record_history import StatusInterval, UnknownReason, status_intervals
from acktrail.model.offset_history.status_changes import RecordPosition, StatusChange
from acktrail.model.share_partition import SharePartition

_FROM_THE_BEGINNING: Final = frozenset({UnknownReason.EARLIER, UnknownReason.DROPPED})
"""Of these a history lacks its oldest part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRecords:
    """State records of one state partition that the history of a share partition (None: of every one) lacks.

    `reason` is ``EARLIER`` (written before the export began), ``GAP`` (pruned before they were exported), ``DROPPED``
    (exported, and not kept), ``UNREADABLE`` or ``NO_SNAPSHOT`` (an update was read without a snapshot before it).
    `first_record` and `last_record` (inclusive) are offsets in the state partition; None: not known. `after_ms` is the
    broker's time of the last record before them; None: any time before `until`, the next state record that has the
    whole state of the share partition (None: there is none yet).
    """

    key: SharePartition | None
    state_partition: int
    reason: UnknownReason
    first_record: int | None = None
    last_record: int | None = None
    after_ms: int | None = None
    until: RecordPosition | None = None

    def touches(self, since_ms: int | None = None, until_ms: int | None = None) -> bool:
        """Whether their changes may have happened at or after `since_ms` and before `until_ms` (ms)."""
        ended = None if self.until is None else self.until.timestamp_ms
        is_before = since_ms is not None and ended is not None and ended < since_ms
        is_after = until_ms is not None and self.after_ms is not None and self.after_ms >= until_ms
        return not (is_before or is_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryCompleteness:
    """What the history of some share partitions lacks in a period.

    `is_current`: every exported state record is in the history. `state_partitions`: those with records of each share
    partition. `kept_from_ms`: changes before this time (ms since the epoch) were in the history and are not kept; None:
    all are.
    """

    missing: tuple[MissingRecords, ...]
    is_current: bool
    state_partitions: Mapping[SharePartition, frozenset[int]]
    kept_from_ms: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether a count from the history is exact; otherwise it is a lower bound."""
        return self.is_current and not self.missing and self.kept_from_ms is None

    @property
    def known_from(self) -> RecordPosition | None:
        """The record from which on all share partitions are known; None: each is known from its beginning, or one is
        not known yet."""
        begun = [each.until for each in self.missing if each.reason in _FROM_THE_BEGINNING]
        known = [at for at in begun if at is not None]
        if len(known) < len(begun):
            return None
        return max(known, key=lambda at: (at.timestamp_ms or 0, at.state_partition, at.offset), default=None)

    def keys_on(self, state_partition: int) -> tuple[SharePartition, ...]:
        """The share partitions that have records on a state partition."""
        return tuple(key for key, places in self.state_partitions.items() if state_partition in places)

    def of(self, key: SharePartition) -> HistoryCompleteness:
        """What the history of one share partition lacks."""
        places = self.state_partitions.get(key, frozenset())
        own = (
            each for each in self.missing if each.key == key or (each.key is None and each.state_partition in places)
        )
        return replace(self, missing=tuple(own), state_partitions={key: places})

    def within(self, since_ms: int | None = None, until_ms: int | None = None) -> HistoryCompleteness:
        """What it lacks of the time at or after `since_ms` and before `until_ms`."""
        missing = tuple(each for each in self.missing if each.touches(since_ms, until_ms))
        is_all_kept = self.kept_from_ms is None or (since_ms is not None and since_ms >= self.kept_from_ms)
        return replace(self, missing=missing, kept_from_ms=None if is_all_kept else self.kept_from_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastKnownState:
    """The last known delivery state of offsets `first_offset` to `last_offset`, both inclusive.

    `known`: the newest interval in which they had a delivery state (``RECORDED``), or had none since the state was last
    started (``UNRECORDED``). `lacking`: an unknown interval after it, in which the state may have changed.
    """

    first_offset: int
    last_offset: int
    known: StatusInterval | None
    lacking: StatusInterval | None

    @property
    def records(self) -> int:
        """How many offsets."""
        return self.last_offset - self.first_offset + 1


def last_known_states(changes: Iterable[StatusChange], first: int, last: int) -> tuple[LastKnownState, ...]:
    """The newest delivery state that each offset from `first` to `last` (inclusive) had.

    Ascending pieces; offsets without a piece were never in scope of the group, or their
    changes are not kept. Statuses without a delivery state are
    skipped: that the start offset moved past an offset, that the share partition was deleted. `changes` are those of
    one share partition on one state partition that share an offset with the range, in log order.
    """
    found: list[LastKnownState] = []
    sought: list[tuple[int, int, StatusInterval | None]] = [(first, last, None)]  # ascending; the third is `lacking`
    for interval in reversed(status_intervals(changes)):
        kind = interval.status.kind
        if kind in _SKIPPED:
            continue
        begin, end = interval.first_offset, interval.last_offset
        overlapping = slice(bisect_left(sought, begin, key=itemgetter(1)), bisect_right(sought, end, key=itemgetter(0)))
        left = []
        for low, high, lacking in sought[overlapping]:
            inner = (max(low, begin), min(high, end))
            parts = [(low, begin - 1, lacking), (end + 1, high, lacking)]
            if kind is OffsetStatusKind.UNKNOWN:
                parts.insert(1, (*inner, lacking or interval))
            else:
                found.append(
                    LastKnownState(first_offset=inner[0], last_offset=inner[1], known=interval, lacking=lacking)
                )
            left += [part for part in parts if part[0] <= part[1]]
        sought[overlapping] = left
    found += [
        LastKnownState(first_offset=low, last_offset=high, known=None, lacking=lacking)
        for low, high, lacking in sought
        if lacking is not None
    ]
    return tuple(sorted(found, key=attrgetter("first_offset")))


_SKIPPED: Final = frozenset({OffsetStatusKind.BELOW_START, OffsetStatusKind.ABSENT, OffsetStatusKind.UNINITIALIZED})
