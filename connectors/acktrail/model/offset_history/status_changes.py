"""The history of every offset of a share partition: how each state record changed its status.

A *change* names the offsets whose status a record changed. Changes are the differences between successive replayed
states (``acktrail.model.replay``), so all changes up to a record, applied in order, give the replayed state at that
record; and the intervals between changes (``status_intervals``) cover offsets and time without overlaps.

From a gap in the export, or a record that cannot be read, until the next snapshot of a share partition only the offsets
in updates are known. A record whose key cannot be read may be about any share partition of its state partition.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from acktrail.model.offset_history.offset_status import (
    KnownState,
    OffsetStatus,
    OffsetStatusKind,
    differences,
    status_ranges,
)
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, apply
from acktrail.model.share_partition import SharePartition


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


class History:
    """The changes of all share partitions of one state partition, record by record in log order.

    `known_states` is what it resumes from, changed in place: the replayed state of each share partition ever seen, or
    that it is absent or not known. If the first record of another one is an initialization, it did not exist before;
    else its status before is not known.

    The changes of a log do not depend on where it is cut: resuming from `known_states` gives the changes of one pass.
    """

    def __init__(self, state_partition: int, known_states: MutableMapping[SharePartition, KnownState]) -> None:
        self._state_partition = state_partition
        self.known_states = known_states

    def record(self, record: StateRecord, *, offset: int, timestamp_ms: int | None) -> Iterator[StatusChange]:
        """Apply a record and return its changes, ascending. The first record of a share partition has changes for all
        offsets, also for those that are unknown before and after it.
        """
        before = self.known_states.get(record.key)
        state = before if isinstance(before, SharePartitionState) else None
        new: KnownState = apply(state, record) or OffsetStatusKind.ABSENT
        self.known_states[record.key] = new
        cause = _cause(state, record)
        was: KnownState = before or (OffsetStatusKind.ABSENT if cause is Cause.INITIALIZE else OffsetStatusKind.UNKNOWN)
        at = self._position(offset, timestamp_ms, cause)
        return _changes(record.key, was, new, at, all_offsets=before is None)

    def unreadable(self, key: SharePartition, *, offset: int, timestamp_ms: int | None) -> Iterator[StatusChange]:
        """A record of `key` that cannot be read: from here on its state is not known."""
        return self._forget(key, self._position(offset, timestamp_ms, Cause.UNREADABLE))

    def unattributed(self, *, offset: int, timestamp_ms: int | None) -> Iterator[StatusChange]:
        """A record that names no share partition: from here on no state is known."""
        return self._forget_all(self._position(offset, timestamp_ms, Cause.UNREADABLE))

    def gap(self, first_offset: int) -> Iterator[StatusChange]:
        """The records from `first_offset` on were not exported: from there on no state is known."""
        return self._forget_all(self._position(first_offset, None, Cause.GAP))

    def _forget_all(self, at: RecordPosition) -> Iterator[StatusChange]:
        for key in sorted(self.known_states):
            yield from self._forget(key, at)

    def _forget(self, key: SharePartition, at: RecordPosition) -> Iterator[StatusChange]:
        before = self.known_states.get(key)
        self.known_states[key] = OffsetStatusKind.UNKNOWN
        return iter(()) if before is None else _changes(key, before, OffsetStatusKind.UNKNOWN, at)

    def _position(self, offset: int, timestamp_ms: int | None, cause: Cause) -> RecordPosition:
        return RecordPosition(
            state_partition=self._state_partition, offset=offset, timestamp_ms=timestamp_ms, cause=cause
        )


def _changes(
    key: SharePartition, old: KnownState, new: KnownState, at: RecordPosition, *, all_offsets: bool = False
) -> Iterator[StatusChange]:
    for first, last, before, after in differences(status_ranges(old), status_ranges(new), all_offsets=all_offsets):
        yield StatusChange(key=key, first_offset=first, last_offset=last, before=before, after=after, at=at)


def _cause(state: SharePartitionState | None, record: StateRecord) -> Cause:
    match record:
        case Tombstone():
            return Cause.TOMBSTONE
        case ShareUpdate():
            return Cause.UPDATE
        case ShareSnapshot() if state is None:
            return Cause.INITIALIZE if record.snapshot_epoch == 0 and not record.batches else Cause.SNAPSHOT
        case ShareSnapshot():
            is_new_epoch = state.state_epoch is not None and state.state_epoch != record.state_epoch
            return Cause.RESET if is_new_epoch or record.is_initialization else Cause.SNAPSHOT
