"""Records of ``__consumer_offsets`` about share groups, types 10 to 15, to values.

A key is int16 type, string group id and, for types 10, 13 and 14, string member id; not flexible. A value is int16
version 0 and a flexible body (Kafka 4.1 and later: ``ShareGroup*Key/Value.json`` of the group coordinator; 4.0 had
other layouts under the same version). Unknown tagged fields and bytes after the message are skipped, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any, Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.wire.primitives import INT8, INT16, INT32, INT64, Reader
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
from acktrail.model.share_partition import TOPIC_ID_BYTES, GroupId, TopicId, topic_id_text

OTHER_TYPES: Final = frozenset({*range(9), *range(16, 24)})
"""Offsets (0, 1), classic groups (2), consumer groups (3 to 8, 16) and streams groups (17 to 23)."""
VALUE_VERSION: Final = 0
_TYPES: Final = frozenset(GroupRecordType)
_TIMESTAMP_TAG: Final = 0
_NO_TIMESTAMP: Final = 0

_Read = Callable[[Reader], Any]


def _timestamp(reader: Reader) -> int | None:
    """The one tagged field of its record, whose tag buffer is read with it."""
    return reader.tagged_integer(_TIMESTAMP_TAG, INT64, _NO_TIMESTAMP) or None


def _topic_id(reader: Reader) -> TopicId:
    return topic_id_text(reader.raw(TOPIC_ID_BYTES))


def _array(row: type[Any], least: int, **fields: _Read) -> _Read:
    """An array of structures of at least `least` bytes behind the topic id: `fields` by the name of `row`'s."""

    def one(reader: Reader) -> Any:
        found = row(**{name: read(reader) for name, read in fields.items()})
        reader.skip_tagged_fields()
        return found

    return lambda reader: reader.compact_array(lambda: one(reader), least=TOPIC_ID_BYTES + least)


_epoch: Final[_Read] = methodcaller("integer", INT32)
_ids: Final[dict[str, _Read]] = {"topic_id": _topic_id, "topic": Reader.compact_string}
_partitions: Final[dict[str, _Read]] = {"partitions": Reader.compact_int32s}
_assigned: Final = _array(AssignedPartitions, 2, topic_id=_topic_id, **_partitions)
_named: Final = _array(NamedPartitions, 3, **_ids, **_partitions)

_LAYOUTS: Final[Mapping[GroupRecordType, tuple[type[Any], Mapping[str, _Read]]]] = {
    GroupRecordType.MEMBER_METADATA: (
        ShareGroupMemberMetadata,
        {
            "rack_id": Reader.compact_nullable_string,
            "client_id": Reader.compact_string,
            "client_host": Reader.compact_string,
            "subscribed_topics": lambda reader: reader.compact_array(reader.compact_string, least=1),
        },
    ),
    GroupRecordType.METADATA: (ShareGroupMetadata, {"epoch": _epoch, "metadata_hash": methodcaller("integer", INT64)}),
    GroupRecordType.TARGET_ASSIGNMENT_METADATA: (
        ShareGroupTargetAssignmentMetadata,
        {"assignment_epoch": _epoch, "assignment_timestamp_ms": _timestamp},
    ),
    GroupRecordType.TARGET_ASSIGNMENT_MEMBER: (ShareGroupTargetAssignmentMember, {"assigned": _assigned}),
    GroupRecordType.CURRENT_MEMBER_ASSIGNMENT: (
        ShareGroupCurrentMemberAssignment,
        {
            "member_epoch": _epoch,
            "previous_member_epoch": _epoch,
            "state": methodcaller("integer", INT8),
            "assigned": _assigned,
        },
    ),
    GroupRecordType.STATE_PARTITION_METADATA: (
        ShareGroupStatePartitionMetadata,
        {"initializing": _named, "initialized": _named, "deleting": _array(NamedTopic, 2, **_ids)},
    ),
}
"""What each type's value becomes, and how its fields are read, in their order."""


def is_about_others(key: bytes | None) -> bool:
    """Whether a key belongs to a record of the same topic that is not about share groups."""
    return key is not None and len(key) >= INT16.size and INT16.unpack_from(key)[0] in OTHER_TYPES


def decode(key: bytes | None, value: bytes | None) -> ShareGroupRecord:
    """The record encoded in a key and a value.

    Raises:
        UnsupportedRecord: for a type other than 10 to 15, or an unknown value version.
        MalformedRecord: for bytes that are not such a record, with the byte position.
    """
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    keys = Reader(key, "key")
    number = keys.integer(INT16)
    if number not in _TYPES:
        raise UnsupportedRecord("no record type of share groups", part="key", number=number)
    kind = GroupRecordType(number)
    group_id = GroupId(keys.string())
    member_id = keys.string() if kind.has_member else None
    if value is None:
        return ShareGroupTombstone(record_type=kind, group_id=group_id, member_id=member_id)
    values = Reader(value, "value")
    version = values.integer(INT16)
    if version != VALUE_VERSION:
        raise UnsupportedRecord("unknown value version", part="value", number=version)
    kind_of_record, fields = _LAYOUTS[kind]
    member = {"member_id": member_id} if kind.has_member else {}
    record: ShareGroupRecord = kind_of_record(
        group_id=group_id, **member, **{name: read(values) for name, read in fields.items()}
    )
    if kind is not GroupRecordType.TARGET_ASSIGNMENT_METADATA:
        values.skip_tagged_fields()
    return record
