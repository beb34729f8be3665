"""A state topic filled by hand on a throw-away broker, read back as a dump, and compared with what was exported: every
offset in exactly one committed row or in a recorded gap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from drivers.whole_topic import records_of

from acktrail.config import TablesConfig
from acktrail.format.wire.raw_record import RawRecord
from acktrail.tables.delta.store import Tables
from acktrail_embedded import EmbeddedBroker

__all__ = ["STATE_TOPIC", "check_nothing_lost_or_doubled", "create_state_topic", "fill", "read_all"]

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


def check_nothing_lost_or_doubled(broker: EmbeddedBroker, tables: TablesConfig) -> int:
    """Compare the tables with the state topic, offset by offset and byte by byte; how many records there are."""
    store = Tables(tables)
    rows = store.read("state_records", columns=["state_partition", "offset", "key", "value"]).to_pylist()
    seen = Counter((row["state_partition"], row["offset"]) for row in rows)
    ranges = store.read("export_ranges").to_pylist()
    for row in ranges:
        if row["gap_first"] is not None:
            seen.update((row["state_partition"], at) for at in range(row["gap_first"], row["gap_last"] + 1))
    stored = {(row["state_partition"], row["offset"]): (row["key"], row["value"]) for row in rows}
    in_kafka = {(r.state_partition, r.offset): (r.key, r.value) for r in read_all(broker)}
    assert {address: pair for address, pair in stored.items() if address in in_kafka} == in_kafka
    assert {address for address, count in seen.items() if count != 1} == set()
    for partition in {number for number, _ in seen}:
        offsets = sorted(at for number, at in seen if number == partition)
        assert offsets == list(range(offsets[-1] + 1))
    assert sum(row["records_read"] for row in ranges) == len(rows)
    return len(rows)
