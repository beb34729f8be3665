"""Sees what the share coordinators write, while the workload runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from acktrail.config import KafkaConfig
from acktrail.embedded.workload.demo_cluster import client_properties, to_acktrail_error
from acktrail.embedded.workload.workload_deadline import WorkloadDeadline
from acktrail.errors import InputError
from acktrail.model.records import Tombstone
from acktrail.model.share_partition import STATE_TOPIC, SharePartition
from acktrail.wire.dialects.released import decode

_AT_ONCE: Final = 1000
_WAIT_S: Final = 0.1


class StateObserver:
    """Which share partitions have state, and which had it deleted, by the records written since this was made."""

    def __init__(self, config: KafkaConfig, deadline: WorkloadDeadline) -> None:
        self._deadline = deadline
        self._lock = threading.Lock()
        self._present: set[SharePartition] = set()
        self._deleted: set[SharePartition] = set()
        self._consumer = Consumer(
            {
                **client_properties(config),
                "group.id": "acktrail-demo-workload",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self._assigned = self._assign(from_end=True)

    def has_state(self, share_partitions: Iterable[SharePartition]) -> bool:
        """Whether each of them has state by now."""
        with self._lock:
            self._read()
            return self._present.issuperset(share_partitions)

    def wait_for_state(self, share_partitions: Iterable[SharePartition]) -> None:
        """Until each of them has state. Raises WorkloadUnfinished."""
        wanted = frozenset(share_partitions)
        self._wait(lambda: wanted <= self._present, "share partitions to be initialized")

    def wait_for_deletion(self, share_partitions: Iterable[SharePartition]) -> None:
        """Until the state of each of them was deleted. Raises WorkloadUnfinished."""
        wanted = frozenset(share_partitions)
        self._wait(lambda: wanted <= self._deleted, "share group state to be deleted")

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def _wait(self, condition: Callable[[], bool], waiting_for: str) -> None:
        while True:
            with self._lock:
                if condition():
                    return
                self._read()
            self._deadline.check(waiting_for)

    def _read(self) -> None:
        self._assigned = self._assigned or self._assign(from_end=False)
        for message in self._consumer.consume(_AT_ONCE, timeout=_WAIT_S):
            if message.error() is None:
                self._take(message.key(), message.value())

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        try:
            record = decode(key, value)
        except InputError:
            return  # not this workload's: its own are readable
        deleted = isinstance(record, Tombstone)
        (self._deleted if deleted else self._present).add(record.key)
        (self._present if deleted else self._deleted).discard(record.key)

    def _assign(self, *, from_end: bool) -> bool:
        """Start to read every partition; False while the topic is not there: the first share group makes it."""
        try:
            topic = self._consumer.list_topics(timeout=self._deadline.remaining_s).topics.get(STATE_TOPIC)
            if topic is None or topic.error is not None or not topic.partitions:
                return False
            self._consumer.assign([self._start(index, from_end=from_end) for index in topic.partitions])
        except KafkaException as error:
            raise to_acktrail_error(error, operation="READ", kind="topic", name=STATE_TOPIC) from error
        return True

    def _start(self, partition: int, *, from_end: bool) -> TopicPartition:
        place = TopicPartition(STATE_TOPIC, partition, OFFSET_BEGINNING)
        if from_end:
            place.offset = self._consumer.get_watermark_offsets(place, timeout=self._deadline.remaining_s)[1]
        return place
