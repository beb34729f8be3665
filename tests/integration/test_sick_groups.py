"""Groups made sick on real brokers, and what the status of each says: at the first look, and when it is over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, TopicPartition
from drivers.command_line import run
from servers.real_broker import broker_of_release, releases
from servers.workload import Workload, start_at, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.tables.delta.store import Tables
from acktrail_connect.export.export_run import observe
from acktrail_embedded import DEFAULT_VERSION
from acktrail_jobs.api import reconcile

pytestmark = [pytest.mark.broker, pytest.mark.slow]

FIRST_LOOK = {
    "waiting": ("unattended", "400 records wait, and no member in any observation since "),
    "undelivered": ("unattended", "200 records wait, none was ever delivered, and no member in any observation since "),
    "passed": ("inconsistent", "past_log_end: the state ends at offset 50, the log at 40"),
    "rejecting": (
        "reject_storm",
        "Consumers reject records: within 30 minutes 0 acknowledged, 0 released, 40 archived",
    ),
    "lossy": (
        "retention_risk",
        "The retention removed 120 records of lossy 0 before they were finished: the log starts at 120, above offset 0",
    ),
    "healthy": ("ok", ""),
}


@pytest.fixture(scope="module", params=releases(DEFAULT_VERSION, "4.4.0"))
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaConfig]:
    with broker_of_release(request) as broker:
        yield broker.config()


def look(kafka: KafkaConfig, tables: TablesConfig) -> dict[str, dict[str, Any]]:
    """The rows of one more run, by group."""
    observe(kafka, tables)
    reconcile(tables, with_history=True)
    return {row["group_id"]: row for row in Tables(tables).read("queue_statuses").to_pylist()}


def remove(workload: Workload, topic: str, before: int) -> None:
    for future in workload.admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result()


def finish(
    workload: Workload,
    group: str,
    count: int,
    how: AcknowledgeType,
    *,
    topic: str | None = None,
    rejected: int | None = None,
) -> None:
    """A member settles `count` deliveries, whichever come, then leaves; it rejects the offset `rejected`."""
    done = 0
    with workload.share_consumer(group, topic or group, **{"share.acknowledgement.mode": "explicit"}) as member:

        def all_settled() -> bool:
            nonlocal done
            messages: list[Any] = [each for each in member.poll(0.3) or () if each.error() is None]
            for message in messages:
                member.acknowledge(message, AcknowledgeType.REJECT if message.offset() == rejected else how)
            if messages:
                member.commit_sync()
            done += len(messages)
            return done >= count

        until(all_settled, what=f"{count} deliveries")


def test_what_each_sick_group_says(kafka: KafkaConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records without members; a share partition that nothing was delivered of, whose records the retention takes then;
    a start offset past the log end; everything rejected; records lost before they were delivered. Each has its name at
    the first look, and a healthy group is well; what was rejected stays until somebody has acknowledged it."""
    tables, workload = TablesConfig(uri=str(tmp_path / "tables")), Workload(kafka)
    records = {"waiting": 400, "undelivered": 200, "passed": 40, "rejecting": 40, "lossy": 200, "healthy": 40}
    for group, count in records.items():
        workload.create_topic(group)
        workload.produce(group, count)
    for group, start in (("waiting", 0), ("passed", 50), ("lossy", 0)):
        start_at(kafka, group, {(group, 0): start})
    remove(workload, "lossy", 120)
    with workload.share_consumer("undelivered", "undelivered"), ShareGroupAdmin(kafka) as admin:
        until(lambda: admin.describe_offsets("undelivered"), what="the group's topic at its coordinator")
    finish(workload, "rejecting", 40, AcknowledgeType.REJECT)
    finish(workload, "healthy", 40, AcknowledgeType.ACCEPT)

    first = look(kafka, tables)
    for group, (status, reason) in FIRST_LOOK.items():
        assert (first[group]["status"], first[group]["reason"][: len(reason)]) == (status, reason), first[group]

    remove(workload, "undelivered", 120)
    finish(workload, "waiting", 400, AcknowledgeType.ACCEPT)
    second = look(kafka, tables)
    assert second["waiting"]["status"] == "ok"
    assert second["undelivered"]["reason"].startswith("The retention removed 120 records of undelivered 0 that were ")
    assert second["undelivered"]["status"] == "retention_risk"
    assert (second["rejecting"]["status"], second["rejecting"]["members"]) == ("loss_unseen", 0)
    assert second["passed"]["status"] == "inconsistent"

    done = run(capsys, "findings", "--group", "rejecting", "--seen-by", "Ada", "--tables", tables.uri)
    assert done.code == 0, done.stderr
    start_at(kafka, "passed", {("passed", 0): 40})
    third = look(kafka, tables)
    assert "Permanently lost" not in third["rejecting"]["reason"]
    assert third["rejecting"]["status"] in {"ok", "idle"}
    assert third["passed"]["status"] in {"ok", "idle", "rewound"}


def transactional_producer(kafka: KafkaConfig, topic: str) -> Producer:
    producer = Producer({**to_librdkafka(kafka), "transactional.id": topic})
    producer.init_transactions()
    return producer


def produce_transaction(producer: Producer, topic: str, records: int, *, is_aborted: bool = False) -> None:
    producer.begin_transaction()
    for number in range(records):
        producer.produce(topic, str(number).encode(), partition=0)
    producer.flush()
    (producer.abort_transaction if is_aborted else producer.commit_transaction)()


def test_markers_that_come_back_are_no_loop(kafka: KafkaConfig, tmp_path: Path) -> None:
    """A marker that comes alone is not acknowledged by librdkafka: its lock ends again and again, up to the limit. That
    is no release of a record. The broker's lag counts it, and so do unfinished records."""
    tables, workload = TablesConfig(uri=str(tmp_path / "tables")), Workload(kafka)
    workload.create_topic("often")
    workload.configure_group("staying", share_record_lock_duration_ms="1000")
    producer, accepted = transactional_producer(kafka, "often"), 0
    with workload.share_consumer("staying", "often", **{"share.acknowledgement.mode": "explicit"}) as member:
        for written in range(1, 25):
            producer.begin_transaction()
            producer.produce("often", b"value", partition=0)
            producer.flush()

            def all_accepted(of: int = written) -> bool:
                nonlocal accepted
                messages: list[Any] = [each for each in member.poll(0.3) or () if each.error() is None]
                for message in messages:
                    member.acknowledge(message, AcknowledgeType.ACCEPT)
                if messages:
                    member.commit_sync()
                accepted += len(messages)
                return accepted >= of

            until(all_accepted, what=f"{written} deliveries")
            producer.commit_transaction()
            member.poll(0.3)  # the marker alone
        row = look(kafka, tables)["staying"]
    assert row["acknowledged"] == 24
    assert row["released"] < 24
    assert row["archived_seen"] == 0
    assert row["status"] in {"ok", "not_judged"}


def test_archived_offsets_without_a_record_are_no_loss(
    kafka: KafkaConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brokers archive markers of transactions, and records of aborted ones for a group that reads committed records.
    No status, finding or list of a group that accepted every record calls them lost, in any look, and nothing waits. A
    record that is rejected among them is one lost record, by its own offset."""
    tables, workload = TablesConfig(uri=str(tmp_path / "tables")), Workload(kafka)
    for topic in ("orders", "aborted"):
        workload.create_topic(topic)
    for topic, count, records in (("orders", 8, 4), ("aborted", 5, 6)):
        producer = transactional_producer(kafka, topic)
        for _ in range(count):
            produce_transaction(producer, topic, records, is_aborted=topic == "aborted")
    workload.produce("aborted", 3)
    workload.configure_group("committed", share_isolation_level="read_committed")
    finish(workload, "accepting", 32, AcknowledgeType.ACCEPT, topic="orders")
    finish(workload, "picky", 32, AcknowledgeType.ACCEPT, topic="orders", rejected=17)
    finish(workload, "committed", 3, AcknowledgeType.ACCEPT, topic="aborted")

    for _ in range(2):
        found = look(kafka, tables)
        for group, finished in (("accepting", 32), ("committed", 3), ("picky", 31)):
            row = found[group]
            assert (row["archived_seen"], row["archived"]) == ((1, 1) if group == "picky" else (0, 0)), row
            assert row["acknowledged"] == finished
            if group != "committed":  # brokers store the end of aborted records with the next acknowledgement
                status = "loss_unseen" if group == "picky" else "ok"
                assert (row["status"], row["unfinished_records"]) == (status, 0), row
    own = {"rule": "poison_records_archived", "group_id": ["accepting", "committed", "picky"]}
    archived = Tables(tables).rows("findings", own)
    assert {(row["group_id"], row["detail"]) for row in archived} == {("picky", "1 record(s) were archived")}
    for group, offsets in (("accepting", []), ("committed", []), ("picky", [(17, 17)])):
        done = run(capsys, "record", "archived", group, "--tables", tables.uri, "--json")
        assert [(row["first_offset"], row["last_offset"]) for row in json.loads(done.stdout)["archived"]] == offsets
