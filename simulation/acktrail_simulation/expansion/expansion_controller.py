"""The controller of one topic: it expands it and marks partitions for deletion, in the order of KIP-253."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from acktrail.errors import InputError, RetryableError
from acktrail_simulation.expansion.expansion_messages import (
    EpochsOfTopic,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrTopic,
    LeaderEpochsForPartitionsRequest,
    LeaderEpochsForPartitionsResponse,
    LiveLeader,
    PartitionEpoch,
)
from acktrail_simulation.expansion.znodes import EpochsBelow, PartitionZnode, TopicZnode

_VERSION = 2


@dataclass(slots=True, kw_only=True)
class PartitionChange:
    """One change of the count by which producers choose. `epochs`: of each partition right after it; records with an
    older one were produced before. The document has this only as maps of new and of deleted partitions."""

    old_count: int
    new_count: int
    epochs: dict[int, int]


@dataclass(slots=True, kw_only=True)
class ExpansionController:
    """Partition p is led by broker p modulo `broker_count`.

    A change has three steps: the topic's znode says the new count; each partition that is there gets a higher leader
    epoch, and its leader is sent that and the count; when all have answered, new partitions get their znodes and are
    announced. `outbox`: requests that were not delivered yet, with their brokers; it is delivered in any order.
    """

    topic: str
    broker_count: int
    znode: TopicZnode = field(init=False)
    partitions: dict[int, PartitionZnode] = field(default_factory=dict)
    leader_epochs: dict[int, int] = field(default_factory=dict)
    changes: list[PartitionChange] = field(default_factory=list)
    outbox: list[tuple[int, LeaderAndIsrRequest]] = field(default_factory=list)
    _to_create: range = range(0)

    def __post_init__(self) -> None:
        self.znode = TopicZnode(version=_VERSION, partitions={}, undeleted_partition_count=0)

    @property
    def marked(self) -> list[int]:
        """The partitions that are marked for deletion and still there."""
        count = self.znode.undeleted_partition_count
        if len(self.znode.partitions) == count:
            return []
        return [number for number in self.znode.partitions if number >= count]

    @property
    def is_busy(self) -> bool:
        """Whether a change has requests that were not answered yet."""
        return bool(self.outbox)

    def expand(self, new_count: int) -> None:
        """Begin to expand the topic to `new_count` partitions; the first time creates it.

        Raises:
            RetryableError: another change has not ended.
            InputError: a partition is marked for deletion.
        """
        old_count = self.znode.undeleted_partition_count
        self._is_free()
        if self.marked:
            raise InputError(
                f"{self.topic} has partitions that are marked for deletion: {self.marked[0]} and above",
                hint="expand it when they are gone",
            )
        added = {number: (number % self.broker_count,) for number in range(old_count, new_count)}
        self.znode = replace(
            self.znode, partitions={**self.znode.partitions, **added}, undeleted_partition_count=new_count
        )
        self._to_create = range(old_count, new_count)
        self._bump(range(old_count))
        self.changes.append(PartitionChange(old_count=old_count, new_count=new_count, epochs=dict(self.leader_epochs)))
        self._continue()

    def mark_for_deletion(self, new_count: int) -> None:
        """Begin to mark the partitions from `new_count` on: producers no longer choose them.

        Raises:
            RetryableError: another change has not ended.
        """
        old_count = self.znode.undeleted_partition_count
        self._is_free()
        self.znode = replace(self.znode, undeleted_partition_count=new_count)
        before = dict(self.leader_epochs)
        for number in range(new_count, old_count):
            self.partitions[number] = replace(
                self.partitions[number],
                partition_epoch=self.partitions[number].partition_epoch + 1,
                leader_epoch_before_deletion=EpochsBelow(before, number),
            )
        self._bump(self.leader_epochs)
        self.changes.append(PartitionChange(old_count=old_count, new_count=new_count, epochs=dict(self.leader_epochs)))

    def remove(self, partition: int) -> None:
        """A marked partition that is empty is gone.

        Raises:
            RetryableError: another change has not ended.
            InputError: it is not marked.
        """
        self._is_free()
        if partition not in self.marked:
            raise InputError(f"partition {partition} of {self.topic} is not marked for deletion")
        left = {number: replicas for number, replicas in self.znode.partitions.items() if number != partition}
        self.znode = replace(self.znode, partitions=left)
        del self.partitions[partition], self.leader_epochs[partition]
        for change in self.changes:
            change.epochs.pop(partition, None)

    def elect(self, partition: int) -> None:
        """A partition gets a leader epoch for another reason than a change.

        Raises:
            RetryableError: a change has not ended.
        """
        self._is_free()
        self._bump([partition])

    def answered(self) -> None:
        """The newest delivery from `outbox` was answered; after the last one of step two comes step three."""
        self._continue()

    def leader_epochs_for(self, request: LeaderEpochsForPartitionsRequest) -> LeaderEpochsForPartitionsResponse:
        """The maps of the partitions that are asked for, of their creation and of their deletion."""
        empty = PartitionZnode(partition=0, version=_VERSION, partition_epoch=0)
        found = [
            (topic.topic, found)
            for topic in request.topics
            for number in topic.partitions
            for znode in [self.partitions.get(number, empty)]
            for found in (znode.leader_epoch_after_creation, znode.leader_epoch_before_deletion)
        ]
        return LeaderEpochsForPartitionsResponse(
            throttle_time_ms=0,
            topics=tuple(
                EpochsOfTopic(
                    topic=topic,
                    partitions=tuple(PartitionEpoch(partition=q, leader_epoch=epoch) for q, epoch in epochs.items()),
                )
                for topic, epochs in found
            ),
        )

    def _is_free(self) -> None:
        if self.is_busy:
            raise RetryableError(f"a change of {self.topic} waits for {len(self.outbox)} answers")

    def _bump(self, partitions: Iterable[int]) -> None:
        numbers = list(partitions)
        for number in numbers:
            self.leader_epochs[number] += 1
        self._announce(numbers, is_new=False)

    def _continue(self) -> None:
        if self.outbox or not self._to_create:
            return
        created, self._to_create = self._to_create, range(0)
        # One table for all maps: 10,000 partitions with a map each of their own would be 50 million entries.
        # A topic's first partitions have empty ones: all entries would be 0, which nothing waits for.
        epochs = dict(self.leader_epochs) | dict.fromkeys(created, 0) if self.leader_epochs else {}
        for number in created:
            self.leader_epochs[number] = 0
            self.partitions[number] = PartitionZnode(
                partition=number,
                version=_VERSION,
                partition_epoch=0,
                leader_epoch_after_creation=EpochsBelow(epochs, number),
            )
        self.changes[-1].epochs.update(dict.fromkeys(created, 0))
        self._announce(created, is_new=True)

    def _announce(self, partitions: Iterable[int], *, is_new: bool) -> None:
        by_broker: dict[int, list[int]] = {}
        for number in partitions:
            by_broker.setdefault(number % self.broker_count, []).append(number)
        leaders = tuple(LiveLeader(id=each, host=f"broker-{each}", port=9092) for each in sorted(by_broker))
        self.outbox += [
            (
                broker,
                LeaderAndIsrRequest(
                    controller_id=0,
                    controller_epoch=1,
                    topic_states=(
                        LeaderAndIsrTopic(
                            topic=self.topic,
                            partition_number=self.znode.undeleted_partition_count,
                            partition_states=tuple(self._state(number, is_new=is_new) for number in numbers),
                        ),
                    ),
                    live_leaders=leaders,
                ),
            )
            for broker, numbers in by_broker.items()
        ]

    def _state(self, number: int, *, is_new: bool) -> LeaderAndIsrPartition:
        broker = number % self.broker_count
        return LeaderAndIsrPartition(
            partition=number,
            controller_epoch=1,
            leader=broker,
            leader_epoch=self.leader_epochs[number],
            isr=(broker,),
            zk_version=0,
            replicas=(broker,),
            is_new_replica=is_new,
        )
