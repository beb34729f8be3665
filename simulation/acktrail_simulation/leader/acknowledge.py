"""How acquired records are settled: acknowledged, given back, timed out (``SharePartition``).

Each function changes the cache at once and returns the changes, so that the leader can write them and, where that
fails, take them back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from acktrail.model.delivery import DeliveryState, StateBatch
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch, AcknowledgeType
from acktrail_simulation.leader.group_settings import ShareGroupSettings
from acktrail_simulation.leader.in_flight import InFlight, InFlightBatch, settled
from acktrail_simulation.leader.share_partition_cache import SharePartitionCache

__all__ = ["InvalidRecordState", "RecordLock", "StateChange", "acknowledge", "locks_ended", "release", "time_out"]

_STATES: Final = {
    AcknowledgeType.GAP: DeliveryState.ARCHIVED,
    AcknowledgeType.ACCEPT: DeliveryState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: DeliveryState.AVAILABLE,
    AcknowledgeType.REJECT: DeliveryState.ARCHIVED,
}


class InvalidRecordState(Exception):
    """An acknowledgement that the state of the records does not allow. `error` is what the member is told."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """A part of a batch in its new state, and what it was before."""

    batch: InFlightBatch
    first_offset: int
    last_offset: int
    before: InFlight
    after: InFlight

    @property
    def state_batch(self) -> StateBatch:
        """As it is written."""
        return StateBatch(
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            delivery_state=self.after.state,
            delivery_count=self.after.delivery_count,
        )

    def take_back(self) -> None:
        """The part as it was, lock included."""
        self.batch.put(self.first_offset, self.before)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class RecordLock:
    """A member's hold on a batch, or on one offset of a split one."""

    expires_ms: int
    first_offset: int
    last_offset: int


@dataclass(slots=True, kw_only=True)
class _Acknowledging:
    """One member's acknowledgements under way; `changes` so far."""

    cache: SharePartitionCache
    settings: ShareGroupSettings
    member_id: str
    now_ms: int
    changes: list[StateChange]

    def take(self, said: AcknowledgementBatch) -> None:
        for batch in _batches_for(self.cache, said):
            if batch.last_offset < self.cache.start_offset:
                continue
            if batch.by_offset is None:
                self._check_whole(batch, said)
            first = max(said.first_offset, self.cache.start_offset)
            for begin, end, held in tuple(batch.parts(first, said.last_offset)):
                if held.state is not DeliveryState.ACQUIRED or held.member_id != self.member_id:
                    raise InvalidRecordState(ErrorCode.INVALID_RECORD_STATE)
                self._settle(batch, begin, end, held, said.type_at(begin))

    def _check_whole(self, batch: InFlightBatch, said: AcknowledgementBatch) -> None:
        """A batch that is alike so far: the member's, and split where it will differ from now on."""
        held = batch.held_at(batch.first_offset)
        if held.member_id != self.member_id or held.state is not DeliveryState.ACQUIRED:
            raise InvalidRecordState(ErrorCode.INVALID_RECORD_STATE)
        covered = batch.lies_within(said.first_offset, said.last_offset)
        if not covered or len(said.types) > 1 or batch.is_cut_by(self.cache.start_offset):
            batch.split()

    def _settle(self, batch: InFlightBatch, first: int, last: int, held: InFlight, kind: AcknowledgeType) -> None:
        if kind is AcknowledgeType.RENEW:
            if not self.settings.renew_enabled:
                raise InvalidRecordState(ErrorCode.INVALID_RECORD_STATE)
            batch.put(first, replace(held, lock_expires_ms=self.now_ms + self.settings.record_lock_duration_ms))
            return
        rejected = kind is AcknowledgeType.REJECT and self.settings.dead_letter_queue
        to = DeliveryState.ARCHIVING if rejected else _STATES[kind]
        self.changes.append(_changed(batch, first, last, held, settled(held, to, self.settings)))


def acknowledge(
    cache: SharePartitionCache,
    settings: ShareGroupSettings,
    member_id: str,
    said: tuple[AcknowledgementBatch, ...],
    now_ms: int,
) -> tuple[StateChange, ...]:
    """Settle what a member acknowledges; below the start offset nothing happens and nothing is wrong.

    Raises:
        Refused: when one offset cannot be acknowledged so: none then is, but locks renewed before it stay renewed.
            INVALID_RECORD_STATE: not acquired, or by another member; INVALID_REQUEST: never acquired, an unknown type.
    """
    under_way = _Acknowledging(cache=cache, settings=settings, member_id=member_id, now_ms=now_ms, changes=[])
    try:
        for batch in said:
            if any(kind not in set(AcknowledgeType) for kind in batch.types):
                raise InvalidRecordState(ErrorCode.INVALID_REQUEST)
            if batch.last_offset >= cache.start_offset:
                under_way.take(batch)
    except InvalidRecordState:
        for change in reversed(under_way.changes):
            change.take_back()
        raise
    return tuple(under_way.changes)


def release(cache: SharePartitionCache, settings: ShareGroupSettings, member_id: str) -> tuple[StateChange, ...]:
    """Give back all that a member holds: its session is over. What the log start has passed is archived."""
    changes: list[StateChange] = []
    for batch in cache.batches:
        if batch.by_offset is None and batch.is_cut_by(cache.start_offset) and _is_held_by(batch, member_id):
            batch.split()
        changes += _given_back(cache, settings, batch, member_id=member_id)
    return tuple(changes)


def locks_ended(cache: SharePartitionCache, now_ms: int) -> tuple[RecordLock, ...]:
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
    """Give back what `lock` held, whoever held it."""
    floor = cache.floor(lock.first_offset)
    if floor is None:
        return ()
    if floor.by_offset is None and floor.is_cut_by(cache.start_offset):
        floor.split()
    return tuple(_given_back(cache, settings, floor, first=lock.first_offset, last=lock.last_offset))


def _given_back(
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
        yield _changed(batch, begin, end, held, settled(held, to, settings))


def _changed(batch: InFlightBatch, first: int, last: int, before: InFlight, after: InFlight) -> StateChange:
    batch.put(first, after)
    return StateChange(batch=batch, first_offset=first, last_offset=last, before=before, after=after)


def _is_held_by(batch: InFlightBatch, member_id: str) -> bool:
    held = batch.held_at(batch.first_offset)
    return held.state is DeliveryState.ACQUIRED and held.member_id == member_id


def _batches_for(cache: SharePartitionCache, said: AcknowledgementBatch) -> list[InFlightBatch]:
    """The cached batches that `said` speaks of.

    Raises:
        Refused: when they do not cover its ends.
    """
    floor = cache.floor(said.first_offset)
    if floor is None and said.first_offset < cache.start_offset:
        floor = cache.floor(cache.start_offset)
    if floor is None:
        raise InvalidRecordState(ErrorCode.INVALID_RECORD_STATE)
    found = cache.beginning_within(floor.first_offset, said.last_offset)
    end = found[-1].last_offset
    if end < said.last_offset:
        raise InvalidRecordState(ErrorCode.INVALID_REQUEST)
    return found
