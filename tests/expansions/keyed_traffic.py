"""Keyed producers that never stop, and groups that read some partitions later than others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.config import KafkaConfig

KEYS: Final = tuple(b"key-%02d" % number for number in range(24))
REFRESH_MS: Final = 400
"""After this time a producer knows the count."""
_PAUSE_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Read:
    """One record as a group got it; `number` counts the records of its key."""

    partition: int
    offset: int
    key: bytes
    number: int

    @classmethod
    def of(cls, message: Message) -> Read:
        assert message.error() is None, message.error()
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert value is not None
        return cls(message.partition() or 0, message.offset() or 0, key, int(value))


def overtaken(reads: list[Read]) -> list[Read]:
    """The records that came after a later one of their key."""
    newest: dict[bytes, int] = {}
    found = []
    for read in reads:
        if read.number < newest.get(read.key, -1):
            found.append(read)
        newest[read.key] = max(read.number, newest.get(read.key, -1))
    return found


class KeyedProducer:
    """Numbers the records of each key, one key after the other, in a thread of its own."""

    def __init__(self, config: KafkaConfig, topic: str, partitioner: str) -> None:
        own = {"partitioner": partitioner, "topic.metadata.refresh.interval.ms": REFRESH_MS, "linger.ms": 5}
        self._producer = Producer({**to_librdkafka(config), "log_level": 3, **own})
        self._topic, self._stop = topic, threading.Event()
        self.rounds = 0

    def run(self) -> None:
        while not self._stop.is_set():
            for key in KEYS:
                self._producer.produce(self._topic, b"%d" % self.rounds, key=key)
            self._producer.poll(0)
            self.rounds += 1
            self._stop.wait(_PAUSE_S * len(KEYS))
        assert self._producer.flush(60) == 0

    @contextmanager
    def running(self) -> Iterator[KeyedProducer]:
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.stop()
            thread.join(60)

    def stop(self) -> None:
        self._stop.set()


class CommittingGroup:
    """A member of a consumer or classic group that commits what it read. It leaves out the partitions that `waits`
    names, until it names them no more."""

    def __init__(
        self, config: KafkaConfig, group: str, protocol: str, topic: str, waits: Callable[[int], bool]
    ) -> None:
        own: dict[str, Any] = {
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
        }
        if protocol == "classic":
            own |= {"partition.assignment.strategy": "cooperative-sticky"}
        self.waits, self.reads, self._topic = waits, list[Read](), topic
        self._uncommitted: dict[int, int] = {}
        self._consumer = Consumer({**to_librdkafka(config), "log_level": 3, **own})
        self._consumer.subscribe([topic], on_assign=self._assign)

    def step(self) -> bool:
        """Read what is there, and commit it; whether there was some."""
        self._rest()
        found = [Read.of(message) for message in self._consumer.consume(500, 0.05)]
        self.reads += found
        self._uncommitted |= {read.partition: read.offset + 1 for read in found}
        if self._uncommitted:
            self._commit()
        return bool(found)

    def _commit(self) -> None:
        """What a rebalance refuses is committed after it."""
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in self._uncommitted.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.REBALANCE_IN_PROGRESS:
                raise
        else:
            self._uncommitted = {}

    def close(self) -> None:
        self._consumer.close()

    def has_read(self, partition: int, offset: int = 0) -> bool:
        """Whether it has read `partition` up to `offset`."""
        return any(read.partition == partition and read.offset + 1 >= offset for read in reversed(self.reads))

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        self._rest()

    def _rest(self) -> None:
        assigned = self._consumer.assignment()
        resting = [each for each in assigned if self.waits(each.partition)]
        if resting:
            self._consumer.pause(resting)
        if len(resting) < len(assigned):
            self._consumer.resume([each for each in assigned if each not in resting])
