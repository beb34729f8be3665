"""Log segments copied from a running broker's disk, against what an ordinary consumer gets."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from drivers.whole_topic import records_of

from acktrail.embedded import EmbeddedBroker
from acktrail.format.wire.raw_record import RawRecord
from acktrail.offline.copied_files import read_files
from acktrail.offline.log_segment import ReadReport, SegmentDamage

pytestmark = pytest.mark.broker


def copied_segments(broker: EmbeddedBroker, to: Path, pattern: str) -> list[Path]:
    """The segments of the partitions whose folder matches, copied while the broker runs."""
    found = []
    for folder in sorted((broker.folder / "data").glob(pattern)):
        (to / folder.name).mkdir()
        found += [Path(shutil.copy(file, to / folder.name)) for file in sorted(folder.glob("*.log"))]
    assert found
    return found


CODECS = ["gzip", "snappy", "lz4", "zstd", "uncompressed"]


def consumed(broker: EmbeddedBroker, topic: str) -> list[RawRecord]:
    """Every committed record, as a consumer gets it."""
    return [*records_of({"bootstrap.servers": broker.bootstrap_servers}, topic)]


def produce(broker: EmbeddedBroker, topic: str, count: int, **properties: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50, **_dotted(properties)})
    for number in range(count):
        producer.produce(
            topic,
            key=None if number % 7 == 0 else b"key %d" % number,
            value=b"value " * (number % 40),
            headers={"h": "1"},
        )
    assert producer.flush(30) == 0


def _dotted(properties: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in properties.items()}


@pytest.fixture(scope="module")
def topics(broker: EmbeddedBroker) -> dict[str, str]:
    """By codec, a topic whose log the broker itself packs with it; and ``producer``: as the client packed it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    found = {codec: f"packed-{codec}-{uuid4().hex[:8]}" for codec in [*CODECS, "producer"]}
    for codec, name in found.items():
        config = {
            "compression.type": codec,
            "message.timestamp.type": "LogAppendTime" if codec == "lz4" else "CreateTime",
        }
        admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(30)
    for codec in CODECS:
        produce(broker, found[codec], 200)
    for codec in [*CODECS[:-1], "none"]:
        produce(broker, found["producer"], 50, compression_type=codec)
    return found


@pytest.mark.parametrize("codec", [*CODECS, "producer"])
def test_codecs_of_a_real_broker(codec: str, broker: EmbeddedBroker, topics: dict[str, str], tmp_path: Path) -> None:
    """Batches that Kafka's own codecs packed, and those that librdkafka packed, give what the consumer gets, times of
    creation or of the append."""
    (file,) = copied_segments(broker, tmp_path, f"{topics[codec]}-0")
    damage: list[SegmentDamage] = []

    records = list(read_files([file], ReadReport(state_partition=0, on_damage=damage.append)))

    assert damage == []
    assert records == consumed(broker, topics[codec])
    assert len(records) == (250 if codec == "producer" else 200)


def test_transactions_of_a_real_broker(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Of committed, aborted and open transactions the segment gives what a consumer of committed records gets, and an
    address for records without an outcome yet."""
    topic = f"transactions-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producers = [
        Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"{topic}-{number}"})
        for number in range(2)
    ]
    for producer in producers:
        producer.init_transactions(30)
    for number in range(6):
        producer = producers[0]
        producer.begin_transaction()
        producer.produce(topic, value=b"%d" % number)
        producer.flush(30)
        producer.abort_transaction(30) if number % 2 else producer.commit_transaction(30)
    producers[1].begin_transaction()
    opened: list[int] = []
    producers[1].produce(topic, value=b"open", on_delivery=lambda _, message: opened.append(message.offset()))
    producers[1].flush(30)
    (file,) = copied_segments(broker, tmp_path, f"{topic}-0")
    damage: list[SegmentDamage] = []
    reading = ReadReport(state_partition=0, on_damage=damage.append)

    records = list(read_files([file], reading))
    producers[1].abort_transaction(30)

    assert [r.value for r in records] == [b"0", b"2", b"4"]
    assert (reading.control_records, reading.aborted_records) == (6, 3)
    assert [(d.status, d.first_offset) for d in damage] == [("undecided_transaction", *opened)]
    assert records == consumed(broker, topic)
