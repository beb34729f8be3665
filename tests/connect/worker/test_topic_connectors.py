"""Dead letters and the group coordinator's records: exported whole, and beside what brokers and the history say."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from confluent_kafka import AcknowledgeType, Producer, TopicPartition
from drivers.bounded_reading import everything, keys
from drivers.command_line import run
from samples.history_tables import build
from servers.workload import Workload, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.format.wire.group_record import GroupRecordType, ShareGroupRecord, decode
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.descriptions import GroupDescription
from acktrail.kafka.descriptions import TopicPartition as TopicPlace
from acktrail.model.share_partition import GroupId
from acktrail.tables.delta.store import Tables
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.sources.topic_sources import DeadLetterSource, ShareGroupMetadataSource
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.task_thread import RunState
from acktrail_connect.worker.worker import Worker
from acktrail_embedded import EmbeddedBroker
from acktrail_simulation.messages.group_record_encoder import encode

pytestmark = pytest.mark.broker

FOR_LETTERS = {"errors.deadletterqueue.group.enable": "true"}
HEADERS = {"topic": "orders", "partition": "0", "offset": "7", "group": "g", "delivery.count": "5", "message": "no"}


def headers(**changes: str) -> list[tuple[str, bytes]]:
    return [(f"__dlq.errors.{name}", value.encode()) for name, value in {**HEADERS, **changes}.items()]


def rows_of(batches: list[SourceBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for table in batch.rows.values() for row in table.to_pylist()]


def test_every_record_is_a_row(kafka: KafkaConfig, workload: Workload) -> None:
    """Also one that is no dead letter, died twice, or has a broken header: with its address, a reason and the bytes of
    its headers, never with a key or a value. A log that begins behind the position is read on; the gap stays visible.
    A topic of the same name that comes later is another source partition."""
    topic = f"dlq-{uuid.uuid4().hex}"
    workload.create_topic(topic)
    producer = Producer(to_librdkafka(kafka))
    producer.produce(topic, b"secret-value", b"key", headers=headers())
    producer.produce(topic, headers=headers(offset="-7"))
    producer.produce(topic, b"secret-value")
    producer.produce(topic, headers=[*headers(offset="3", message="first"), *headers(group="ü\x1b[2J")])
    assert producer.flush(30) == 0
    connector = DeadLetterSource(DeadLetterSource.config_def.parse(keys(kafka, topics=topic, bounded="true")))

    batches, counts = everything(connector, {})

    rows = rows_of(batches)
    assert [(row["dlq_offset"], row["decode_status"], row["offset"]) for row in rows] == [
        (0, "decoded", 7),
        (1, "malformed_headers", None),
        (2, "not_a_dead_letter", None),
        (3, "decoded", 7),
    ]
    assert [row["headers"] is not None for row in rows] == [False, True, True, False]
    assert [(row["key_bytes"], row["value_bytes"]) for row in rows] == [(3, 12), (None, None), (None, 12), (None, None)]
    assert "offset is not a number" in rows[1]["decode_error"]
    assert (rows[0]["group_id"], rows[0]["delivery_count"], rows[0]["message"]) == ("g", 5, "no")
    assert "secret" not in repr(rows)
    assert counts["decoded"] + counts["malformed_headers"] + counts["not_a_dead_letter"] == len(rows)

    for future in workload.admin.delete_records([TopicPartition(topic, 0, 3)]).values():
        future.result()
    (name,) = {batch.source_partition for batch in batches}
    later, counts = everything(connector, {name: 1})
    assert ([row["dlq_offset"] for row in rows_of(later)], counts["acktrail_dead_letter_records_passed_offsets"]) == (
        [3],
        2,
    )

    workload.delete_topic(topic)
    until(lambda: topic not in workload.admin.list_topics(timeout=30).topics, what="the end of the topic")
    workload.create_topic(topic)
    producer.produce(topic, headers=headers())
    assert producer.flush(30) == 0
    again, _ = everything(connector, {name: 4})
    assert [row["dlq_offset"] for row in rows_of(again)] == [0]
    assert {batch.source_partition for batch in again} != {name}


@pytest.fixture(scope="module")
def with_dead_letters() -> Iterator[tuple[EmbeddedBroker, Workload]]:
    """Kafka 4.4.0 with dead-letter topics on."""
    with EmbeddedBroker("4.4.0") as broker:
        yield broker, Workload(broker.config())


def test_a_topic_without_the_brokers_prefix_gets_no_dead_letter(
    with_dead_letters: tuple[EmbeddedBroker, Workload], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kafka takes the group's configuration, archives the record and writes nothing. The connector's status, doctor and
    a finding name group, topic and prefix; a topic with the prefix is none of it."""
    broker, workload = with_dead_letters
    where = ("--bootstrap-server", broker.bootstrap_servers)
    tables = ("--tables", str(tmp_path / "tables"))
    for name in ("letters-of-audit", "dlq.kept"):
        workload.create_topic(name, **FOR_LETTERS)
    workload.create_topic("audited")
    for group, letters in (("audit", "letters-of-audit"), ("kept", "dlq.kept")):
        workload.configure_group(group, errors_deadletterqueue_topic_name=letters)
        workload.produce("audited", 2)
        settle(workload, group, "audited", rejected={1})
    why = "'letters-of-audit' does not begin with 'dlq.'"
    worker = Worker(ConfigStore())
    try:
        config = {"sink.tables": str(tmp_path / "connected"), "topics.refresh.interval.ms": "100"}
        worker.create("letters", {"connector.class": "DeadLetterSource", **config, **keys(broker.config())})
        until(lambda: [task for task in worker.tasks("letters") if why in task.status.trace], what="the status")
        (status,) = [task.status for task in worker.tasks("letters")]
    finally:
        worker.stop()
    assert (status.state, "group 'audit'" in status.trace, "kept" in status.trace) == (RunState.RUNNING, True, False)
    checks = {row["what"]: row for row in run(capsys, "doctor", *where, *tables, "--json").rows}
    assert checks["dead-letter topics"]["status"] == "missing"
    assert why in checks["dead-letter topics"]["detail"]
    assert run(capsys, "run", "export", *where, *tables).code == 0
    assert run(capsys, "run", "reconcile", *tables).code == 0
    found = run(capsys, "findings", "--rule", "dead_letters_kept", *tables, "--json").rows
    assert [(row["group_id"], why in row["detail"], row["severity"]) for row in found] == [("audit", True, "error")]
    with ShareGroupAdmin(broker.config()) as admin:
        ends = admin.list_offsets([TopicPlace(topic=name, partition=0) for name in ("letters-of-audit", "dlq.kept")])
    assert ends[0].high_watermark == 0
    assert ends[1].high_watermark
    for group in ("audit", "kept"):
        workload.configure_group(group, errors_deadletterqueue_topic_name="")


def test_what_a_broker_writes_of_records_that_are_given_up(
    with_dead_letters: tuple[EmbeddedBroker, Workload], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group gives up four of ten records, with a dead-letter topic from the second on: two are rejected, one reaches
    the delivery count limit. A connector that began before there was such a topic finds it by the group's
    configuration; its dead letters are those offsets, the counts add up, and a record's fate names its dead letter."""
    broker, workload = with_dead_letters
    group, topic, letters, root = "fraud", "payments", "dlq.fraud", str(tmp_path / "tables")
    workload.create_topic(topic)
    workload.produce(topic, 4)
    settle(workload, group, topic, rejected={1})
    store, worker = Tables(TablesConfig(uri=root)), Worker(ConfigStore())
    config = {"sink.tables": root, "flush.interval.ms": "100", "topics.refresh.interval.ms": "100"}
    try:
        worker.create("letters", {"connector.class": "DeadLetterSource", **config, **keys(broker.config())})
        until(lambda: worker.status("letters").state is RunState.RUNNING, what="the connector's task")
        workload.create_topic(letters, 2, **FOR_LETTERS)
        workload.configure_group(group, errors_deadletterqueue_topic_name=letters)
        workload.produce(topic, 6)
        settle(workload, group, topic, rejected={5, 8}, released=6)
        until(lambda: store.read("dead_letter_records").num_rows == 3, what="three dead letters")
    finally:
        worker.stop()
    done = run(capsys, "run", "export", "--bootstrap-server", broker.bootstrap_servers, "--tables", root)
    assert done.code == 0, done.stderr
    build(store)

    rows = sorted(store.read("dead_letter_records").to_pylist(), key=lambda row: row["offset"])
    rejected, exceeded = "Offset rejected by client.", "Offset delivery count exceeded the threshold."
    assert [(row["offset"], row["delivery_count"], row["message"]) for row in rows] == [
        (5, 1, rejected),
        (6, 5, exceeded),
        (8, 1, rejected),
    ]
    assert {(row["group_id"], row["topic"], row["partition"], row["decode_status"]) for row in rows} == {
        (group, topic, 0, "decoded")
    }
    answer = json.loads(run(capsys, "record", "dead-letters", group, "--tables", root, "--json").stdout)
    (counted,) = answer["partitions"]
    numbers = ("archived", "with_record", "without_record", "not_archived", "records", "repeated")
    assert ([counted[name] for name in numbers], counted["not_known"]) == ([4, 3, 1, 0, 3, 0], [])
    fates = {
        offset: json.loads(
            run(capsys, "record", "show", group, topic, "0", str(offset), "--tables", root, "--json").stdout
        )
        for offset in (0, 1, 5)
    }
    found = {offset: fate["lives"][0]["dead_letters"] for offset, fate in fates.items()}
    assert (found[0], found[1]) == ([], [])
    assert [(each["dlq_topic"], each["message"]) for each in found[5]] == [(letters, rejected)]
    shown = run(capsys, "record", "show", group, topic, "0", "5", "--tables", root).stdout
    assert f"dead-letter record {letters}, partition 0, offset {found[5][0]['dlq_offset']}" in shown


def settle(workload: Workload, group: str, topic: str, *, rejected: set[int], released: int | None = None) -> None:
    """Reject and release these offsets and accept all others, until each was rejected, or released five times."""
    left, deliveries = set(rejected), 0

    with workload.share_consumer(group, topic, **{"share.acknowledgement.mode": "explicit"}) as consumer:

        def polled() -> bool:
            nonlocal deliveries
            for message in consumer.poll(0.5) or ():
                kind = AcknowledgeType.REJECT if message.offset() in rejected else AcknowledgeType.ACCEPT
                if message.offset() == released:
                    kind, deliveries = AcknowledgeType.RELEASE, deliveries + 1
                consumer.acknowledge(message, kind)
                left.discard(message.offset())
            consumer.commit_sync()
            return not left and (released is None or deliveries == 5)

        until(polled, timeout_s=60, what="records that are given up")


_OFFSET_COMMIT = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"


class _OfATopic(ShareGroupMetadataSource):
    """Like `ShareGroupMetadataSource`, of a topic that tests can write to."""

    topic = ""


def test_every_record_is_counted(kafka: KafkaConfig, workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read is decoded, quarantined and other; a log that begins after the position is read from its start, and is no
    gap."""
    monkeypatch.setattr(_OfATopic, "topic", f"groups-{uuid.uuid4().hex}")
    workload.create_topic(_OfATopic.topic)
    fields = {"epoch": 7, "metadata_hash": 3}
    kind = GroupRecordType.METADATA
    group = encode(ShareGroupRecord(record_type=kind, group_id=GroupId("g"), member_id=None, fields=fields))
    pairs = [group, (_OFFSET_COMMIT, b""), (b"\x00\x63", b"?"), (group[0], b"\x00\x00\x07"), (None, b""), group]
    producer = Producer(to_librdkafka(kafka))
    for key, value in pairs:
        producer.produce(_OfATopic.topic, value, key)
    assert producer.flush(30) == 0
    bounded = _OfATopic(_OfATopic.config_def.parse({**keys(kafka), "bounded": "true"}))

    batches, counts = everything(bounded, {})

    rows = [row for batch in batches for table in batch.rows.values() for row in table.to_pylist()]
    assert [(row["offset"], row["decode_status"], row["epoch"]) for row in rows] == [
        (0, "decoded", 7),
        (2, "unknown_type", None),
        (3, "malformed_value", None),
        (4, "null_key", None),
        (5, "decoded", 7),
    ]
    assert [(row["key"], row["value"]) for row in rows] == [pairs[row["offset"]] for row in rows]
    assert counts == {"decoded": 2, "quarantined": 3, "other": 1, "acktrail_group_records_passed_offsets": 0}

    for future in workload.admin.delete_records([TopicPartition(_OfATopic.topic, 0, 5)]).values():
        future.result()
    (name,) = {batch.source_partition for batch in batches}
    later, counts = everything(bounded, {name: 2})
    assert [batch.position for batch in later] == [6]
    assert counts == {"decoded": 1, "quarantined": 0, "other": 0, "acktrail_group_records_passed_offsets": 3}


def test_the_newest_records_say_what_the_brokers_say(
    kafka: KafkaConfig, workload: Workload, admin: ShareGroupAdmin, tmp_path: Any
) -> None:
    """Epochs, members and assignments of a group that two members joined; when they are gone, so are their records."""
    group, topic = f"g-{uuid.uuid4().hex}", f"t-{uuid.uuid4().hex}"
    workload.create_topic(topic, 2)
    store = Tables(TablesConfig(uri=str(tmp_path / "tables")))
    worker = Worker(ConfigStore())

    def newest() -> dict[tuple[str, str | None], dict[str, Any]]:
        """The newest row of each key that is there."""
        rows = store.read("group_records")
        rows = rows.filter(pc.equal(rows["group_id"], group)).sort_by("offset")
        found = {(row["record_type"], row["member_id"]): row for row in rows.to_pylist()}
        assert all(encode(decode(row["key"], row["value"])) == (row["key"], row["value"]) for row in found.values())
        return {key: row for key, row in found.items() if not row["is_tombstone"]}

    def described() -> GroupDescription:
        (found,) = admin.describe_groups([group])
        return found

    def agreed() -> bool:
        before = described()
        assigned = {p for member in before.members for each in member.assignment for p in each.partitions}
        is_settled = len(before.members) == 2 and assigned == {0, 1}
        return is_settled and said(newest()) == answered(before) and described() == before

    try:
        config = {"connector.class": "ShareGroupMetadataSource", "sink.tables": str(tmp_path / "tables")}
        worker.create("groups", {**config, **keys(kafka), "flush.interval.ms": "100"})
        with workload.share_consumer(group, topic) as one, workload.share_consumer(group, topic) as two:

            def polled() -> bool:
                for each in (one, two):
                    each.poll(0.05)
                return agreed()

            until(polled, what="the records that the brokers' answer is of")
            initialized = newest()["state_partition_metadata", None]["initialized"]
            assert [(each["topic"], sorted(each["partitions"])) for each in initialized] == [(topic, [0, 1])]
        until(lambda: not any(member for _, member in newest()), what="tombstones of the members")
        assert newest()["metadata", None]["epoch"] == described().group_epoch
    finally:
        worker.stop()


def said(rows: Mapping[tuple[str, str | None], Mapping[str, Any]]) -> Any:
    """Epochs and members, by the records."""
    none: dict[str, Any] = {"epoch": None, "assigned": []}
    members = {
        member: (
            row["client_id"],
            row["client_host"],
            tuple(row["subscribed_topics"]),
            rows.get(("current_member_assignment", member), none)["epoch"],
            {each["topic_id"]: sorted(each["partitions"]) for each in assignment(rows, member)},
        )
        for (kind, member), row in rows.items()
        if kind == "member_metadata"
    }
    epochs = [rows.get((kind, None), none)["epoch"] for kind in ("metadata", "target_assignment_metadata")]
    return epochs, members


def assignment(rows: Mapping[tuple[str, str | None], Mapping[str, Any]], member: str | None) -> Any:
    found = rows.get(("current_member_assignment", member))
    return [] if found is None else found["assigned"]


def answered(group: GroupDescription) -> Any:
    """The same by the brokers' answer."""
    members = {
        member.member_id: (
            member.client_id,
            member.client_host,
            member.subscribed_topics,
            member.member_epoch,
            {each.topic_id: sorted(each.partitions) for each in member.assignment},
        )
        for member in group.members
    }
    return [group.group_epoch, group.assignment_epoch], members
