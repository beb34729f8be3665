"""What a history lacks: the state records that were not exported or cannot be read, and their times.

An answer from a history that lacks some says "at least" instead of passing for the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from acktrail.model.offset_history.record_history import UnknownReason
from acktrail.model.offset_history.status_changes import RecordPosition
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
