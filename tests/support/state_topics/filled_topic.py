"""A state topic filled by hand on a throw-away broker, and read back as a dump."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from drivers.whole_topic import records_of

from acktrail.embedded import EmbeddedBroker
from acktrail.format.wire.raw_record import RawRecord

__all__ = ["STATE_TOPIC", "create_state_topic", "fill", "read_all"]

STATE_TOPIC: Final = "__share_group_state"


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
    """Every record of the state topic as an ordinary consumer gets it."""
    found = records_of({"bootstrap.servers": broker.bootstrap_servers}, STATE_TOPIC)
    return sorted(found, key=lambda r: (r.state_partition, r.offset))
