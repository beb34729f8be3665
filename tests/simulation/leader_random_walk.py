"""A share partition at work, step by random step: members, a leader, its coordinator, the user's log.

Every step is also put down as one JSON line with what came of it, so that other leaders can be given the same life.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from jobs.world import batch

from acktrail.format.wire.state_record import encode
from acktrail.model.batches import StateBatch
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.share_coordinator import ShareCoordinator
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch, AcknowledgeType, are_well_formed
from acktrail_simulation.leader.acquisition import AcquiredRecords, AcquireMode, FetchLimits
from acktrail_simulation.leader.group_settings import OffsetReset, ShareGroupSettings
from acktrail_simulation.leader.partition_log import UserPartitionLog
from acktrail_simulation.leader.share_partition_cache import SharePartitionCache
from acktrail_simulation.leader.share_partition_leader import LeaderStatus, SharePartitionLeader
from acktrail_simulation.messages.persister_json import request_fields
from acktrail_simulation.messages.persister_messages import (
    PersisterRequest,
    PersisterResponse,
    StateInitialize,
    batched,
)

__all__ = ["KEY", "LedPartition", "SimulatedLeader", "held"]

KEY: Final = SharePartition(group_id=GroupId("g"), topic_id=TopicId("AQIDBAUGBwgJCgsMDQ4PEA"), partition=0)
MEMBERS: Final = ("m1", "m2", "m3")
LOCK_MS: Final = 100
_FINAL: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.GAP)
_TYPES: Final = (0, 1, 1, 1, 2, 2, 2, 3, 4)
_STEPS: Final = {
    "produce": 10,
    "fetch": 40,
    "acknowledge": 40,
    "time": 12,
    "release": 4,
    "log_start": 2,
    "compact": 3,
    "lead": 3,
    "reset": 1,
    "fail": 2,
}


def _settings_of(source: random.Random) -> ShareGroupSettings:
    """Small limits, so that they are met."""
    return ShareGroupSettings(
        delivery_count_limit=source.choice((2, 3, 5, 5, 6)),
        record_lock_duration_ms=LOCK_MS,
        max_record_locks=source.choice((15, 40, 2_000)),
        offset_reset=OffsetReset.EARLIEST,
        renew_enabled=source.random() < 0.8,
        dead_letter_queue=source.random() < 0.4,
    )


class LedPartition:
    """A share partition with its user's log, its coordinator and a leader."""

    def __init__(self, log: UserPartitionLog, settings: ShareGroupSettings, **coordinator: int) -> None:
        self.clock, self.log, self.settings = SimulatedClock(), log, settings
        self.coordinator = ShareCoordinator(partition_counts={KEY.topic_id: 1}, clock=self.clock, **coordinator)

    def led(self, epoch: int) -> ErrorCode:
        """A new leader takes over; what its load answered."""
        self.leader = SharePartitionLeader(
            KEY,
            leader_epoch=epoch,
            log=self.log,
            persister=self.persist,
            clock=self.clock,
            settings=self.settings,
        )
        return self.leader.load()

    def persist(self, request: PersisterRequest) -> PersisterResponse:
        """What the coordinator answers."""
        return self.coordinator.answer(request)


class SimulatedLeader(LedPartition):
    """What there is, and what happened (`lines`, `told`). `done`: what was acknowledged for good since the group began
    afresh, and answered without error.
    """

    def __init__(
        self, source: random.Random, *, limit: int = 4, without: frozenset[str] = frozenset(), **settings: Any
    ) -> None:
        self.source = source
        self.weights = {kind: weight for kind, weight in _STEPS.items() if kind not in without}
        super().__init__(UserPartitionLog(), replace(_settings_of(source), **settings), updates_per_snapshot=limit)
        self.failing = ErrorCode.NONE
        self.held: list[tuple[str, AcquiredRecords]] = []
        self.delivered: list[AcquiredRecords] = []
        self.done: set[int] = set()
        self.state_epoch = 0
        self.lines: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []
        self.written = 0
        self.initialize(0)
        self.lead()

    @property
    def heading(self) -> dict[str, Any]:
        """What another leader must be told first."""
        return {
            "limit": self.coordinator.memory.updates_per_snapshot,
            "cold_after_ms": self.coordinator.cold_after_ms,
            "topics": {KEY.topic_id: 1},
            "group": KEY.group_id,
            "topic_id": KEY.topic_id,
            "max_record_locks": self.settings.max_record_locks,
            "delivery_count_limit": self.settings.delivery_count_limit,
            "record_lock_duration_ms": self.settings.record_lock_duration_ms,
            "renew_enabled": self.settings.renew_enabled,
            "dead_letter_queue": self.settings.dead_letter_queue,
        }

    def step(self) -> str:
        """Let something happen; what it was."""
        (kind,) = self.source.choices(tuple(self.weights), tuple(self.weights.values()))
        if self.leader.status is not LeaderStatus.ACTIVE:
            kind = "lead"
        steps: dict[str, Callable[[], None]] = {
            "produce": self._produce,
            "fetch": self.fetch,
            "acknowledge": self._acknowledge,
            "time": lambda: self.pass_time(self.source.choice((1, LOCK_MS // 2, LOCK_MS))),
            "release": lambda: self.release(self.source.choice(MEMBERS)),
            "log_start": lambda: self.log.delete_before(self.log.start_offset + self.source.randrange(12)),
            "compact": self._compact,
            "lead": self.lead,
            "reset": lambda: self.initialize(self.source.randrange(self.log.end_offset + 1)),
            "fail": self._fail,
        }
        steps[kind]()
        return kind

    def initialize(self, start_offset: int) -> None:
        """The group begins afresh; the leader there is does not know yet."""
        self.state_epoch += 1
        self.done.clear()
        request = StateInitialize(key=KEY, state_epoch=self.state_epoch, start_offset=start_offset)
        assert self.coordinator.answer(request).error is ErrorCode.NONE
        (call,) = batched((request,))
        self._note({"op": "initialize", "request": request_fields(call)}, with_leader=bool(self.lines))

    def lead(self) -> None:
        """A new leader takes over; what the old one had in memory is gone."""
        epoch = self.coordinator.memory.leader_epochs[KEY] + 1
        self.held.clear()
        error = self.led(epoch)
        self._note({"op": "lead", "leader_epoch": epoch}, error=error.name)

    def fetch(self) -> None:
        """A member asks for records, from where the leader says, as many batches as come."""
        source, leader = self.source, self.leader
        if not leader.can_acquire:
            return
        offset = leader.cache.next_fetch_offset()
        limits = FetchLimits(
            member_id=source.choice(MEMBERS),
            most_records=source.choice((1, 2, 5, 10, 500)),
            batch_size=source.choice((3, 10, 500)),
            now_ms=self.clock.now_ms,
            mode=source.choice(tuple(AcquireMode)),
        )
        fetched = self.log.read(offset, max_bytes=source.choice((100, 200, 300, 1_000)))
        if fetched is None:
            self._follow_log_start(limits)
            return
        if not fetched:
            return
        found = leader.acquire(limits, offset, fetched)
        self.held += [(limits.member_id, acquired) for acquired in found]
        self.delivered += found
        self._note(
            {
                "op": "acquire",
                "member": limits.member_id,
                "mode": int(limits.mode),
                "batch_size": limits.batch_size,
                "most": limits.most_records,
                "fetch_offset": offset,
                "batches": [[batch.base_offset, batch.last_offset] for batch in fetched],
            },
            acquired=[[a.first_offset, a.last_offset, a.delivery_count] for a in found],
        )

    def acknowledge(self, member_id: str, *said: AcknowledgementBatch) -> ErrorCode:
        """A member acknowledges, as a broker lets it."""
        if not said or not are_well_formed(said) or any(map(self._is_unknown, said)):
            return ErrorCode.INVALID_REQUEST
        start = self.leader.cache.start_offset
        error = self.leader.acknowledge(member_id, said)
        if error is ErrorCode.NONE and self.leader.state_epoch == self.state_epoch:
            self.done |= {
                offset
                for part in said
                for offset in range(max(start, part.first_offset), part.last_offset + 1)
                if part.type_at(offset) in _FINAL
            }
        batches = [[batch.first_offset, batch.last_offset, list(batch.types)] for batch in said]
        self._note({"op": "acknowledge", "member": member_id, "batches": batches}, error=error.name)
        return error

    def release(self, member_id: str) -> None:
        """A member's session ends."""
        self.held = [found for found in self.held if found[0] != member_id]
        error = self.leader.release(member_id)
        self._note({"op": "release", "member": member_id}, error=error.name)

    def pass_time(self, milliseconds: int) -> None:
        """Time passes, and locks end."""
        self.clock.advance(milliseconds)
        self.leader.end_locks()
        self._note({"op": "time"})

    def _produce(self) -> None:
        for _ in range(self.source.randrange(1, 4)):
            self.log.append(self.source.choice((1, 3, 8, 12)), timestamp_ms=self.clock.now_ms)

    def _compact(self) -> None:
        if self.log.batches:
            gone = self.source.choice(self.log.batches)
            self.log.compact(range(gone.base_offset, gone.last_offset + 1))

    def _fail(self) -> None:
        self.failing = self.source.choice(
            (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR)
        )
        self._note({"op": "fail", "error": self.failing.name})

    def _acknowledge(self) -> None:
        """Mostly what a member holds, whole or in parts; sometimes what it does not."""
        source = self.source
        if not self.held or source.random() < 0.05:
            first = source.randrange(self.log.end_offset + 3)
            said = self._said(first, first + source.randrange(4))
            self.acknowledge(source.choice(MEMBERS), said)
            return
        member, acquired = self.held.pop(source.randrange(len(self.held)))
        first, last = acquired.first_offset, acquired.last_offset
        kind = source.random()
        if kind < 0.3 and last > first:
            cut = source.randrange(first, last)
            self.held.append((member, AcquiredRecords(first_offset=cut + 1, last_offset=last, delivery_count=0)))
            last = cut
        elif kind < 0.4 and last > first + 1:
            self.acknowledge(member, self._said(first, first), self._said(first + 2, last))
            return
        self.acknowledge(member if source.random() < 0.97 else source.choice(MEMBERS), self._said(first, last))

    def _said(self, first: int, last: int) -> AcknowledgementBatch:
        source = self.source
        if source.random() < 0.6:
            return AcknowledgementBatch(first_offset=first, last_offset=last, types=(source.choice(_TYPES),))
        types = tuple(source.choice(_TYPES) for _ in range(first, last + 1))
        return AcknowledgementBatch(first_offset=first, last_offset=last, types=types)

    def _follow_log_start(self, limits: FetchLimits) -> None:
        """A fetch found that the log begins later. Where Kafka 4.4 goes wrong then, a new leader takes over at once:
        the log start has passed a loaded gap, or a batch that is still held.
        """
        cache = self.leader.cache
        gap_start = cache.active_gap_start
        assert self.leader.fetch(limits, max_bytes=1) == ()
        passed_gap = gap_start is not None and gap_start < cache.start_offset
        at = cache.floor(cache.start_offset)
        if passed_gap or (at is not None and at.last_offset < cache.start_offset):
            self.lead()
        else:
            self._note({"op": "log_start", "offset": self.log.start_offset})

    def _is_unknown(self, said: AcknowledgementBatch) -> bool:
        """Whether nothing is held at the start offset that `said` straddles: Kafka 4.4 fails there."""
        cache = self.leader.cache
        straddles = said.first_offset < cache.start_offset <= said.last_offset
        return straddles and cache.floor(cache.start_offset) is None

    def persist(self, request: PersisterRequest) -> PersisterResponse:
        """What the coordinator answers, or the error of a write that fails."""
        if self.failing is not ErrorCode.NONE and isinstance(request, StateWrite):
            return PersisterResponse(key=request.key, error=self.failing)
        return super().persist(request)

    def _note(self, line: dict[str, Any], *, with_leader: bool = True, **told: Any) -> None:
        entries = self.coordinator.log.entries[self.written :]
        self.written += len(entries)
        told["records"] = [list(encode(entry.record)) for entry in entries]
        if with_leader:
            cache = self.leader.cache
            told["next"] = cache.next_fetch_offset()
            told["can_acquire"] = self.leader.can_acquire
            told["start"], told["end"] = cache.start_offset, cache.end_offset
            told["complete"] = cache.delivery_complete_count
        self.lines.append({"now": self.clock.now_ms, **line})
        self.told.append(told)


def held(cache: SharePartitionCache) -> list[StateBatch]:
    """What a leader has in memory at or above its start offset."""
    return [
        batch(first, last, part.state, part.delivery_count)
        for held in cache.batches
        for first, last, part in held.parts()
        if last >= cache.start_offset
    ]
