"""The whole state topic: a share coordinator for each of its partitions, and who is asked about what."""

from __future__ import annotations

from collections.abc import Iterator

from acktrail.errors import InputError
from acktrail.model.records import RecordAt, StateRecord
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import GroupId, SharePartition, TopicId, state_partition_of, topic_id_bytes
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.release_rules import KAFKA_4_4, CoordinatorRules
from acktrail_simulation.coordinator.share_coordinator import COLD_AFTER_MS, UPDATES_PER_SNAPSHOT, ShareCoordinator
from acktrail_simulation.coordinator.state_log import CoordinatorLog
from acktrail_simulation.messages.persister_messages import Batched, PersisterRequest, PersisterResponse


class ShareCoordinatorService:
    """``__share_group_state`` with the coordinators of all its partitions (Kafka: ``ShareCoordinatorService``)."""

    def __init__(
        self,
        *,
        partitions: int = 50,
        clock: SimulatedClock | None = None,
        rules: CoordinatorRules = KAFKA_4_4,
        updates_per_snapshot: int = UPDATES_PER_SNAPSHOT,
        cold_after_ms: int = COLD_AFTER_MS,
    ) -> None:
        self.clock = SimulatedClock() if clock is None else clock
        self.partition_counts: dict[TopicId, int] = {}
        self.coordinators = tuple(
            ShareCoordinator(
                partition_counts=self.partition_counts,
                clock=self.clock,
                log=CoordinatorLog(state_partition=number),
                rules=rules,
                updates_per_snapshot=updates_per_snapshot,
                cold_after_ms=cold_after_ms,
            )
            for number in range(partitions)
        )

    def create_topic(self, topic_id: TopicId, partitions: int) -> None:
        """A user's topic that the coordinators know from now on; more partitions when it is known."""
        self.partition_counts[topic_id] = partitions

    def coordinator_of(self, key: SharePartition) -> ShareCoordinator:
        """Who keeps `key`'s state (FindCoordinator with key type 2)."""
        return self.coordinators[state_partition_of(key, len(self.coordinators))]

    def answer(self, request: PersisterRequest) -> PersisterResponse:
        """Send `request` to its coordinator."""
        return self.coordinator_of(request.key).answer(request)

    def answer_call(self, call: Batched[PersisterRequest]) -> Batched[PersisterResponse]:
        """Serve a call entry by entry. A share partition that is named twice is served twice and answered once, by what
        became of its last entry; without a group id nothing is done.
        """
        answers: dict[SharePartition, PersisterResponse] = {}
        for request in call.entries if call.group_id else ():
            answers[request.key] = self.answer(request)
        return Batched(group_id=call.group_id, entries=tuple(answers.values()))

    def snapshot_cold(self) -> None:
        """Every coordinator's periodic snapshots."""
        for coordinator in self.coordinators:
            coordinator.snapshot_cold()

    def prune(self) -> int:
        """Every coordinator's periodic pruning; how many records went."""
        return sum(coordinator.prune() for coordinator in self.coordinators)

    def states(self) -> dict[SharePartition, SharePartitionState]:
        """What the coordinators hold in memory."""
        return {key: state for coordinator in self.coordinators for key, state in coordinator.memory.states.items()}

    def placed(self) -> Iterator[RecordAt[StateRecord]]:
        """Every record that is still there, state partition after state partition."""
        for coordinator in self.coordinators:
            yield from coordinator.log.placed()


def coordinator_key(text: str) -> SharePartition:
    """The share partition that a FindCoordinator key ``group:topicId:partition`` names. A group id may hold colons, so
    it is read from the right (Kafka from 4.2.1 on: KAFKA-20183).

    Raises:
        InputError: for a text that is no such key.
    """
    group_id, *rest = text.rsplit(":", 2)
    try:
        topic_id, partition = rest
        topic_id_bytes(TopicId(topic_id))
        if not (partition.isascii() and partition.isdigit()):
            raise ValueError(f"not a partition: {partition!r}")
        return SharePartition(group_id=GroupId(group_id), topic_id=TopicId(topic_id), partition=int(partition))
    except ValueError as error:
        raise InputError(f"no coordinator key: {text!r}", hint="group:topicId:partition") from error
