"""Share groups' records of ``__consumer_offsets`` as Kafka's classes and tools print them."""

from __future__ import annotations

import re
from typing import Any

from acktrail.format.wire.group_record import GroupRecordType, ShareGroupRecord

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


def kafka_forms(record: ShareGroupRecord) -> tuple[dict[str, Any], Any]:
    """Key and value of a record."""
    in_key = kafka_form(record.address, record.record_type)
    return in_key, None if record.fields is None else kafka_form(record.fields, record.record_type)
