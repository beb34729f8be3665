"""The history of every offset of a share partition: how each state record changed its status.

A *change* names the offsets whose status a record changed. Changes are the differences between successive replayed
states (``acktrail.model.replay``), so all changes up to a record, applied in order, give the replayed state at that
record.

From a gap in the export, or a record that cannot be read, until the next snapshot of a share partition only the offsets
in updates are known. A record whose key cannot be read may be about any share partition of its state partition.

After any record every offset from 0 to 2^63-1 has exactly one *status*: a delivery state with its count, or the reason
why it has none.

Here, too: what a history lacks. An answer from a history that lacks state records says "at least" instead of passing
for the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Literal

from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import SharePartition

LAST_OFFSET: Final = 2**63 - 1
"""The highest offset of a topic partition. Other numbers in a state record are not offsets of any record."""


class UnknownReason(StrEnum):
    """Why something about a record is not known. `since` and `until` are those of ``UnknownPeriod``."""

    DELIVERIES = "deliveries"
    """Kafka writes how a delivery ended, never that one began: applies to every record."""
    EARLIER = "earlier"
    """Nothing is known before `until`: older state records were deleted before the export began."""
    GAP = "gap"
    """Records between `since` and `until` were pruned before they were exported."""
    DROPPED = "dropped_by_retention"
    """State records from `since` to `until`, or changes before the time `before_ms`, were there and are not kept."""
    UNREADABLE = "unreadable"
    """The record `since` cannot be read; it is known again from `until` on."""
    NO_SNAPSHOT = "no_snapshot"
    """The update `since` was read without a snapshot before it; it is known again from `until` on."""
    UNDATED = "undated"
    """The record `until` is the first to show it; it may have happened before."""
    SKIPPED_ENDINGS = "skipped_endings"
    """The delivery count grew by more than one at `until`: deliveries in between ended without a record."""
    PASSED_UNRECORDED = "passed_unrecorded"
    """The start offset moved past it at `until` and no delivery state of it had been recorded."""
    NEVER_IN_SCOPE = "never_in_scope"
    """The start offset was above it when the share partition was first seen."""


_FROM_THE_BEGINNING: Final = frozenset({UnknownReason.EARLIER, UnknownReason.DROPPED})
"""Of these a history lacks its oldest part."""


class Cause(StrEnum):
    """What changed the status of offsets."""

    UPDATE = "update"
    SNAPSHOT = "snapshot"
    """Written after a number of updates, or because the share partition was idle: usually it changes nothing."""
    INITIALIZE = "initialize"
    """The share partition's first snapshot."""
    RESET = "reset"
    """A snapshot that starts the state again: a new state epoch, or an initialization over a state."""
    TOMBSTONE = "tombstone"
    GAP = "gap"
    """Records from here on were not exported."""
    UNREADABLE = "unreadable"
    """A record that cannot be read, of the share partition or of none that is named."""


DATING: Final = frozenset({Cause.INITIALIZE, Cause.RESET, Cause.TOMBSTONE})
"""Causes that replace the status of all offsets, known or not: their changes are always dated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPosition:
    """The address of the state record that shows a change, and the broker's time of it in ms (None for a gap)."""

    state_partition: int
    offset: int
    timestamp_ms: int | None
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """Offsets `first_offset` to `last_offset`, both inclusive, went from one status to another."""

    key: SharePartition
    first_offset: int
    last_offset: int
    before: OffsetStatus
    after: OffsetStatus
    at: RecordPosition

    def covers(self, offset: int) -> bool:
        """Whether `offset` is one of its offsets."""
        return self.first_offset <= offset <= self.last_offset

    @property
    def is_dated(self) -> bool:
        """Whether it happened with the record at `at`; if not, this record only shows what may have happened before."""
        if self.before.kind is not OffsetStatusKind.UNKNOWN or self.at.cause in DATING:
            return True
        return self.at.cause is Cause.UPDATE and self.after.kind is OffsetStatusKind.RECORDED


class OffsetStatusKind(StrEnum):
    """The kind of status that an offset has within a share partition."""

    RECORDED = "recorded"
    """It has a delivery state and a delivery count."""
    UNRECORDED = "unrecorded"
    """At or above the start offset, without a delivery state: not delivered yet, or a delivery has not ended."""
    BELOW_START = "below_start"
    """Below the start offset: it is not delivered any more."""
    UNINITIALIZED = "uninitialized"
    """The share partition has no start offset yet."""
    ABSENT = "absent"
    """The share partition does not exist."""
    UNKNOWN = "unknown"
    """The state records about it were not exported, or cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetStatus:
    """The status of an offset; delivery state (Kafka's number) and count only where it is recorded."""

    kind: OffsetStatusKind
    delivery_state: int | None = None
    delivery_count: int | None = None


UNKNOWN: Final = OffsetStatus(kind=OffsetStatusKind.UNKNOWN)


KnownState = SharePartitionState | Literal[OffsetStatusKind.ABSENT, OffsetStatusKind.UNKNOWN]
"""The state of a share partition, or that it does not exist, or that its state is not known."""


def status_at(state: KnownState, offset: int) -> OffsetStatus:
    """The status of one offset. Where only updates were seen (`state_epoch` None) an offset in none of them is unknown,
    not unrecorded."""
    if not isinstance(state, SharePartitionState):
        return OffsetStatus(kind=state)
    start = state.start_offset
    if start is not None and offset < start:
        return OffsetStatus(kind=OffsetStatusKind.BELOW_START)
    said = [b for b in state.batches if b.first_offset <= offset <= b.last_offset]
    if said:
        count, number = max((batch.delivery_count, batch.delivery_state) for batch in said)
        return OffsetStatus(kind=OffsetStatusKind.RECORDED, delivery_state=number, delivery_count=count)
    if state.state_epoch is None:
        return UNKNOWN
    return OffsetStatus(kind=OffsetStatusKind.UNINITIALIZED if start is None else OffsetStatusKind.UNRECORDED)


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
