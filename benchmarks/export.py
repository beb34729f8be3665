"""`acktrail run export --state-only`: records of 124 bytes, broker to committed Delta table.

Compared with: Kafka's console consumer with `ShareGroupStateMessageFormatter`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_tool import kafka_tool
from measure import Run, median, run
from state_log import state_records
from table import Row

from acktrail_embedded import EmbeddedBroker

TOPIC = "__share_group_state"
PARTITIONS = 4
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"


def make_topic(broker: EmbeddedBroker) -> None:
    """The state topic, empty, before the broker makes it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values():
        future.result()


def fill(broker: EmbeddedBroker, count: int) -> int:
    """Put `count` state-like records into a broker's state topic; the mean record size in bytes.

    A broker takes records for this topic only from a client named like its own admin client.
    """
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "client.id": "__admin_client", "linger.ms": 20,
         "queue.buffering.max.messages": 200_000, "batch.size": 1_000_000}
    )  # fmt: skip
    size = 0
    for partition, key, value in state_records(count, partitions=PARTITIONS):
        size += len(key) + len(value or b"")
        while True:
            try:
                producer.produce(TOPIC, key=key, value=value, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    return size // count


def export(broker: EmbeddedBroker, tables: Path) -> Run:
    """`acktrail run export` of the state topic into new tables, as a whole process."""
    acktrail = Path(sys.executable).with_name("acktrail")
    return run(
        [str(acktrail), "run", "export", "--state-only", "--bootstrap-server", broker.bootstrap_servers,
         "--tables", str(tables)]
    )  # fmt: skip


def console_consumer(broker: EmbeddedBroker, count: int) -> Run:
    """Kafka's console consumer over the same records, as a whole process."""
    command = kafka_tool(
        broker.version,
        CONSOLE_CONSUMER,
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", TOPIC, "--from-beginning"),
        *("--formatter", FORMATTER, "--max-messages", str(count)),
    )
    return run(command)


def compare(broker: EmbeddedBroker, count: int = 2_000_000, rounds: int = 5) -> list[Row]:
    """The table's rows: both in turn, after one round that does not count. First comes a quarter of the records:
    memory must not follow their number."""
    quarter = count // 4
    make_topic(broker)
    fill(broker, quarter)
    with tempfile.TemporaryDirectory() as folder:
        small = export(broker, Path(folder) / "small")
        size = fill(broker, count - quarter)
        pairs = [(export(broker, Path(folder) / str(n)), console_consumer(broker, count)) for n in range(1 + rounds)]
    ours, theirs = median([one for one, _ in pairs[1:]]), median([other for _, other in pairs[1:]])
    return [
        Row(
            what=f"{count:,} records of {size} bytes to a table",
            ours=_pace(ours, count),
            beside=f"console consumer: {_pace(theirs, count)}",
            ratio=ours.ratio(theirs),
        ),
        Row(what="memory", ours=f"{ours.peak_mb:.0f} MB", beside=f"a quarter of the records: {small.peak_mb:.0f} MB"),
    ]


def _pace(measured: Run, count: int) -> str:
    return f"{count / measured.wall_s:,.0f} records/s, {measured.cpu_s:.1f} s CPU"
