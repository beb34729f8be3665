"""The leader of a share partition: what members fetch and acknowledge, and what it asks the share coordinator to write.

A write is answered before anything else happens, so no record is ever in two transitions at once. Transactions are not
modelled: every record may be handed out. (Kafka: ``SharePartition``.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

from acktrail.model.batches import DeliveryState, StateBatch
from acktrail.model.share_partition import SharePartition
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledge import (
    InvalidRecordState,
    StateChange,
    acknowledge,
    expired_locks,
    release,
    time_out,
)
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch
from acktrail_simulation.leader.acquisition import AcquiredRecords, FetchLimits, acquire
from acktrail_simulation.leader.group_settings import OffsetReset, ShareGroupSettings
from acktrail_simulation.leader.in_flight import archived
from acktrail_simulation.leader.partition_log import RecordBatch, UserPartitionLog
from acktrail_simulation.leader.share_partition_cache import SharePartitionCache
from acktrail_simulation.messages.persister_messages import PersisterRequest, PersisterResponse, ReadResponse, StateRead

_FENCED: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
_COORDINATOR_AWAY: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
_PASSED_ON: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class LeaderStatus(StrEnum):
    """Kafka's ``SharePartitionState``, without the moment of loading."""

    EMPTY = "empty"
    ACTIVE = "active"
    FAILED = "failed"
    """The state could not be loaded, or not understood."""
    FENCED = "fenced"
    """A newer leader or a newer group epoch is there; this one is thrown away."""


class SharePartitionLeader:
    """One group's view of one topic partition, at the partition's leader.

    `persister` answers the calls to the share coordinator. `dead_letters` are the batches that went to the dead letter
    queue, in order; the queue itself is not modelled.
    """

    def __init__(
        self,
        key: SharePartition,
        *,
        leader_epoch: int,
        log: UserPartitionLog,
        persister: Callable[[PersisterRequest], PersisterResponse],
        clock: SimulatedClock,
        settings: ShareGroupSettings | None = None,
    ) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.log = log
        self.persister = persister
        self.clock = clock
        self.settings = ShareGroupSettings() if settings is None else settings
        self.status = LeaderStatus.EMPTY
        self.state_epoch = 0
        self.cache = SharePartitionCache(start_offset=0, end_offset=0)
        self.dead_letters: list[StateBatch] = []

    def load(self) -> ErrorCode:
        """Read the state and begin; NONE when the leader is active. Completes records that an earlier leader left
        archiving.

        A start offset that was never written is the group's offset reset; it is not written now either.
        """
        answer = self.persister(StateRead(key=self.key, leader_epoch=self.leader_epoch))
        if not isinstance(answer, ReadResponse):
            self.status = LeaderStatus.FAILED
            return _error_for_member(answer.error)
        self.state_epoch = answer.state_epoch or 0
        start = self._first_start() if answer.start_offset is None else answer.start_offset
        try:
            self.cache = SharePartitionCache.loaded(start, answer.batches)
        except ValueError:
            self.status = LeaderStatus.FAILED
            return ErrorCode.UNKNOWN_SERVER_ERROR
        self.status = LeaderStatus.ACTIVE
        self._bury(tuple(self._archiving()))
        return ErrorCode.NONE

    @property
    def can_acquire(self) -> bool:
        """Whether there is something below the end to hand out again, or room above it."""
        if self.cache.next_fetch_offset() != self.cache.end_offset + 1:
            return True
        return self.cache.in_flight_records < self.settings.max_record_locks

    def fetch(self, limits: FetchLimits, *, max_bytes: int) -> tuple[AcquiredRecords, ...]:
        """Read the log where it is due and acquire what is there. Nothing is written.

        Where the log begins later than the read, the start offset follows it and the member asks again.
        """
        if self.status is not LeaderStatus.ACTIVE or not self.can_acquire:
            return ()
        offset = self.cache.next_fetch_offset()
        fetched = self.log.read(offset, max_bytes=max_bytes)
        if fetched is None:
            self.cache.log_start_moved(self.log.start_offset)
            return ()
        return self.acquire(limits, offset, fetched)

    def acquire(
        self, limits: FetchLimits, fetch_offset: int, fetched: Sequence[RecordBatch]
    ) -> tuple[AcquiredRecords, ...]:
        """Hand out what is available of `fetched`."""
        if self.status is not LeaderStatus.ACTIVE:
            return ()
        return acquire(self.cache, self.settings, limits, fetch_offset, fetched)

    def acknowledge(self, member_id: str, acknowledged: Iterable[AcknowledgementBatch]) -> ErrorCode:
        """Settle what a member acknowledges, all of it or nothing, and write it."""
        try:
            changes = acknowledge(self.cache, self.settings, member_id, tuple(acknowledged), self.clock.now_ms)
        except InvalidRecordState as refused:
            return refused.error
        return self._commit(changes)

    def release(self, member_id: str) -> ErrorCode:
        """Take back what a member holds: its session ended, or it left."""
        return self._commit(release(self.cache, self.settings, member_id))

    def end_locks(self) -> int:
        """Take back what was held too long, one write a lock; how many locks ended. A write that fails changes nothing
        about that: the record is available, and the coordinator learns of it later or never.
        """
        ended = expired_locks(self.cache, self.clock.now_ms)
        for lock in ended:
            changes = time_out(self.cache, self.settings, lock)
            if not changes:
                continue
            self._note_available(changes)
            self._write(change.state_batch for change in changes)
            self.cache.advance()
            self._bury(changes)
        return len(ended)

    def _commit(self, changes: Sequence[StateChange]) -> ErrorCode:
        """Write changes; where that fails they are taken back."""
        if not changes:
            return ErrorCode.NONE
        error = self._write(change.state_batch for change in changes)
        if error is not ErrorCode.NONE:
            for change in reversed(changes):
                change.roll_back()
            return error
        self._note_available(changes)
        self.cache.advance()
        self._bury(changes)
        return ErrorCode.NONE

    def _bury(self, changes: Iterable[StateChange]) -> None:
        """Phase two of the dead letter queue: archiving records are sent to it and archived, also when the write
        fails."""
        for change in changes:
            if change.after.state is not DeliveryState.ARCHIVING:
                continue
            self.dead_letters.append(change.state_batch)
            after = archived(change.after)
            change.batch.put(change.first_offset, after)
            self._write(
                [
                    StateBatch(
                        first_offset=change.first_offset,
                        last_offset=change.last_offset,
                        delivery_state=after.state,
                        delivery_count=after.delivery_count,
                    )
                ]
            )
            self.cache.advance()

    def _archiving(self) -> Iterable[StateChange]:
        for batch in self.cache.batches:
            for first, last, held in batch.parts():
                if held.state is DeliveryState.ARCHIVING:
                    yield StateChange(batch=batch, first_offset=first, last_offset=last, before=held, after=held)

    def _note_available(self, changes: Iterable[StateChange]) -> None:
        if any(change.after.state is DeliveryState.AVAILABLE for change in changes):
            self.cache.looks_for_available = True

    def _write(self, batches: Iterable[StateBatch]) -> ErrorCode:
        """Ask the coordinator; the start offset is the one before this change moves it."""
        answer = self.persister(
            StateWrite(
                key=self.key,
                state_epoch=self.state_epoch,
                leader_epoch=self.leader_epoch,
                start_offset=self.cache.start_offset,
                delivery_complete_count=self.cache.delivery_complete_count,
                batches=tuple(batches),
            )
        )
        if answer.error in _FENCED | _PASSED_ON:
            self.status = LeaderStatus.FENCED
        return _error_for_member(answer.error)

    def _first_start(self) -> int:
        match self.settings.offset_reset:
            case OffsetReset.EARLIEST:
                return self.log.start_offset
            case OffsetReset.BY_DURATION:
                return self.log.offset_since(self.clock.now_ms - self.settings.reset_duration_ms)
            case _:
                return self.log.end_offset


def _error_for_member(error: ErrorCode) -> ErrorCode:
    """The error for the member after an error of the coordinator (``SharePartition.fetchPersisterError``)."""
    if error in _FENCED:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if error in _COORDINATOR_AWAY:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error if error is ErrorCode.NONE or error in _PASSED_ON else ErrorCode.UNKNOWN_SERVER_ERROR
