"""Sees what the share coordinators write, while the workload runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from acktrail.config import KafkaConfig
from acktrail.embedded.workload.demo_cluster import WorkloadDeadline, client_properties, to_acktrail_error
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
        own = {"group.id": "acktrail-demo-workload", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**client_properties(config), **own})
        self._assigned = self._assign(from_end=True)

    def has_state(self, share_partitions: Iterable[SharePartition]) -> bool:
        """Whether each of them has state by now."""
        with self._lock:
            self._read()
            return self._present.issuperset(share_partitions)

    def wait(self, share_partitions: Iterable[SharePartition], *, deleted: bool = False) -> None:
        """Until each of them has state, or had it `deleted`. Raises WorkloadUnfinished."""
        wanted = frozenset(share_partitions)
        while True:
            with self._lock:
                if wanted <= (self._deleted if deleted else self._present):
                    return
                self._read()
            self._deadline.check("share group state to be " + ("deleted" if deleted else "initialized"))

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()

    def _read(self) -> None:
        self._assigned = self._assigned or self._assign(from_end=False)
        for message in self._consumer.consume(_AT_ONCE, timeout=_WAIT_S):
            # What cannot be read is not this workload's.
            with contextlib.suppress(InputError):
                record = None if message.error() else decode(message.key(), message.value())
                if record is not None:
                    deleted = isinstance(record, Tombstone)
                    (self._deleted if deleted else self._present).add(record.key)
                    (self._present if deleted else self._deleted).discard(record.key)

    def _assign(self, *, from_end: bool) -> bool:
        """Start to read every partition; False while the topic is not there: the first share group makes it."""
        try:
            topic = self._consumer.list_topics(timeout=self._deadline.remaining_s).topics.get(STATE_TOPIC)
            if topic is None or topic.error is not None or not topic.partitions:
                return False
            places = [TopicPartition(STATE_TOPIC, index, OFFSET_BEGINNING) for index in topic.partitions]
            for place in places if from_end else ():
                place.offset = self._consumer.get_watermark_offsets(place, timeout=self._deadline.remaining_s)[1]
            self._consumer.assign(places)
        except KafkaException as error:
            raise to_acktrail_error(error, operation="READ", kind="topic", name=STATE_TOPIC) from error
        return True
