"""Acquired records acknowledged, released or timed out (Kafka: ``SharePartition``).

Each function changes the cache and returns the changes, so that the leader can write them, or roll them back where
writing fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from acktrail.model.batches import DeliveryState, StateBatch
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch, AcknowledgeType
from acktrail_simulation.leader.group_settings import ShareGroupSettings
from acktrail_simulation.leader.in_flight import InFlightBatch, InFlightState, after_settling
from acktrail_simulation.leader.share_partition_cache import SharePartitionCache

_STATES: Final = {
    AcknowledgeType.GAP: DeliveryState.ARCHIVED,
    AcknowledgeType.ACCEPT: DeliveryState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: DeliveryState.AVAILABLE,
    AcknowledgeType.REJECT: DeliveryState.ARCHIVED,
}


class InvalidRecordState(Exception):
    """An acknowledgement that the state of the records does not allow. `error` is the response to the member."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A part of a batch in its new state, and its state before."""

    batch: InFlightBatch
    first_offset: int
    last_offset: int
    before: InFlightState
    after: InFlightState

    @property
    def state_batch(self) -> StateBatch:
        """The batch to write."""
        return StateBatch(
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            delivery_state=self.after.state,
            delivery_count=self.after.delivery_count,
        )

    def roll_back(self) -> None:
        """Restore the part as it was, lock included."""
        self.batch.put(self.first_offset, self.before)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RecordLock:
    """A member's hold on a batch, or on one offset of a split one."""

    expires_ms: int
    first_offset: int
    last_offset: int


@dataclass(slots=True, kw_only=True)
class _Acknowledgement:
    """One member's acknowledgements in progress; `changes` so far."""

    cache: SharePartitionCache
    settings: ShareGroupSettings
    member_id: str
    now_ms: int
    changes: list[StateChange]

    def take(self, acknowledged: AcknowledgementBatch) -> None:
        for batch in _batches_for(self.cache, acknowledged):
            if batch.last_offset < self.cache.start_offset:
                continue
            if batch.by_offset is None:
                self._check_whole(batch, acknowledged)
            first = max(acknowledged.first_offset, self.cache.start_offset)
            for begin, end, held in tuple(batch.parts(first, acknowledged.last_offset)):
                if held.state is not DeliveryState.ACQUIRED or held.member_id != self.member_id:
                    raise InvalidRecordState(ErrorCode.INVALID_RECORD_STATE)
                self._settle(batch, begin, end, held, acknowledged.type_at(begin))

    def _check_whole(self, batch: InFlightBatch, acknowledged: AcknowledgementBatch) -> None:
        """A batch that is alike so far: the member's, and split where it will differ from now on."""
        held = batch.held_at(batch.first_offset)
        if held.member_id != self.member_id or held.state is not DeliveryState.ACQUIRED:
            raise InvalidRecordState(ErrorCode.INVALID_RECORD_STATE)
        covered = batch.lies_within(acknowledged.first_offset, acknowledged.last_offset)
        if not covered or len(acknowledged.types) > 1 or batch.is_cut_by(self.cache.start_offset):
            batch.split()

    def _settle(self, batch: InFlightBatch, first: int, last: int, held: InFlightState, kind: AcknowledgeType) -> None:
        if kind is AcknowledgeType.RENEW:
            if not self.settings.renew_enabled:
                raise InvalidRecordState(ErrorCode.INVALID_RECORD_STATE)
            batch.put(first, replace(held, lock_expires_ms=self.now_ms + self.settings.record_lock_duration_ms))
            return
        rejected = kind is AcknowledgeType.REJECT and self.settings.dead_letter_queue
        to = DeliveryState.ARCHIVING if rejected else _STATES[kind]
        self.changes.append(_changed(batch, first, last, held, after_settling(held, to, self.settings)))


def acknowledge(
    cache: SharePartitionCache,
    settings: ShareGroupSettings,
    member_id: str,
    acknowledged: tuple[AcknowledgementBatch, ...],
    now_ms: int,
) -> tuple[StateChange, ...]:
    """Settle what a member acknowledges; below the start offset nothing happens and nothing is wrong.

    Raises:
        Refused: when one offset cannot be acknowledged so: none then is, but locks renewed before it stay renewed.
            INVALID_RECORD_STATE: not acquired, or by another member; INVALID_REQUEST: never acquired, an unknown type.
    """
    in_progress = _Acknowledgement(cache=cache, settings=settings, member_id=member_id, now_ms=now_ms, changes=[])
    try:
        for batch in acknowledged:
            if any(kind not in set(AcknowledgeType) for kind in batch.types):
                raise InvalidRecordState(ErrorCode.INVALID_REQUEST)
            if batch.last_offset >= cache.start_offset:
                in_progress.take(batch)
    except InvalidRecordState:
        for change in reversed(in_progress.changes):
            change.roll_back()
        raise
    return tuple(in_progress.changes)


def release(cache: SharePartitionCache, settings: ShareGroupSettings, member_id: str) -> tuple[StateChange, ...]:
    """Release all records that a member holds: its session has ended. Those below the start offset are archived."""
    changes: list[StateChange] = []
    for batch in cache.batches:
        if batch.by_offset is None and batch.is_cut_by(cache.start_offset) and _is_held_by(batch, member_id):
            batch.split()
        changes += _released(cache, settings, batch, member_id=member_id)
    return tuple(changes)


def expired_locks(cache: SharePartitionCache, now_ms: int) -> tuple[RecordLock, ...]:
    """The locks that ran out by `now_ms`, oldest first; of equally old ones the lowest offset first (Kafka's timer
    promises no order).
    """
    return tuple(
        sorted(
            RecordLock(expires_ms=held.lock_expires_ms, first_offset=first, last_offset=last)
            for batch in cache.batches
            for first, last, held in batch.parts()
            if held.lock_expires_ms is not None and held.lock_expires_ms <= now_ms
        )
    )


def time_out(cache: SharePartitionCache, settings: ShareGroupSettings, lock: RecordLock) -> tuple[StateChange, ...]:
    """Release the records of `lock`, held by any member."""
    floor = cache.floor(lock.first_offset)
    if floor is None:
        return ()
    if floor.by_offset is None and floor.is_cut_by(cache.start_offset):
        floor.split()
    return tuple(_released(cache, settings, floor, first=lock.first_offset, last=lock.last_offset))


def _released(
    cache: SharePartitionCache,
    settings: ShareGroupSettings,
    batch: InFlightBatch,
    *,
    member_id: str | None = None,
    first: int | None = None,
    last: int | None = None,
) -> Iterator[StateChange]:
    for begin, end, held in tuple(batch.parts(first, last)):
        if held.state is not DeliveryState.ACQUIRED or member_id not in (None, held.member_id):
            continue
        passed = end < cache.start_offset
        to = DeliveryState.ARCHIVED if passed else DeliveryState.AVAILABLE
        yield _changed(batch, begin, end, held, after_settling(held, to, settings))


def _changed(batch: InFlightBatch, first: int, last: int, before: InFlightState, after: InFlightState) -> StateChange:
    batch.put(first, after)
    return StateChange(batch=batch, first_offset=first, last_offset=last, before=before, after=after)


def _is_held_by(batch: InFlightBatch, member_id: str) -> bool:
    held = batch.held_at(batch.first_offset)
    return held.state is DeliveryState.ACQUIRED and held.member_id == member_id


def _batches_for(cache: SharePartitionCache, acknowledged: AcknowledgementBatch) -> list[InFlightBatch]:
    """The cached batches that `acknowledged` speaks of.

    Raises:
        Refused: when they do not cover its ends.
    """
    floor = cache.floor(acknowledged.first_offset)
    if floor is None and acknowledged.first_offset < cache.start_offset:
        floor = cache.floor(cache.start_offset)
    if floor is None:
        raise InvalidRecordState(ErrorCode.INVALID_RECORD_STATE)
    found = cache.beginning_within(floor.first_offset, acknowledged.last_offset)
    end = found[-1].last_offset
    if end < acknowledged.last_offset:
        raise InvalidRecordState(ErrorCode.INVALID_REQUEST)
    return found
