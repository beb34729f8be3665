"""What the group coordinator writes about share groups is exported whole, and says what the brokers say."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer, TopicPartition
from drivers.bounded_reading import everything, keys
from servers.workload import Workload, until

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.connect.runtime.connector_run import ConfigStore
from acktrail.connect.runtime.worker import Worker
from acktrail.format.wire.group_record import decode
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.kafka.descriptions import GroupDescription
from acktrail.kafka.groups.metadata_connector import ShareGroupMetadataSource
from acktrail.model.group_records import ShareGroupMetadata
from acktrail.model.share_partition import GroupId
from acktrail.tables.delta.store import Tables
from acktrail_simulation.messages.group_record_encoder import encode

pytestmark = pytest.mark.broker

_OFFSET_COMMIT = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00"


class _OfATopic(ShareGroupMetadataSource):
    """The same of a topic that a test can write to."""

    topic = ""


def test_every_record_is_counted(kafka: KafkaConfig, workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read is decoded, quarantined and other; a log that begins behind the position is read on and no gap."""
    monkeypatch.setattr(_OfATopic, "topic", f"groups-{uuid.uuid4().hex}")
    workload.create_topic(_OfATopic.topic)
    group = encode(ShareGroupMetadata(group_id=GroupId("g"), epoch=7, metadata_hash=3))
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
    assert sum(batch.row_counts.read for batch in batches) == len(pairs)
    assert sum(batch.row_counts.written for batch in batches) == len(rows)

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
