"""Log segments and log directories copied from a running broker's disk: read as a consumer gets them and Kafka's own
tool prints them, and imported. What each release wrote, replayed as the release's own classes replay it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from drivers.command_line import run
from drivers.own_process import printed
from drivers.whole_topic import records_of
from oracle.kafka_group_forms import kafka_forms
from oracle.kafka_states import assert_equal, by_key, kafkas_answers
from samples.dump_lines import dump_line
from servers.real_broker import kafka_tool, releases
from servers.workload import Worked, Workload, until
from state_topics.filled_topic import read_all

from acktrail.config import TablesConfig
from acktrail.format.wire.group_record import GroupRecordType, decode
from acktrail.format.wire.raw_record import RawRecord
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.descriptions import TopicPartition
from acktrail.tables.delta.store import Tables
from acktrail_copied_logs.copied_files import read_dump, read_files
from acktrail_copied_logs.log_segment import ReadReport, SegmentDamage
from acktrail_copied_logs.replay_files import replay_sorted
from acktrail_embedded import EmbeddedBroker
from acktrail_embedded.kafka.installation import RELEASES

RECORD = re.compile(r"\| offset: (\d+) .*? key: (\{.*?\}) payload: (.*)")
CODECS = ["gzip", "snappy", "lz4", "zstd", "uncompressed"]


def copied(broker: EmbeddedBroker, to: Path, topic: str) -> list[Path]:
    """The topic's segments that are not empty, and in `to` all that lies beside them, copied while the broker runs."""
    data = broker.folder / "data"
    to.mkdir(exist_ok=True)
    shutil.copy(data / "meta.properties", to)
    for folder in data.glob(f"{topic}-*"):
        shutil.copytree(folder, to / folder.name)
    return sorted(file for file in to.glob(f"{topic}-*/*.log") if file.stat().st_size)


def dumped(files: list[Path], decoder: str) -> dict[tuple[int, int], tuple[dict[str, Any], dict[str, Any] | None]]:
    """By address, key and value as Kafka's tool prints them; value None: it printed none."""
    command = kafka_tool("org.apache.kafka.tools.DumpLogSegments", decoder, "--files", ",".join(map(str, files)))
    found, partition = {}, -1
    for line in printed(*command).splitlines():
        if line.startswith("Dumping "):
            partition = int(Path(line.removeprefix("Dumping ")).parent.name.rpartition("-")[2])
        if (record := RECORD.match(line)) is not None:
            value = record[3].strip()
            found[partition, int(record[1])] = (
                json.loads(record[2]),
                json.loads(value) if value.startswith("{") else None,
            )
    return found


def batches(found: list[list[int]]) -> list[dict[str, int]]:
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    return [dict(zip(names, batch, strict=True)) for batch in found]


def as_kafka_prints_state(row: dict[str, Any]) -> dict[str, Any]:
    """A snapshot or an update as the tool prints its value; its own names, defaults left out."""
    fields = {
        "snapshotEpoch": row["snapshot_epoch"],
        "stateEpoch": row.get("state_epoch"),
        "leaderEpoch": row["leader_epoch"],
        "startOffset": row["start_offset"],
        "deliveryCompleteCount": row["delivery_complete_count"],
        "createTimestamp": row.get("create_timestamp"),
        "writeTimestamp": row.get("write_timestamp"),
        "stateBatches": batches(row["batches"]),
    }
    return {name: value for name, value in fields.items() if value is not None}


def test_state_as_kafkas_tool_reads_it(
    broker: EmbeddedBroker, worked: Worked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every record of the state topic's segments: the same address, the same fields."""
    files = copied(broker, tmp_path, "__share_group_state")
    rows = run(capsys, "record", "decode", *files).rows

    theirs = dumped(files, "--share-group-state-decoder")

    assert len(rows) > worked.accepted
    assert {(row["state_partition"], row["offset"]) for row in rows} == theirs.keys()
    for row in rows:
        key, value = theirs[row["state_partition"], row["offset"]]
        expected = {"groupId": row["group"], "topicId": row["topic_id"], "partition": row["partition"]}
        assert key["data"] == expected
        assert (value is None) == (row["type"] == "tombstone")
        if value is not None:
            assert value["data"] == as_kafka_prints_state(row)


def test_groups_as_kafkas_tool_reads_them(
    broker: EmbeddedBroker, worked: Worked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R000-08: every record about share groups in the offsets topic's segments, with the same fields; all six types and
    a tombstone are among them, and what is about others is left out and counted."""
    files = copied(broker, tmp_path, "__consumer_offsets")
    done = run(capsys, "record", "decode", "--topic", "consumer-offsets", *files)

    theirs = dumped(files, "--offsets-decoder")

    kinds = {kind.value: kind.name.lower() for kind in GroupRecordType}
    about_groups = {address: pair for address, pair in theirs.items() if int(pair[0]["type"]) in kinds}
    assert {(row["partition"], row["offset"]) for row in done.rows} == about_groups.keys()
    assert {row["decode_status"] for row in done.rows} == {"decoded"}
    assert {row["type"] for row in done.rows} == {*kinds.values(), "tombstone"}
    for raw in read_files(files, ReadReport()):
        address = raw.state_partition, raw.offset
        if address in about_groups:
            key, value = about_groups[address]
            ours = decode(raw.key, raw.value)
            assert ours.record_type == int(key["type"])
            assert kafka_forms(ours) == (key["data"], None if value is None else value["data"])
    others = len(theirs) - len(about_groups)
    assert (f"{others:,} records of offsets and other groups left out" in done.stderr) == bool(others)


def consumed(broker: EmbeddedBroker, topic: str) -> list[RawRecord]:
    """Every committed record, as a consumer gets it."""
    return [*records_of({"bootstrap.servers": broker.bootstrap_servers}, topic)]


def produce(broker: EmbeddedBroker, topic: str, count: int, codec: str = "none") -> None:
    properties = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50, "compression.type": codec}
    producer = Producer(properties)
    for number in range(count):
        key = None if number % 7 == 0 else b"key %d" % number
        producer.produce(topic, key=key, value=b"value " * (number % 40), headers={"h": "1"})
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def topics(broker: EmbeddedBroker, workload: Workload) -> dict[str, str]:
    """By codec, a topic whose log the broker itself packs with it; and ``producer``: as the client packed it."""
    found = {codec: f"packed-{codec}-{uuid4().hex[:8]}" for codec in [*CODECS, "producer"]}
    for codec, name in found.items():
        time = "LogAppendTime" if codec == "lz4" else "CreateTime"
        workload.create_topic(name, **{"compression.type": codec, "message.timestamp.type": time})
    for codec in CODECS:
        produce(broker, found[codec], 200)
    for codec in [*CODECS[:-1], "none"]:
        produce(broker, found["producer"], 50, codec)
    return found


@pytest.mark.parametrize("codec", [*CODECS, "producer"])
def test_codecs_of_a_real_broker(codec: str, broker: EmbeddedBroker, topics: dict[str, str], tmp_path: Path) -> None:
    """Batches that Kafka's own codecs packed, and those that librdkafka packed, give what the consumer gets, times of
    creation or of the append."""
    (file,) = copied(broker, tmp_path, topics[codec])
    damage: list[SegmentDamage] = []

    records = list(read_files([file], ReadReport(state_partition=0, on_damage=damage.append)))

    assert damage == []
    assert records == consumed(broker, topics[codec])
    assert len(records) == (250 if codec == "producer" else 200)


def test_transactions_of_a_real_broker(
    broker: EmbeddedBroker, workload: Workload, admin: ShareGroupAdmin, tmp_path: Path
) -> None:
    """Of committed and aborted transactions, and of one that is open meanwhile, the segment gives what a consumer of
    committed records gets, and an address for records without an outcome yet."""
    topic = f"transactions-{uuid4().hex[:8]}"
    workload.create_topic(topic)
    producers = [
        Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"{topic}-{number}"})
        for number in range(2)
    ]
    for producer in producers:
        producer.init_transactions(30)
    producers[1].begin_transaction()
    opened: list[int] = []
    producers[1].produce(topic, value=b"open", on_delivery=lambda _, message: opened.append(message.offset()))
    producers[1].flush(30)
    for number in range(6):
        producer = producers[0]
        producer.begin_transaction()
        producer.produce(topic, value=b"%d" % number)
        producer.flush(30)
        producer.abort_transaction(30) if number % 2 else producer.commit_transaction(30)
    log = TopicPartition(topic=topic, partition=0)
    until(lambda: admin.list_offsets([log])[0].high_watermark == 13, what="the last marker")
    (file,) = copied(broker, tmp_path, topic)
    damage: list[SegmentDamage] = []
    reading = ReadReport(state_partition=0, on_damage=damage.append)

    records = list(read_files([file], reading))
    producers[1].abort_transaction(30)

    assert [r.value for r in records] == [b"0", b"2", b"4"]
    assert (reading.control_records, reading.aborted_records) == (6, 3)
    assert [(d.status, d.first_offset) for d in damage] == [("undecided_transaction", *opened)]
    assert records == consumed(broker, topic)


def test_an_export_goes_on_behind_an_import(
    broker: EmbeddedBroker, workload: Workload, worked: Worked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Segments of a copied log directory say which cluster and topic they are of; imported twice, then exported on:
    every record is in the tables once, as the consumer got it, and the ranges cover every offset once."""
    copied(broker, tmp_path / "copy", "__share_group_state")
    files = sorted((tmp_path / "copy").glob("*/*.log"))
    root = tmp_path / "tables"
    cluster = ["--cluster", workload.admin.list_topics(timeout=120).cluster_id]
    first = json.loads(run(capsys, "tables", "import", *files, "--tables", root, *cluster, "--json").stdout)
    again = json.loads(run(capsys, "tables", "import", *files, "--tables", root, *cluster, "--json").stdout)
    later = f"later-{uuid4().hex[:8]}"
    workload.create_topic(later)
    workload.produce(later, 3)
    workload.acknowledge(later, later, 3)

    arguments = ["--bootstrap-server", broker.bootstrap_servers, "--tables", root, "--state-only", "--json"]
    exported = run(capsys, "run", "export", *arguments)
    records = read_all(broker)

    assert exported.code == 0, exported.stderr
    assert again["records_new"] == 0
    assert json.loads(exported.stdout)["records_read"] > 0
    tables = Tables(TablesConfig(uri=str(root)))
    rows = tables.read("state_records", columns=["state_partition", "offset", "key", "value", "run_id"]).to_pylist()
    assert sum(row["run_id"] == first["run_id"] for row in rows) == first["records_new"] > worked.accepted
    stored = {(row["state_partition"], row["offset"]): (row["key"], row["value"]) for row in rows}
    assert len(stored) == len(rows)
    consumed = {(r.state_partition, r.offset): (r.key, r.value) for r in records}
    assert stored.items() <= consumed.items()
    ranges = tables.read("export_ranges").to_pylist()
    assert len({row["state_topic_id"] for row in ranges}) == 1
    assert {row["dialect"] for row in ranges} == {None, "4.2"}
    covered = [
        (row["state_partition"], offset)
        for row in ranges
        for offset in range(row["first_offset"], row["last_offset"] + 1)
    ]
    assert sorted(covered) == sorted(stored)
    assert "is of cluster" in run(capsys, "tables", "import", *files, "--tables", root, "--cluster", "other").complaint(
        3
    )


RECORDED = Path(__file__).parents[2] / "support/golden/state_topic"


@pytest.mark.broker
@pytest.mark.parametrize("version", releases("4.4.0", *sorted(RELEASES.keys() - {"4.4.0"})))
def test_what_a_real_broker_wrote(version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a dump that a broker of each release wrote, `acktrail record replay` and the sweep over all share partitions
    (which it takes for large dumps) give what the release's own classes give: of the log as it was at many a moment,
    and of what pruning would leave, where updates stand without a snapshot."""
    records = list(read_dump(RECORDED / f"{version}.jsonl.gz"))
    end = max(record.offset for record in records)
    cuts = range(3, end, max(1, end // 9))
    windows = [(0, end), *((0, last) for last in cuts), *((first, end) for first in cuts)]
    dumps = [[dump_line(r) for r in records if first <= r.offset <= last] for first, last in windows]
    theirs = kafkas_answers(dumps, version, tmp_path)

    assert len(records) > 100
    for number, dump in enumerate(dumps):
        file = tmp_path / f"{number}.jsonl"
        file.write_text("".join(line + "\n" for line in dump), encoding="utf-8")
        swept = replay_sorted([file], ReadReport())
        assert swept is not None
        assert_equal(by_key(run(capsys, "record", "replay", file).rows), by_key(theirs[number]))
        assert_equal(by_key([*swept[0].states]), by_key(theirs[number]))
    assert len(theirs) == len(dumps)
    assert {batch[2] for states in theirs for state in states for batch in state["batches"]} == {0, 2, 4}
    assert max(len(state["batches"]) for states in theirs for state in states) > 10
