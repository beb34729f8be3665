"""The history of share partitions record by record: what ``record_changes`` makes of many at once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, MutableMapping, Sequence
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter

import pyarrow as pa

from acktrail.format.columns.record_columns import CHANGE_COLUMNS
from acktrail.model.offset_changes import (
    LAST_OFFSET,
    Cause,
    KnownState,
    OffsetStatusKind,
    RecordPosition,
    StatusChange,
    status_at,
)
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, apply
from acktrail.model.share_partition import KEY_COLUMNS, SharePartition

_key = attrgetter(*KEY_COLUMNS)
_status = attrgetter("kind.value", "delivery_state", "delivery_count")


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
    """Of each longest range with one status before and one after: those that differ; if `all_offsets`, all."""
    edges = sorted({0, LAST_OFFSET + 1, *edges_of(old), *edges_of(new)})
    pieces = [(first, end - 1, status_at(old, first), status_at(new, first)) for first, end in pairwise(edges)]
    for (before, after), own in groupby(pieces, key=itemgetter(2, 3)):
        ranges = [*own]
        if all_offsets or before != after:
            ends = {"first_offset": ranges[0][0], "last_offset": ranges[-1][1]}
            yield StatusChange(key=key, **ends, before=before, after=after, at=at)


def edges_of(state: KnownState) -> set[int]:
    """Offsets from which on the status may be another one."""
    if not isinstance(state, SharePartitionState):
        return set()
    ends = {edge for batch in state.batches for edge in (batch.first_offset, batch.last_offset + 1)}
    return {edge for edge in {*ends, state.start_offset or 0} if 0 < edge <= LAST_OFFSET}


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


def changes_of(log: Sequence[StateRecord], lost: Container[int] = (), first: int = 0) -> list[StatusChange]:
    """The changes of a log that is known from the record `first` on, without those that were `lost`. Records are a
    millisecond apart, the first ones before 1970."""
    history, found = History(0, {}), list[StatusChange]()
    for at, record in enumerate(log[first:], first):
        if at in lost:
            found += history.gap(at) if at - 1 not in lost else ()
        else:
            found += history.record(record, offset=at, timestamp_ms=at - 5)
    return found


def change_table(changes: Iterable[StatusChange]) -> pa.Table:
    """Rows of ``CHANGE_COLUMNS``, one a change, in the order they come."""
    rows = [
        (
            *_key(change.key),
            *(change.first_offset, None if change.last_offset == LAST_OFFSET else change.last_offset),
            *_status(change.before),
            *_status(change.after),
            *(change.at.cause.value, change.is_dated),
            *(change.at.state_partition, change.at.offset, change.at.timestamp_ms),
        )
        for change in changes
    ]
    columns = zip(*rows, strict=True) if rows else ((),) * len(CHANGE_COLUMNS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CHANGE_COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=CHANGE_COLUMNS)
