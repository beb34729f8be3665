"""Copied segments read by us, and by Kafka's own tool for them (kafka-dump-log.sh)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import run
from oracle.kafka_group_forms import kafka_forms
from servers.real_broker import kafka_tool
from servers.workload import Worked

from acktrail.embedded import EmbeddedBroker
from acktrail.format.wire.group_record import decode
from acktrail.model.group_records import GroupRecordType
from acktrail.offline.copied_files import read_files
from acktrail.offline.log_segment import ReadReport

pytestmark = pytest.mark.broker

RECORD = re.compile(r"\| offset: (\d+) .*? key: (\{.*?\}) payload: (.*)")


def copied(broker: EmbeddedBroker, to: Path, topic: str) -> list[Path]:
    """The topic's segments that are not empty."""
    for folder in (broker.folder / "data").glob(f"{topic}-*"):
        shutil.copytree(folder, to / folder.name)
    return sorted(file for file in to.glob(f"{topic}-*/*.log") if file.stat().st_size)


def dumped(files: list[Path], decoder: str) -> dict[tuple[int, int], tuple[dict[str, Any], dict[str, Any] | None]]:
    """By address, key and value as Kafka's tool prints them; value None: it printed none."""
    command = kafka_tool("org.apache.kafka.tools.DumpLogSegments", decoder, "--files", ",".join(map(str, files)))
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    found, partition = {}, -1
    for line in printed.splitlines():
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
            ours = kafka_forms(decode(raw.key, raw.value), int(key["type"]))
            assert ours == (key["data"], None if value is None else value["data"])
    others = len(theirs) - len(about_groups)
    assert (f"{others:,} records of offsets and other groups left out" in done.stderr) == bool(others)
