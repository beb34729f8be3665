"""Records of ``__consumer_offsets`` about share groups, types 10 to 15, to values.

A key is int16 type, string group id and, for types 10, 13 and 14, string member id; not flexible. A value is int16
version 0 and a flexible body (Kafka 4.1 and later: ``ShareGroup*Key/Value.json`` of the group coordinator; 4.0 had
other layouts under the same version). Unknown tagged fields and bytes after the message are skipped, as Kafka does.
"""

from __future__ import annotations

from typing import Final

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
from acktrail.model.share_partition import TOPIC_ID_BYTES, GroupId, topic_id_text

OTHER_TYPES: Final = frozenset({*range(9), *range(16, 24)})
"""Offsets (0, 1), classic groups (2), consumer groups (3 to 8, 16) and streams groups (17 to 23)."""
VALUE_VERSION: Final = 0
_TYPES: Final = frozenset(GroupRecordType)
_TIMESTAMP_TAG: Final = 0
_NO_TIMESTAMP: Final = 0


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
    record = _read(kind, group_id, member_id or "", values)
    if kind is not GroupRecordType.TARGET_ASSIGNMENT_METADATA:
        values.skip_tagged_fields()
    return record


def _read(kind: GroupRecordType, group_id: GroupId, member_id: str, reader: Reader) -> ShareGroupRecord:
    match kind:
        case GroupRecordType.MEMBER_METADATA:
            return ShareGroupMemberMetadata(
                group_id=group_id,
                member_id=member_id,
                rack_id=reader.compact_nullable_string(),
                client_id=reader.compact_string(),
                client_host=reader.compact_string(),
                subscribed_topics=reader.compact_array(reader.compact_string, least=1),
            )
        case GroupRecordType.METADATA:
            epoch, topics_hash = reader.integer(INT32), reader.integer(INT64)
            return ShareGroupMetadata(group_id=group_id, epoch=epoch, metadata_hash=topics_hash)
        case GroupRecordType.TARGET_ASSIGNMENT_METADATA:
            epoch, time = reader.integer(INT32), reader.tagged_integer(_TIMESTAMP_TAG, INT64, _NO_TIMESTAMP)
            return ShareGroupTargetAssignmentMetadata(
                group_id=group_id,
                assignment_epoch=epoch,
                assignment_timestamp_ms=None if time == _NO_TIMESTAMP else time,
            )
        case GroupRecordType.TARGET_ASSIGNMENT_MEMBER:
            assigned = _read_assigned(reader)
            return ShareGroupTargetAssignmentMember(group_id=group_id, member_id=member_id, assigned=assigned)
        case GroupRecordType.CURRENT_MEMBER_ASSIGNMENT:
            return ShareGroupCurrentMemberAssignment(
                group_id=group_id,
                member_id=member_id,
                member_epoch=reader.integer(INT32),
                previous_member_epoch=reader.integer(INT32),
                state=reader.integer(INT8),
                assigned=_read_assigned(reader),
            )
        case GroupRecordType.STATE_PARTITION_METADATA:
            return _read_state_partitions(group_id, reader)


def _read_state_partitions(group_id: GroupId, reader: Reader) -> ShareGroupStatePartitionMetadata:
    def named() -> NamedPartitions:
        topic_id, topic = topic_id_text(reader.raw(TOPIC_ID_BYTES)), reader.compact_string()
        partitions = NamedPartitions(topic_id=topic_id, topic=topic, partitions=reader.compact_int32s())
        reader.skip_tagged_fields()
        return partitions

    def topic() -> NamedTopic:
        named_topic = NamedTopic(topic_id=topic_id_text(reader.raw(TOPIC_ID_BYTES)), topic=reader.compact_string())
        reader.skip_tagged_fields()
        return named_topic

    return ShareGroupStatePartitionMetadata(
        group_id=group_id,
        initializing=reader.compact_array(named, least=TOPIC_ID_BYTES + 3),
        initialized=reader.compact_array(named, least=TOPIC_ID_BYTES + 3),
        deleting=reader.compact_array(topic, least=TOPIC_ID_BYTES + 2),
    )


def _read_assigned(reader: Reader) -> tuple[AssignedPartitions, ...]:
    def assigned() -> AssignedPartitions:
        topic_id = topic_id_text(reader.raw(TOPIC_ID_BYTES))
        partitions = AssignedPartitions(topic_id=topic_id, partitions=reader.compact_int32s())
        reader.skip_tagged_fields()
        return partitions

    return reader.compact_array(assigned, least=TOPIC_ID_BYTES + 2)
