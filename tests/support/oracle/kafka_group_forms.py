"""Share groups' records of ``__consumer_offsets`` as Kafka's classes and tools print them."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from acktrail.model.group_records import GroupRecordType, ShareGroupRecord, ShareGroupTombstone

__all__ = ["kafka_forms"]

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


def kafka_forms(record: ShareGroupRecord, number: int) -> tuple[dict[str, Any], Any]:
    """Key and value of a record of type `number`."""
    kind, fields = GroupRecordType(number), asdict(record)
    in_key = {"groupId": fields.pop("group_id")}
    if kind.has_member:
        in_key["memberId"] = fields.pop("member_id")
    return in_key, None if isinstance(record, ShareGroupTombstone) else kafka_form(fields, kind)
