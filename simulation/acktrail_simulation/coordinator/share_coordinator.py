"""The share coordinator of one state partition: calls in, records and answers out.

A call is checked, turned into at most one record, written, and only then applied to memory by loading that record, as
after a restart. So memory always equals that of a coordinator that starts with the log, except for the highest epochs
and update counts of pruned records. Writes are replicated at once here; there is no queue, no
time-out and no linger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from acktrail.format.wire.primitives import absent_if_none
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import SharePartition, TopicId
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.coordinator_records import (
    cold_snapshots,
    initializing_snapshot,
    reading_record,
    writing_record,
)
from acktrail_simulation.coordinator.coordinator_state import ShareCoordinatorState
from acktrail_simulation.coordinator.release_rules import KAFKA_4_4, CoordinatorRules
from acktrail_simulation.coordinator.request_validation import refusal_of
from acktrail_simulation.coordinator.state_log import CoordinatorLog
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.messages.persister_messages import (
    PersisterRequest,
    PersisterResponse,
    ReadResponse,
    StateDelete,
    StateInitialize,
    StateRead,
    StateSummary,
    SummaryResponse,
    refused,
)

UPDATES_PER_SNAPSHOT: Final = 500
"""``share.coordinator.snapshot.update.records.per.snapshot``"""

COLD_AFTER_MS: Final = 300_000
"""``share.coordinator.cold.partition.snapshot.interval.ms``"""


class ShareCoordinator:
    """Kafka's ``ShareCoordinatorShard`` and its log.

    `partition_counts` is the coordinator's view of topics and may be changed from outside; None: it has none yet.
    `is_loading`: it has not read its log to the end yet, and serves nothing before `load`.
    """

    def __init__(
        self,
        *,
        partition_counts: Mapping[TopicId, int] | None,
        clock: SimulatedClock,
        log: CoordinatorLog | None = None,
        rules: CoordinatorRules = KAFKA_4_4,
        updates_per_snapshot: int = UPDATES_PER_SNAPSHOT,
        cold_after_ms: int = COLD_AFTER_MS,
        is_loading: bool = False,
    ) -> None:
        self.partition_counts = partition_counts
        self.clock = clock
        self.log = CoordinatorLog() if log is None else log
        self.rules = rules
        self.cold_after_ms = cold_after_ms
        self.memory = ShareCoordinatorState(updates_per_snapshot=updates_per_snapshot)
        self.is_loading = True
        if not is_loading:
            self.load()

    def load(self) -> None:
        """Read the log to its end."""
        limit = self.memory.updates_per_snapshot
        self.memory = ShareCoordinatorState.loaded(self.log.placed(), updates_per_snapshot=limit)
        self.is_loading = False

    def answer(self, request: PersisterRequest) -> PersisterResponse:
        """Serve one share partition of a call. A request that is refused writes nothing."""
        if self.is_loading:
            return refused(request.key, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        refusal = refusal_of(self.memory, request, self.rules, self.partition_counts)
        if refusal is not None:
            return refused(request.key, *refusal)
        answer = self._answer(request)
        self._write(self._record(request))
        return answer

    def snapshot_cold(self) -> tuple[ShareSnapshot, ...]:
        """The periodic job that snapshots what had no snapshot for a while; its records are one batch."""
        found = cold_snapshots(
            tuple(self.memory.states.values()), now_ms=self.clock.now_ms, cold_after_ms=self.cold_after_ms
        )
        for record in found:
            self._write(record)
        return found

    def prune(self) -> int:
        """The periodic job that deletes what every live key has a newer snapshot of; how many records went."""
        needed_from = self.memory.needed_from
        return self.log.delete_before(needed_from) if needed_from is not None else 0

    def forget_topics(self, topic_ids: Iterable[TopicId]) -> tuple[Tombstone, ...]:
        """Topics were deleted: a tombstone for each of their keys, in the order of the keys."""
        gone = frozenset(topic_ids)
        found = tuple(Tombstone(key=key) for key in sorted(self.memory.states) if key.topic_id in gone)
        for record in found:
            self._write(record)
        return found

    def restarted(self, *, end_offset: int | None = None, is_loading: bool = False) -> ShareCoordinator:
        """A coordinator that starts with this one's log, or with its part up to `end_offset`."""
        return ShareCoordinator(
            partition_counts=self.partition_counts,
            clock=self.clock,
            log=self.log.cut(self.log.end_offset if end_offset is None else end_offset),
            rules=self.rules,
            updates_per_snapshot=self.memory.updates_per_snapshot,
            cold_after_ms=self.cold_after_ms,
            is_loading=is_loading,
        )

    def _record(self, request: PersisterRequest) -> ShareSnapshot | ShareUpdate | Tombstone | None:
        now_ms = self.clock.now_ms
        match request:
            case StateInitialize():
                return initializing_snapshot(self.memory, request, self.rules, now_ms)
            case StateWrite():
                return writing_record(self.memory, request, self.rules, now_ms)
            case StateRead():
                return reading_record(self.memory, request, self.rules, now_ms)
            case StateDelete():
                return Tombstone(key=request.key) if request.key in self.memory.states else None
            case StateSummary():
                return None
            case _:
                assert_never(request)

    def _answer(self, request: PersisterRequest) -> PersisterResponse:
        if isinstance(request, StateRead):
            state = self.memory.states[request.key]
            return ReadResponse(
                key=request.key,
                state_epoch=state.state_epoch or 0,
                start_offset=state.start_offset,
                batches=state.batches,
            )
        if isinstance(request, StateSummary):
            return self._summary(request.key)
        return PersisterResponse(key=request.key)

    def _summary(self, key: SharePartition) -> SummaryResponse:
        state = self.memory.states.get(key)
        if state is None:
            return SummaryResponse(
                key=key, state_epoch=0, leader_epoch=0, start_offset=None, delivery_complete_count=None
            )
        return SummaryResponse(
            key=key,
            state_epoch=state.state_epoch or 0,
            leader_epoch=absent_if_none(state.leader_epoch),
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )

    def _write(self, record: StateRecord | None) -> None:
        if record is not None:
            self.memory.load(self.log.append(record, timestamp_ms=self.clock.now_ms), record)
