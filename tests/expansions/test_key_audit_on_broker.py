"""The key audit against what is really in the logs: a producer with old metadata beside one with the new count."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from broker.workload import Workload, until
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from drivers.command_line import run
from drivers.whole_topic import messages_of
from samples.ledger_tables import find_expansions, look

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.client.librdkafka import to_librdkafka
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker
from acktrail.errors import ConfigurationError, ForeignCluster, RetryableError, UnknownName
from acktrail.expansions.audit_run import audit_expansions
from acktrail.expansions.key_audit import KeyAuditSummary, audit_keys
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import ExpansionFence, OrderingReason
from acktrail.model.expansion.partition_ledger import PartitionExpansion
from acktrail.tables.delta.store import Tables
from acktrail.tables.expansion_reader import read_fences
from acktrail.times import now_ms
from acktrail.topic_expansion.stored_look import take_look
from acktrail_jobs.commands.engine import executors_on
from acktrail_simulation.expansion.key_partitions import partition_of_key

pytestmark = [pytest.mark.broker, pytest.mark.slow]

KEYS = [f"customer-{number}".encode() for number in range(40)]
OLD, NEW = b"old", b"new"
PARTITIONERS = {KeyMapping.MURMUR2: "murmur2_random", KeyMapping.CRC32: "consistent_random"}


@dataclass(frozen=True)
class Read:
    """A record as it is in the log; `writer` is what its producer knew."""

    partition: int
    offset: int
    key: bytes | None
    writer: bytes


@dataclass(frozen=True)
class Expanded:
    """A topic from 2 to `new_count` partitions, and all of its records."""

    kafka: KafkaConfig
    tables: TablesConfig
    topic: str
    mapping: KeyMapping
    new_count: int
    expansion: PartitionExpansion
    records: tuple[Read, ...]

    def moved(self, key: bytes | None) -> bool:
        places = [partition_of_key(self.mapping, key, count) for count in (2, self.new_count)]
        return places[0] != places[1]

    def audit(self, **named: Any) -> KeyAuditSummary:
        return audit_keys(self.kafka, self.tables, executors_on(None), self.topic, **named)


class Writers:
    """Two producers of one topic; the stale one never looks its partitions up again."""

    def __init__(self, kafka: KafkaConfig, topic: str, mapping: KeyMapping) -> None:
        self._topic = topic
        self._own = {**to_librdkafka(kafka), "partitioner": PARTITIONERS[mapping], "log_level": 3}
        never = {"topic.metadata.refresh.interval.ms": -1, "metadata.max.age.ms": 86_400_000}
        self._stale = Producer({**self._own, **never})

    def write(self, keys: list[bytes | None], *, stale: bool, at_ms: int) -> None:
        producer = self._stale if stale else Producer(self._own)
        for key in keys:
            producer.produce(self._topic, OLD if stale else NEW, key=key, timestamp=at_ms)
        assert producer.flush(60) == 0


def read_all(kafka: KafkaConfig, topic: str) -> tuple[Read, ...]:
    """Every record, by a consumer of its own."""
    return tuple(
        Read(message.partition(), message.offset(), message.key(), message.value())
        for message in messages_of(to_librdkafka(kafka), topic)
    )


@pytest.fixture(
    scope="module",
    params=[(KeyMapping.MURMUR2, 4), (KeyMapping.CRC32, 3)],
    ids=["murmur2-to-4", "crc32-to-3"],
)
def expanded(
    request: pytest.FixtureRequest, broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory
) -> Expanded:
    """Records of the old count, the expansion, then both producers in turn; looks before, right after, and at the end.
    All records are older than the look that saw the expansion, by their timestamps: within the settle time."""
    mapping, new_count = request.param
    kafka, topic = broker.config(), f"audited-{uuid4().hex[:8]}"
    tables = TablesConfig(uri=str(tmp_path_factory.mktemp("keys") / "tables"))
    workload = Workload(kafka)
    workload.create_topic(topic, 2)
    writers = Writers(kafka, topic, mapping)
    at_ms = now_ms() - 60_000
    writers.write([*KEYS, None], stale=True, at_ms=at_ms)
    look(kafka, tables, topic)
    for future in workload.admin.create_partitions([NewPartitions(topic, new_count)]).values():
        future.result()
    until(lambda: len(workload.admin.list_topics(topic).topics[topic].partitions) == new_count, what="the new count")
    look(kafka, tables, topic)
    for part in (KEYS[:20], KEYS[10:30]):
        writers.write([*part, None], stale=True, at_ms=at_ms)
        writers.write([*part, *part, None], stale=False, at_ms=at_ms)
    look(kafka, tables, topic)
    (expansion,) = find_expansions(tables, mapping, settle_ms=1)
    return Expanded(
        kafka=kafka,
        tables=tables,
        topic=topic,
        mapping=mapping,
        new_count=new_count,
        expansion=expansion,
        records=read_all(kafka, topic),
    )


def true_fences(world: Expanded) -> dict[int, int]:
    """One past the last record of the stale producer whose key moved, or the low fence: by who wrote it."""
    found = {}
    for source, fence in enumerate(world.expansion.fences):
        late = [
            each.offset
            for each in world.records
            if each.partition == source and each.writer == OLD and world.moved(each.key)
            if each.offset >= (fence.low or 0)
        ]
        found[source] = max(late, default=(fence.low or 0) - 1) + 1
    return found


def test_the_stale_producer_really_was_stale(expanded: Expanded) -> None:
    """The records are what the test is about: each of the stale producer is where the old count puts its key."""
    for each in expanded.records:
        if each.key is not None:
            count = 2 if each.writer == OLD else expanded.new_count
            assert each.partition == partition_of_key(expanded.mapping, each.key, count)


def test_the_exact_fences_and_keys_at_risk_are_those_of_the_logs(expanded: Expanded) -> None:
    """Compared with who wrote each record: the exact fence lies in the interval that the looks gave, and the keys at
    risk are those with records of both, with the right two offsets. The tables have digests of keys only."""
    summary = expanded.audit(shows_keys=True)
    exact = {row["partition"]: row["fence_exact"] for row in summary.sources}
    assert exact == true_fences(expanded)
    assert {row["confidence"] for row in summary.sources} == {"exact"}
    for source, fence in enumerate(expanded.expansion.fences):
        assert fence.low is not None
        assert fence.high is not None
        assert fence.low <= exact[source] <= fence.high
    assert any(exact[source] > (fence.low or 0) for source, fence in enumerate(expanded.expansion.fences))
    assert summary.settle_too_short == ()

    lows = {source: fence.low or 0 for source, fence in enumerate(expanded.expansion.fences)}
    last_old: dict[bytes, tuple[int, int]] = {}
    first_new: dict[bytes, tuple[int, int]] = {}
    for each in sorted(expanded.records, key=lambda record: record.offset):
        if each.key is None or not expanded.moved(each.key) or each.offset < lows.get(each.partition, 0):
            continue
        if each.writer == OLD:
            last_old[each.key] = (each.partition, each.offset)
        else:
            first_new.setdefault(each.key, (each.partition, each.offset))
    expected = {key: (last_old[key], first_new[key]) for key in last_old.keys() & first_new.keys()}
    assert expected
    assert summary.keys is not None
    found = {
        each.key: ((each.source_partition, each.last_old_offset), (each.partition, each.first_new_offset))
        for each in summary.keys
    }
    assert found == expected
    stored = Tables(expanded.tables).read("keys_at_risk").to_pylist()
    assert {row["key_digest"] for row in stored} == {hashlib.sha256(key).hexdigest() for key in expected}


def test_the_ledger_has_the_exact_fences_afterwards(expanded: Expanded) -> None:
    """`expansion_fences` and what resets read of it; a second audit puts its rows in place of the first one's."""
    summary = expanded.audit()
    assert summary.keys is None
    tables = Tables(expanded.tables)
    topic_id = summary.sources[0]["topic_id"]
    cluster_id = summary.sources[0]["cluster_id"]
    (found,) = read_fences(tables, cluster_id, {topic_id: expanded.new_count})[topic_id].expansions
    exact = {source: ExpansionFence(low=at, high=at) for source, at in true_fences(expanded).items()}
    assert found.expansion.fences == exact
    expanded.audit()
    assert tables.read("key_audits").num_rows == 2
    assert tables.read("keys_at_risk").num_rows == summary.keys_at_risk


def test_the_next_audit_of_expansions_keeps_what_the_keys_show(expanded: Expanded) -> None:
    """The audit that replaces the ledger's tables finds the same expansion, and leaves its fences exact."""
    expanded.audit()
    settle = dt.timedelta(milliseconds=1)
    audit_expansions(expanded.tables, executors_on(None), settle=settle, mapping_of=lambda _: expanded.mapping)
    rows = Tables(expanded.tables).read("expansion_fences").to_pylist()
    assert {row["partition"]: row["fence_exact"] for row in rows} == true_fences(expanded)
    assert {row["confidence"] for row in rows} == {"exact"}
    assert {row["event_id"] for row in rows} == {expanded.expansion.event_id}


def test_the_command_says_it_in_words_and_in_json(expanded: Expanded, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys are printed only when they are asked for."""
    where = ("--bootstrap-server", expanded.kafka.bootstrap_servers, "--tables", expanded.tables.uri)
    plain = run(capsys, "expand", "keys", expanded.topic, *where)
    assert plain.code == 0, plain.stderr
    assert "their order depends on the consumer" in plain.stdout
    assert "customer-" not in plain.stdout
    shown = run(capsys, "expand", "keys", expanded.topic, "--show-keys", *where)
    assert "customer-" in shown.stdout
    data = json.loads(run(capsys, "expand", "keys", expanded.topic, "--json", *where).stdout)
    assert data["keys"] is None
    assert {row["partition"]: row["fence_exact"] for row in data["sources"]} == true_fences(expanded)


def rewritten(expanded: Expanded, folder: Path, **changes: Any) -> TablesConfig:
    """A copy of the tables with other values in the expansion."""
    source, target = Tables(expanded.tables), Tables(TablesConfig(uri=str(folder)))
    for name in ("partition_expansions", "expansion_fences"):
        rows = source.read(name).to_pylist()
        new = [{**row, **{k: v for k, v in changes.items() if k in row}} for row in rows]
        target.append(name, new)
    return target.config


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"key_mapping": "none"}, ConfigurationError, "how producers choose the partition of a key"),
        ({"status": "settling"}, RetryableError, "is settling"),
        ({"topic_id": "another"}, ForeignCluster, "was recreated"),
        ({"topic": "another"}, UnknownName, "unknown expanded topic"),
    ],
)
def test_what_cannot_be_audited_is_refused(
    expanded: Expanded, tmp_path: Path, changes: dict[str, Any], error: type[Exception], says: str
) -> None:
    """One clear line each, and nothing is written."""
    tables = rewritten(expanded, tmp_path, **changes)
    with pytest.raises(error, match=says):
        audit_keys(expanded.kafka, tables, executors_on(None), expanded.topic)
    assert not Tables(tables).exists("key_audits")


def test_a_high_fence_that_came_too_early_is_found(expanded: Expanded, tmp_path: Path) -> None:
    """With the high fence where the low one is, later records of the old count lie behind it: the settle time was too
    short, and the summary names the sources."""
    stored = Tables(expanded.tables).read("expansion_fences").to_pylist()
    tables = rewritten(expanded, tmp_path)
    rows = [{**row, "fence_high": row["fence_low"], "confidence": "bracketed", "fence_exact": None} for row in stored]
    place = Tables(tables)
    place.replace("expansion_fences", place.read("expansion_fences").slice(0, 0))
    place.append("expansion_fences", rows)
    summary = audit_keys(expanded.kafka, tables, executors_on(None), expanded.topic)
    true = true_fences(expanded)
    late = [source for source, fence in enumerate(expanded.expansion.fences) if true[source] > (fence.low or 0)]
    assert list(summary.settle_too_short) == late
    assert late


def test_another_partitioner_is_seen_by_its_records(expanded: Expanded, tmp_path: Path) -> None:
    """With the other mapping configured, keys lie where neither count puts them: no exact fence is given."""
    other = KeyMapping.CRC32 if expanded.mapping is KeyMapping.MURMUR2 else KeyMapping.MURMUR2
    tables = rewritten(expanded, tmp_path, key_mapping=other.value, fence_exact=None, confidence="bracketed")
    summary = audit_keys(expanded.kafka, tables, executors_on(None), expanded.topic)
    assert {row["fence_exact"] for row in summary.sources} == {None}
    assert all("choose partitions in another way" in row["reason"] for row in summary.sources)
    assert {row["confidence"] for row in Tables(tables).rows("expansion_fences")} == {"bracketed"}


def in_transactions(kafka: KafkaConfig, topic: str) -> None:
    """Five records in one that is committed, and three in one that is aborted."""
    producer = Producer({**to_librdkafka(kafka), "transactional.id": topic, "log_level": 3})
    producer.init_transactions(60)
    for records, ends in ((5, producer.commit_transaction), (3, producer.abort_transaction)):
        producer.begin_transaction()
        for key in KEYS[:records]:
            producer.produce(topic, OLD, key=key, partition=0)
        producer.flush(60)
        ends(60)


def test_transaction_markers_are_no_records_that_are_left(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """R003-01: a committed transaction and an aborted one end a log with offsets that no consumer gets. Both groups
    stand below its fence when they begin with the new partition, which looks cannot tell from broken order. The key
    audit finds the last record: the group behind it is safe, and the one before it is not."""
    kafka, topic = broker.config(), f"transactional-{uuid4().hex[:8]}"
    tables, workload = TablesConfig(uri=str(tmp_path / "tables")), Workload(kafka)
    workload.create_topic(topic, 1)
    in_transactions(kafka, topic)

    def at(partition: int, **offsets: int) -> None:
        for group, offset in offsets.items():
            with Consumer({**to_librdkafka(kafka), "group.id": f"{group}-{topic}"}) as consumer:
                consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)

    def judged() -> dict[str, tuple[str, str | None]]:
        settle = dt.timedelta(milliseconds=1)
        audit_expansions(tables, executors_on(None), settle=settle, mapping_of=lambda _: KeyMapping.MURMUR2)
        rows = Tables(tables).rows("ordering_audits")
        return {row["group_id"].removesuffix(f"-{topic}"): (row["verdict"], row["reason"]) for row in rows}

    with ShareGroupAdmin(kafka) as admin:
        at(0, finished=5, behind=3)
        take_look(admin, tables, topics=[topic])
        for future in workload.admin.create_partitions([NewPartitions(topic, 2)]).values():
            future.result()
        until(lambda: len(workload.admin.list_topics(topic).topics[topic].partitions) == 2, what="the new count")
        workload.produce(topic, 3, 1)
        for offset in (1, 2, 3):
            take_look(admin, tables, topics=[topic])
            at(1, finished=offset, behind=offset)
        take_look(admin, tables, topics=[topic])
    unproven = ("possible_violation", OrderingReason.NO_RECORD_KNOWN.value)
    assert judged() == {"finished": unproven, "behind": unproven}
    (source,) = audit_keys(kafka, tables, executors_on(None), topic).sources
    assert (source["fence_low"], source["last_record_offset"], source["confidence"]) == (10, 4, "exact")
    assert judged() == {"finished": ("safe", None), "behind": ("violation", None)}
