"""A state topic filled by hand on a throw-away broker, and read back as a dump."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from samples.dump_lines import dump_line

from acktrail.embedded import EmbeddedBroker
from acktrail.format.wire.raw_record import RawRecord

__all__ = ["STATE_TOPIC", "create_state_topic", "fill", "read_all", "write_dump"]

STATE_TOPIC: Final = "__share_group_state"
_NEW_LEADER: Final = (
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


def create_state_topic(broker: EmbeddedBroker, partitions: int) -> None:
    """The state topic, empty, before the broker makes it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(STATE_TOPIC, partitions, 1)]).values():
        future.result(30)


def fill(broker: EmbeddedBroker, records: Iterable[tuple[int, bytes | None, bytes | None]]) -> int:
    """Append (state partition, key, value); how many. The broker takes them from its own admin client's name only."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "__admin_client", "linger.ms": 20})
    count = 0
    for partition, key, value in records:
        while True:
            try:
                producer.produce(STATE_TOPIC, key=key, value=value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    assert producer.flush(60) == 0
    return count


def read_all(broker: EmbeddedBroker) -> list[RawRecord]:
    """Every record of the state topic as an ordinary consumer gets it, up to the ends seen at the start."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader-of-everything",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    try:
        partitions = consumer.list_topics(STATE_TOPIC, 30).topics[STATE_TOPIC].partitions
        left = {}
        for partition in partitions:
            low, high = _log_bounds(consumer, partition)
            if high > low:
                left[partition] = high
        consumer.assign([TopicPartition(STATE_TOPIC, p, 0) for p in left])
        found = []
        while left:
            for message in consumer.consume(10_000, 0.1):  # a longer time is always used up at the end
                assert message.error() is None, message.error()
                found.append(
                    RawRecord(
                        state_partition=message.partition(),
                        offset=message.offset(),
                        timestamp_ms=message.timestamp()[1],
                        key=message.key(),
                        value=message.value(),
                    )
                )
                if message.offset() + 1 >= left.get(message.partition(), 0):
                    left.pop(message.partition(), None)
        return sorted(found, key=lambda r: (r.state_partition, r.offset))
    finally:
        consumer.close()


def _log_bounds(consumer: Consumer, partition: int) -> tuple[int, int]:
    """Asked again while the leader is one that metadata knows and that does not know of it yet."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return consumer.get_watermark_offsets(TopicPartition(STATE_TOPIC, partition), 30)
        except KafkaException as error:
            if error.args[0].code() not in _NEW_LEADER or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def write_dump(records: Iterable[RawRecord], file: Path) -> Path:
    """The records as a dump."""
    file.write_text("".join(dump_line(record) + "\n" for record in records), encoding="utf-8")
    return file
