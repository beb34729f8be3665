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
from servers.real_broker import kafka_tool
from servers.workload import Worked

from acktrail.embedded import EmbeddedBroker

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


def topics(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = {"topic_id": "topicId", "topic": "topicName", "partitions": "partitions"}
    return [{names[name]: value for name, value in one.items()} for one in found]


def as_kafka_prints_group(row: dict[str, Any]) -> dict[str, Any]:
    """A record about a share group as the tool prints its value."""
    fields: dict[str, dict[str, Any]] = {
        "member_metadata": {
            "rackId": row.get("rack"),
            "clientId": row.get("client_id"),
            "clientHost": row.get("client_host"),
            "subscribedTopicNames": row.get("subscribed_topics"),
        },
        "metadata": {"epoch": row.get("epoch"), "metadataHash": row.get("metadata_hash")},
        "target_assignment_metadata": {
            "assignmentEpoch": row.get("assignment_epoch"),
            "assignmentTimestamp": row.get("assignment_timestamp"),
        },
        "target_assignment_member": {"topicPartitions": topics(row.get("assigned", []))},
        "current_member_assignment": {
            "memberEpoch": row.get("member_epoch"),
            "previousMemberEpoch": row.get("previous_member_epoch"),
            "state": row.get("state"),
            "assignedPartitions": topics(row.get("assigned", [])),
        },
        "state_partition_metadata": {
            "initializingTopics": topics(row.get("initializing", [])),
            "initializedTopics": topics(row.get("initialized", [])),
            "deletingTopics": topics(row.get("deleting", [])),
        },
    }
    return fields[row["type"]]


NUMBERS = {
    "member_metadata": 10,
    "metadata": 11,
    "target_assignment_metadata": 12,
    "target_assignment_member": 13,
    "current_member_assignment": 14,
    "state_partition_metadata": 15,
}


def test_groups_as_kafkas_tool_reads_them(
    broker: EmbeddedBroker, worked: Worked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R000-08: every record about share groups in the offsets topic's segments, with the same fields; all six types and
    a tombstone are among them, and what is about others is left out and counted."""
    files = copied(broker, tmp_path, "__consumer_offsets")
    done = run(capsys, "record", "decode", "--topic", "consumer-offsets", *files)
    rows = {(row["partition"], row["offset"]): row for row in done.rows}

    theirs = dumped(files, "--offsets-decoder")

    about_groups = {address: pair for address, pair in theirs.items() if int(pair[0]["type"]) in NUMBERS.values()}
    assert rows.keys() == about_groups.keys()
    assert {row["decode_status"] for row in rows.values()} == {"decoded"}
    assert {row["type"] for row in rows.values()} == {*NUMBERS, "tombstone"}
    for address, row in rows.items():
        key, value = about_groups[address]
        assert NUMBERS[row.get("of", row["type"])] == int(key["type"])
        assert (row["group"], row.get("member")) == (key["data"]["groupId"], key["data"].get("memberId"))
        assert (value is None) == (row["type"] == "tombstone")
        if value is not None:
            assert value["data"] == as_kafka_prints_group(row)
    others = len(theirs) - len(about_groups)
    assert (f"{others:,} records of offsets and other groups left out" in done.stderr) == bool(others)
