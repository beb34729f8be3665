"""Looks at a real broker: they have what direct questions answer, and the connector takes them on a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.workload import Workload, until
from confluent_kafka import Consumer, TopicPartition
from drivers.whole_topic import messages_of
from expansion.support.committed import commit

from acktrail.broker.admin import ShareGroupAdmin, client_of
from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.broker.descriptions import TopicPartition as Place
from acktrail.config import TablesConfig
from acktrail.connect.contract import SinkTaskContext, SourceTaskContext
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_connector import DeltaSinkConnector
from acktrail.wire.state_key import decode_key
from acktrail_expansion.looks.ledger_connector import PartitionLedgerSource, PartitionLedgerTask
from acktrail_expansion.looks.partition_listing import list_partitions
from acktrail_expansion.looks.stored_look import take_look

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedBroker]:
    """A broker of its own: looks see every group of a cluster."""
    with EmbeddedBroker("4.4.0") as broker:
        yield broker


@pytest.fixture(scope="module")
def workload(running: EmbeddedBroker) -> Workload:
    return Workload(running.config())


def test_a_look_has_what_the_brokers_answer(running: EmbeddedBroker, workload: Workload, tmp_path: Path) -> None:
    """Counts, ends, positions and lag are those of direct questions; a share group is read twice, with the place of its
    state record; a look is stored once."""
    kafka, tables = running.config(), TablesConfig(uri=str(tmp_path))
    workload.create_topic("looked", 3)
    workload.produce("looked", 7, partition=1)
    workload.acknowledge("look-share", "looked", 4)
    commit(kafka, "look-classic", "looked", 0, 5)
    member = Consumer({**to_librdkafka(kafka), "group.id": "look-consumer", "group.protocol": "consumer"})
    member.subscribe(["looked"])
    until(lambda: member.poll(0.2) is None and len(member.assignment()) == 3, what="the assignment")
    member.commit(offsets=[TopicPartition("looked", 1, 3)], asynchronous=False)
    member.close()
    with ShareGroupAdmin(kafka) as admin:
        look = take_look(admin, tables, topics=["looked"])
        take_look(admin, tables, topics=["looked"], run_id=look.run_id)
        asked = admin.list_offsets([Place(topic="looked", partition=number) for number in range(3)])
        (direct,) = admin.describe_offsets("look-share", {"looked": [1]})
        whole = list_partitions(client_of(admin), ["looked"])

    assert (look.topics, look.partitions, look.topics_straddling, look.groups) == (1, 3, 0, 3)
    rows = sorted(Tables(tables).rows("partition_observations"), key=lambda row: row["partition"])
    assert [row["log_end_offset"] for row in rows] == [each.high_watermark for each in asked] == [0, 7, 0]
    assert [row["leader_epoch"] for row in rows] == [each.leader_epoch for each in whole[0].partitions]
    assert {(row["consistency"], row["partition_count"], row["error_code"]) for row in rows} == {("consistent", 3, 0)}

    positions = list(Tables(tables).rows("group_positions"))
    share = [row for row in positions if (row["group_id"], row["partition"]) == ("look-share", 1)]
    assert [(row["position"], row["lag"]) for row in share] == [(direct.start_offset, direct.lag)] * 2 == [(4, 3)] * 2
    assert len({row["observed_at"] for row in share}) == 2
    homes = {
        (message.partition(), message.offset())
        for message in messages_of(to_librdkafka(kafka), STATE_TOPIC)
        if (key := decode_key(message.key())[1]).group_id == "look-share" and key.partition == 1
    }
    (home,) = {partition for partition, _ in homes}
    assert {row["state_partition"] for row in share} == {home}
    assert min(row["state_end_offset"] for row in share) > max(offset for _, offset in homes)
    others = {(row["group_id"], row["group_type"], row["partition"], row["position"]) for row in positions}
    assert {("look-classic", "classic", 1, 5), ("look-consumer", "consumer", 1, 3)} <= others
    assert {row["state_partition"] for row in positions if row["group_type"] != "share"} == {None}


def test_the_connector_looks_on_a_schedule(running: EmbeddedBroker, workload: Workload, tmp_path: Path) -> None:
    """It looks at once, not again before its time, then under another run id; what the sink stores is each look once,
    named topics alone, and a topic that is gone as a row with its error."""
    workload.create_topic("scheduled", 2)
    names = ["scheduled", "never-there"]
    given = {"kafka.bootstrap.servers": running.bootstrap_servers, "topics": ",".join(names), "interval.ms": "1000"}
    connector = PartitionLedgerSource(PartitionLedgerSource.config_def.parse(given))
    connector.start()
    now = [100.0]
    task = PartitionLedgerTask(running.config(), interval_s=1.0, clock=lambda: now[0])
    task.topics = names
    task.start(SourceTaskContext())
    sinks = DeltaSinkConnector(DeltaSinkConnector.config_def.parse({"tables": str(tmp_path)}))
    found = []
    for at in (100.0, 100.5, 101.5):
        now[0] = at
        batches = task.poll(0.01)
        found.append(len(batches))
        for batch in [*batches, *batches]:
            context = SinkTaskContext(connector="ledger", run_id="worker", cluster_id=connector.cluster_id)
            sink = sinks.task(context)
            sink.start()
            sink.put(batch)
            sink.flush()
            sink.stop()
    task.stop()
    connector.stop()

    assert found == [1, 0, 1]
    rows = list(Tables(TablesConfig(uri=str(tmp_path))).rows("partition_observations"))
    places = sorted((row["topic"], -1 if row["partition"] is None else row["partition"]) for row in rows)
    assert places == sorted([("never-there", -1), ("scheduled", 0), ("scheduled", 1)] * 2)
    assert {row["error_code"] for row in rows if row["topic"] == "never-there"} == {3}
    assert len({row["run_id"] for row in rows} - {"worker"}) == 2
