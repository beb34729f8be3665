"""History: what became of every offset of a share partition, from one state record to the next.

A *change* says which offsets a record took from one condition to another. Changes are the difference between successive
states of the fold (``acktrail.model.replay``), so the changes up to a record, laid over each other, give the fold's
state at that record; and the intervals between changes (``status_intervals``) tile offsets and time without an overlap.

Nothing is known of a share partition from a gap in the export, or from a record of it that nobody can read, until its
next snapshot says all of it again; until then only what updates say is known.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acktrail.model.offset_history.offset_status import (
    ABSENT,
    UNKNOWN,
    KnownState,
    OffsetStatus,
    OffsetStatusKind,
    differences,
    status_ranges,
)
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, apply
from acktrail.model.share_partition import SharePartition

__all__ = ["DATING", "Cause", "History", "RecordPosition", "StatusChange"]


class Cause(StrEnum):
    """What took offsets from one condition to another."""

    UPDATE = "update"
    SNAPSHOT = "snapshot"
    """Written after so many updates, or because the share partition was idle: mostly it changes nothing."""
    INITIALIZE = "initialize"
    """The share partition's first snapshot."""
    RESET = "reset"
    """A snapshot that starts the state anew: a new state epoch, or an initialization on top of a state."""
    TOMBSTONE = "tombstone"
    GAP = "gap"
    """Records that were not exported, from here on."""
    UNREADABLE = "unreadable"
    """A record of the share partition that cannot be read."""


DATING: Final = frozenset({Cause.INITIALIZE, Cause.RESET, Cause.TOMBSTONE})
"""They make anew what they show, whatever was before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPosition:
    """The state record that shows something, and the broker's time of it in ms; None where there is no record."""

    state_partition: int
    offset: int
    timestamp_ms: int | None
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """Offsets `first_offset` to `last_offset`, both inclusive, went from one condition to another."""

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
        """Whether it happened with the record at `at`; if not, this record only shows what may have been so before."""
        if self.before.kind is not OffsetStatusKind.UNKNOWN or self.at.cause in DATING:
            return True
        return self.at.cause is Cause.UPDATE and self.after.kind is OffsetStatusKind.RECORDED


class History:
    """The changes of all share partitions of one state partition, record by record in log order.

    `held` is what it goes on from, changed in place: the fold's state of each share partition ever heard of, or that it
    is absent or not known. The first record of another one tells, being an initialization or not, whether it did not
    exist before or is not known.

    The changes of a log do not depend on where it is cut: going on from `held` gives what one pass gives.
    """

    def __init__(self, state_partition: int, held: MutableMapping[SharePartition, KnownState]) -> None:
        self._state_partition = state_partition
        self.held = held

    def record(self, record: StateRecord, *, offset: int, timestamp_ms: int | None) -> Iterator[StatusChange]:
        """Apply a record; the changes it makes, ascending. The first record of a share partition speaks of all offsets,
        also of those that are not known before and after it.
        """
        held = self.held.get(record.key)
        state = held if isinstance(held, SharePartitionState) else None
        new: KnownState = apply(state, record) or OffsetStatusKind.ABSENT
        self.held[record.key] = new
        at = self._evidence(offset, timestamp_ms, _cause(state, record))
        if held is None:
            return _first_changes(record.key, new, at)
        return _changes(record.key, held, new, at)

    def unreadable(self, key: SharePartition, *, offset: int, timestamp_ms: int | None) -> Iterator[StatusChange]:
        """A record of `key` that cannot be read: from here on its state is not known."""
        return self._forget(key, self._evidence(offset, timestamp_ms, Cause.UNREADABLE))

    def gap(self, first_offset: int) -> Iterator[StatusChange]:
        """The records from `first_offset` on were not exported: from there on no state is known."""
        at = self._evidence(first_offset, None, Cause.GAP)
        for key in sorted(self.held):
            yield from self._forget(key, at)

    def _forget(self, key: SharePartition, at: RecordPosition) -> Iterator[StatusChange]:
        held = self.held.get(key)
        self.held[key] = OffsetStatusKind.UNKNOWN
        return iter(()) if held is None else _changes(key, held, OffsetStatusKind.UNKNOWN, at)

    def _evidence(self, offset: int, timestamp_ms: int | None, cause: Cause) -> RecordPosition:
        return RecordPosition(
            state_partition=self._state_partition, offset=offset, timestamp_ms=timestamp_ms, cause=cause
        )


def _changes(key: SharePartition, old: KnownState, new: KnownState, at: RecordPosition) -> Iterator[StatusChange]:
    return (_change(key, *difference, at) for difference in differences(status_ranges(old), status_ranges(new)))


def _first_changes(key: SharePartition, new: KnownState, at: RecordPosition) -> Iterator[StatusChange]:
    before = ABSENT if at.cause is Cause.INITIALIZE else UNKNOWN
    return (_change(key, tile.first_offset, tile.last_offset, before, tile.status, at) for tile in status_ranges(new))


def _change(
    key: SharePartition, first: int, last: int, before: OffsetStatus, after: OffsetStatus, at: RecordPosition
) -> StatusChange:
    return StatusChange(key=key, first_offset=first, last_offset=last, before=before, after=after, at=at)


def _cause(state: SharePartitionState | None, record: StateRecord) -> Cause:
    match record:
        case Tombstone():
            return Cause.TOMBSTONE
        case ShareUpdate():
            return Cause.UPDATE
        case ShareSnapshot():
            return _cause_of_snapshot(state, record)


def _cause_of_snapshot(state: SharePartitionState | None, record: ShareSnapshot) -> Cause:
    if state is None:
        return Cause.INITIALIZE if record.snapshot_epoch == 0 and not record.batches else Cause.SNAPSHOT
    is_new_epoch = state.state_epoch is not None and state.state_epoch != record.state_epoch
    return Cause.RESET if is_new_epoch or record.is_initialization else Cause.SNAPSHOT
