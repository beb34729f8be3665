"""Share groups' records of ``__consumer_offsets`` against the serde of Kafka's group coordinator."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from oracle.kafka_classes import compiled

from acktrail.format.wire.group_record import OTHER_TYPES, decode
from acktrail.model.group_records import (
    AssignedPartitions,
    GroupRecordType,
    NamedPartitions,
    NamedTopic,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupRecord,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
    ShareGroupTombstone,
)
from acktrail.model.share_partition import GroupId, TopicId, topic_id_text
from acktrail_simulation.messages.group_record_encoder import encode

pytestmark = pytest.mark.broker

MAIN_CLASS = "org.apache.kafka.coordinator.group.KafkaGroupRecords"
EACH = 100


def text(source: random.Random) -> str:
    return "".join(source.choices("abcé€-_.<>", k=source.randrange(6)))


def topic(source: random.Random) -> TopicId:
    return topic_id_text(source.randbytes(16))


def int32(source: random.Random) -> int:
    return source.randrange(-(1 << 31), 1 << 31)


def several(source: random.Random, make: Callable[[random.Random], Any]) -> tuple[Any, ...]:
    return tuple(make(source) for _ in range(source.randrange(4)))


def assigned(source: random.Random) -> AssignedPartitions:
    return AssignedPartitions(topic_id=topic(source), partitions=several(source, int32))


def named(source: random.Random) -> NamedPartitions:
    return NamedPartitions(topic_id=topic(source), topic=text(source), partitions=several(source, int32))


def random_record(kind: GroupRecordType, source: random.Random) -> ShareGroupRecord:
    group, member = GroupId(text(source)), text(source)
    if source.random() < 0.1:
        return ShareGroupTombstone(record_type=kind, group_id=group, member_id=member if kind.has_member else None)
    match kind:
        case GroupRecordType.MEMBER_METADATA:
            return ShareGroupMemberMetadata(
                group_id=group,
                member_id=member,
                rack_id=source.choice([None, text(source)]),
                client_id=text(source),
                client_host=text(source),
                subscribed_topics=several(source, text),
            )
        case GroupRecordType.METADATA:
            number = source.randrange(-(1 << 63), 1 << 63)
            return ShareGroupMetadata(group_id=group, epoch=int32(source), metadata_hash=number)
        case GroupRecordType.TARGET_ASSIGNMENT_METADATA:
            at = source.choice([None, source.randrange(1, 1 << 63)])
            return ShareGroupTargetAssignmentMetadata(
                group_id=group, assignment_epoch=int32(source), assignment_timestamp_ms=at
            )
        case GroupRecordType.TARGET_ASSIGNMENT_MEMBER:
            return ShareGroupTargetAssignmentMember(
                group_id=group, member_id=member, assigned=several(source, assigned)
            )
        case GroupRecordType.CURRENT_MEMBER_ASSIGNMENT:
            return ShareGroupCurrentMemberAssignment(
                group_id=group,
                member_id=member,
                member_epoch=int32(source),
                previous_member_epoch=int32(source),
                state=source.randrange(-128, 128),
                assigned=several(source, assigned),
            )
        case GroupRecordType.STATE_PARTITION_METADATA:
            return ShareGroupStatePartitionMetadata(
                group_id=group,
                initializing=several(source, named),
                initialized=several(source, named),
                deleting=several(source, lambda each: NamedTopic(topic_id=topic(each), topic=text(each))),
            )


NAMES = {
    "state": "state",
    "topic": "topicName",
    "subscribed_topics": "subscribedTopicNames",
    "initializing": "initializingTopics",
    "initialized": "initializedTopics",
    "deleting": "deletingTopics",
    "assignment_timestamp_ms": "assignmentTimestamp",
}
"""Kafka's names of fields, where they are not ours in camel case."""


def kafka_form(value: Any, kind: GroupRecordType) -> Any:
    """A value as Kafka's JSON has it."""
    if isinstance(value, list | tuple):
        return [kafka_form(each, kind) for each in value]
    if not isinstance(value, dict):
        return value
    is_target = kind is GroupRecordType.TARGET_ASSIGNMENT_MEMBER
    names = {**NAMES, "assigned": "topicPartitions" if is_target else "assignedPartitions"}
    return {
        names.get(name, re.sub("_(.)", lambda found: found[1].upper(), name)): kafka_form(each, kind)
        for name, each in value.items()
        if not (name == "assignment_timestamp_ms" and each is None)
    }


def line_of(key: bytes, value: bytes | None) -> str:
    return f"{key.hex()} {'-' if value is None else value.hex()}"


def test_kafka_reads_and_writes_the_same(tmp_path: Path) -> None:
    """Kafka reads each record as we do and writes the same bytes; its types are those that we know or skip."""
    program = compiled(("KafkaGroupRecords.java",), MAIN_CLASS, "4.3.1", tmp_path)
    source = random.Random(11)
    kinds = [kind for kind in GroupRecordType for _ in range(EACH)]
    pairs = [encode(random_record(kind, source)) for kind in kinds]

    types, *answers = program.run("\n".join(line_of(*pair) for pair in pairs))

    known = {int(number): name for number, _, name in (each.partition("=") for each in types.split())}
    own = {number: name for number, name in known.items() if number not in OTHER_TYPES}
    assert own == {kind.value: f"SHARE_GROUP_{kind.name}" for kind in GroupRecordType}
    assert len(answers) == 3 * len(pairs)
    for kind, pair, key, content, again in zip(kinds, pairs, answers[::3], answers[1::3], answers[2::3], strict=True):
        record = decode(*pair)
        fields = asdict(record)
        in_key = {"groupId": fields.pop("group_id")}
        if kind.has_member:
            in_key["memberId"] = fields.pop("member_id")
        assert json.loads(key) == in_key
        assert json.loads(content) == (None if isinstance(record, ShareGroupTombstone) else kafka_form(fields, kind))
        assert again == line_of(*pair)
