"""The state task on logs that were written on purpose: holes, transactions, damage, restarts, another incarnation."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from drivers.bounded_reading import drain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples.random_records import records as state_records
from servers.real_broker import restart
from servers.workload import Workload, until
from state_topics.filled_topic import fill

from acktrail.config import KafkaConfig
from acktrail.connect.contract import SourceTaskContext
from acktrail.connect.source_batches import SourceBatch
from acktrail.embedded import EmbeddedBroker
from acktrail.errors import ForeignCluster
from acktrail.format.wire.dialects import encode
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.state_source import StateTask
from acktrail.model.records import StateRecord
from acktrail.model.share_partition import STATE_TOPIC

pytestmark = pytest.mark.broker

PARTITIONS = 3


@pytest.fixture(scope="module")
def crafted() -> Iterator[EmbeddedBroker]:
    """A broker whose state topic only this module writes."""
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def topic(crafted: EmbeddedBroker) -> KafkaConfig:
    """An empty state topic."""
    renew(Workload(crafted.config()))
    return crafted.config()


def renew(workload: Workload) -> None:
    """Delete the state topic if it is there, and create it again."""
    topics = lambda: workload.admin.list_topics(timeout=120).topics  # noqa: E731
    if STATE_TOPIC in topics():
        workload.delete_topic(STATE_TOPIC)
        until(lambda: STATE_TOPIC not in topics(), what="deletion")
    workload.create_topic(STATE_TOPIC, PARTITIONS)
    until(lambda: STATE_TOPIC in topics(), what="creation")


def producer(config: KafkaConfig, **properties: object) -> Producer:
    """Brokers let only clients of this name write to an internal topic."""
    return Producer({**to_librdkafka(config), **properties, "client.id": "__admin_client"})


def write(broker: EmbeddedBroker, count: int, partition: int = 0, *, text: bytes = b"junk") -> None:
    fill(broker, ((partition, b"key", b"%s %d" % (text, number)) for number in range(count)))


def started(config: KafkaConfig, name: str = STATE_TOPIC) -> StateTask:
    """A bounded task at the beginning of the log."""
    task = StateTask(config, name, partitions=None if name == STATE_TOPIC else [0])
    task.start(SourceTaskContext())
    return task


def offsets(batches: list[SourceBatch], partition: int = 0) -> list[int]:
    found = [b.rows["state_records"] for b in batches if b.span is not None and b.span.partition == partition]
    return [offset for table in found for offset in table.column("offset").to_pylist()]


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(regular=st.lists(state_records(), min_size=5, max_size=40))
def test_every_kind_of_record_arrives_with_its_bytes(topic: KafkaConfig, regular: list[StateRecord]) -> None:
    """Damaged, foreign, null and regular records: all are rows, and the span counts those that could not be read."""
    renew(Workload(topic))
    damaged: list[tuple[bytes | None, bytes | None]] = [(None, None), (None, b"x"), (b"", b""), (b"\x00\x00", None)]
    pairs = [*damaged, *(encode(record) for record in regular), (b"\x00\x07junk", b"later")]
    sender = producer(topic)
    for key, value in pairs:
        sender.produce(STATE_TOPIC, value, key=key, partition=1)
    assert sender.flush(30) == 0
    batches = drain(started(topic))
    rows = [row for batch in batches for row in batch.rows["state_records"].to_pylist()]
    assert [(row["key"], row["value"]) for row in rows] == pairs
    odd = [row for row in rows if row["decode_status"] != "decoded"]
    assert len(odd) == len(damaged) + 1
    assert sum(batch.span.quarantined for batch in batches if batch.span) == len(odd)
    assert all(row["decode_error"] for row in odd)


def read_all(config: KafkaConfig, topic: str) -> list[int]:
    """The offsets that a bounded reading of partition 0 of another topic gives."""
    return offsets(drain(started(config, topic)))


@pytest.fixture
def ordinary(crafted: EmbeddedBroker) -> str:
    """A topic that takes transactions, which brokers refuse for the state topic."""
    name = f"ordinary-{uuid4().hex[:8]}"
    Workload(crafted.config()).create_topic(name)
    return name


def transactional(config: KafkaConfig) -> Producer:
    sender = producer(config, **{"transactional.id": uuid4().hex})
    sender.init_transactions(30)
    return sender


def test_a_log_that_ends_without_a_record_ends_the_reading(crafted: EmbeddedBroker, ordinary: str) -> None:
    """The markers of transactions take offsets and are no records: a bounded reading ends behind them, aborted records
    are not given, and what lies on both sides of a hole is."""
    config = crafted.config()
    sender = transactional(config)
    for is_kept in (True, False):
        sender.begin_transaction()
        sender.produce(ordinary, b"junk", partition=0)
        sender.flush(30)
        (sender.commit_transaction if is_kept else sender.abort_transaction)(30)
    assert read_all(config, ordinary) == [0]
    Workload(config).produce(ordinary, 1)
    assert read_all(config, ordinary) == [0, 4]


def test_an_open_transaction_does_not_hold_a_bounded_reading(crafted: EmbeddedBroker, ordinary: str) -> None:
    """Read committed ends at the last stable offset; what lies behind comes with the next run."""
    config = crafted.config()
    Workload(config).produce(ordinary, 2)
    sender = transactional(config)
    sender.begin_transaction()
    sender.produce(ordinary, b"junk", partition=0)
    assert sender.flush(30) == 0
    assert read_all(config, ordinary) == [0, 1]
    sender.commit_transaction(30)
    assert read_all(config, ordinary) == [0, 1, 2]


def test_records_after_the_start_belong_to_the_next_run(topic: KafkaConfig, crafted: EmbeddedBroker) -> None:
    """A bounded run ends where the log ended when the task was started, however much is written meanwhile."""
    write(crafted, 5)
    task = started(topic)
    write(crafted, 5)
    assert offsets(drain(task)) == [0, 1, 2, 3, 4]


@pytest.mark.full
def test_a_restart_of_the_broker_loses_and_doubles_nothing(topic: KafkaConfig, crafted: EmbeddedBroker) -> None:
    """A run continues when the broker comes back."""
    count = 60_000
    for partition in range(PARTITIONS):
        write(crafted, count // PARTITIONS, partition)
    task = started(topic)
    batches = [*until(lambda: task.poll(0.2), what="the first batch")]
    restart(crafted)
    batches += drain(task)
    for partition in range(PARTITIONS):
        assert offsets(batches, partition) == list(range(count // PARTITIONS))


@pytest.mark.parametrize("old_records", [0, 100])
def test_another_incarnation_is_never_mixed_in(topic: KafkaConfig, crafted: EmbeddedBroker, old_records: int) -> None:
    """The topic is recreated with more records than the old one had: not one of them is given. From an empty log
    only the topic's id shows it."""
    write(crafted, old_records, text=b"old")
    task = StateTask(topic, bounded=False, partitions=(0,))
    task.start(SourceTaskContext())
    first = until(lambda: old_records == 0 or task.poll(0.2), what="the old records")
    assert old_records == 0 or first[-1].position == old_records
    renew(Workload(crafted.config()))
    write(crafted, 5_000, text=b"new")

    def is_refused() -> bool:
        try:
            batches = task.poll(0.2)
        except ForeignCluster:
            return True
        assert not batches, batches
        return False

    until(is_refused, what="a refusal")
    task.stop()
