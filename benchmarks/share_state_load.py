"""Share groups whose state changes as fast as wanted, on a real broker: the share coordinator stores each update as it
would for a share-partition leader."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Self

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from leader_messages import WriteShareGroupStateRequest

from acktrail.config import KafkaConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import NewStartOffset, raise_unless_done
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.model.share_partition import topic_id_bytes

__all__ = ["ShareStateLoad"]

_TOPIC = "day"
_ACKNOWLEDGED = 2


class ShareStateLoad:
    """`groups` share groups on one topic of `partitions` partitions, every share partition initialized at offset 0.

    Use it as a context manager.
    """

    def __init__(self, kafka: KafkaConfig, *, groups: int, partitions: int) -> None:
        self._kafka = kafka
        self._groups = [f"day-{number:04}" for number in range(groups)]
        self._partitions = partitions
        self._position = 0
        self._rounds = 0
        self._topic_id = self._create()
        self._client = BrokerClient(kafka)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    @property
    def share_partitions(self) -> int:
        return len(self._groups) * self._partitions

    def update(self, count: int) -> None:
        """Store `count` updates, taking turns among all share partitions: each acknowledges one record out of order and
        moves the start offset by one."""
        self._produce(2 + count // self.share_partitions)
        left = count
        for group, first in self._turns():
            if left <= 0:
                return
            size = min(left, self._partitions - first)
            self._write(group, range(first, first + size))
            left -= size

    def _turns(self) -> Iterator[tuple[str, int]]:
        """Groups from where the last update ended, for ever; a round over all of them moves the offsets by one."""
        while True:
            group = self._groups[self._position]
            yield group, 0
            self._position += 1
            if self._position == len(self._groups):
                self._position = 0
                self._rounds += 1

    def _write(self, group: str, partitions: range) -> None:
        request = WriteShareGroupStateRequest
        topic = request.WriteStateData
        start = self._rounds
        batch = topic.PartitionData.StateBatch(
            first_offset=start + 1, last_offset=start + 1, delivery_state=_ACKNOWLEDGED, delivery_count=1
        )
        rows = [
            topic.PartitionData(
                partition=index,
                state_epoch=1,
                leader_epoch=0,
                start_offset=start,
                delivery_complete_count=1,
                state_batches=[batch],
            )
            for index in partitions
        ]
        answer = self._client.send(
            request(group_id=group, topics=[topic(topic_id=self._topic_id, partitions=rows)], min_version=1)
        )
        refused = [row for result in answer.results for row in result.partitions if row.error_code]
        if refused:
            raise RuntimeError(f"the share coordinator refused an update: {refused[0]}")

    def _create(self) -> uuid.UUID:
        admin = AdminClient({"bootstrap.servers": self._kafka.bootstrap_servers})
        for future in admin.create_topics([NewTopic(_TOPIC, self._partitions, 1)]).values():
            future.result(30)
        self._produce(2)
        offsets = [NewStartOffset(topic=_TOPIC, partition=index, start_offset=0) for index in range(self._partitions)]
        with ShareGroupAdmin(self._kafka) as share_groups:
            for group in self._groups:
                raise_unless_done(share_groups.alter_offsets(group, offsets), operation="READ")
            (topic,) = share_groups.topics([_TOPIC])
        return uuid.UUID(bytes=topic_id_bytes(topic.topic_id or ""))

    def _produce(self, records: int) -> None:
        """Append `records` records to every partition, so that no start offset lies past the log's end."""
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap_servers, "linger.ms": 50})
        for partition in range(self._partitions):
            for _ in range(records):
                producer.produce(_TOPIC, b"x", partition=partition)
            producer.poll(0)
        producer.flush(60)
