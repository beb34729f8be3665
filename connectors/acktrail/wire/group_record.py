"""Records of ``__consumer_offsets`` about share groups, types 10 to 15, to values.

A key is int16 type, string group id and, for types 10, 13 and 14, string member id; not flexible. A value is int16
version 0 and a flexible body (Kafka 4.1 and later: ``ShareGroup*Key/Value.json`` of the group coordinator; 4.0 had
other layouts under the same version). Unknown tagged fields and bytes after the message are skipped, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
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
from acktrail.model.share_partition import GroupId, topic_id_text
from acktrail.wire.compact import (
    read_compact_array,
    read_compact_int32s,
    read_compact_nullable_string,
    read_compact_string,
)
from acktrail.wire.primitives import (
    INT8,
    INT16,
    INT32,
    INT64,
    read_bytes,
    read_integer,
    read_string,
    read_unsigned_varint,
    skip_tagged_fields,
)

__all__ = ["VALUE_VERSION", "decode", "is_about_others"]

_OTHER_TYPES: Final = frozenset({*range(9), *range(16, 24)})
"""Offsets (0, 1), classic groups (2), consumer groups (3 to 8, 16) and streams groups (17 to 23)."""

VALUE_VERSION: Final = 0
_TOPIC_ID_BYTES: Final = 16
_TIMESTAMP_TAG: Final = 0
_NO_TIMESTAMP: Final = 0
_VALUE: Final = "value"


def is_about_others(key: bytes | None) -> bool:
    """Whether a key belongs to a record of the same topic that is not about share groups."""
    return key is not None and len(key) >= INT16.size and INT16.unpack_from(key)[0] in _OTHER_TYPES


def decode(key: bytes | None, value: bytes | None) -> ShareGroupRecord:
    """The record encoded in a key and a value.

    Raises:
        UnsupportedRecord: for a type other than 10 to 15, or an unknown value version.
        MalformedRecord: for bytes that are not such a record, with the byte position.
    """
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    number, position = read_integer(key, 0, INT16, "key")
    if number not in _READERS:
        raise UnsupportedRecord("no record type of share groups", part="key", number=number)
    kind = GroupRecordType(number)
    group_id, position = read_string(key, position, "key")
    member_id = read_string(key, position, "key")[0] if kind.has_member else None
    if value is None:
        return ShareGroupTombstone(record_type=kind, group_id=GroupId(group_id), member_id=member_id)
    version, position = read_integer(value, 0, INT16, _VALUE)
    if version != VALUE_VERSION:
        raise UnsupportedRecord("unknown value version", part=_VALUE, number=version)
    return _READERS[kind](GroupId(group_id), member_id or "", value, position)


def _read_member(group_id: GroupId, member_id: str, value: bytes, position: int) -> ShareGroupMemberMetadata:
    rack_id, position = read_compact_nullable_string(value, position, _VALUE)
    client_id, position = read_compact_string(value, position, _VALUE)
    client_host, position = read_compact_string(value, position, _VALUE)
    topics, position = read_compact_array(value, position, _VALUE, read_compact_string, least=1)
    skip_tagged_fields(value, position, _VALUE)
    return ShareGroupMemberMetadata(
        group_id=group_id,
        member_id=member_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        subscribed_topics=topics,
    )


def _read_group(group_id: GroupId, _member_id: str, value: bytes, position: int) -> ShareGroupMetadata:
    epoch, position = read_integer(value, position, INT32, _VALUE)
    metadata_hash, position = read_integer(value, position, INT64, _VALUE)
    skip_tagged_fields(value, position, _VALUE)
    return ShareGroupMetadata(group_id=group_id, epoch=epoch, metadata_hash=metadata_hash)


def _read_target(group_id: GroupId, _member_id: str, value: bytes, position: int) -> ShareGroupTargetAssignmentMetadata:
    epoch, position = read_integer(value, position, INT32, _VALUE)
    time = _read_timestamp(value, position)
    return ShareGroupTargetAssignmentMetadata(
        group_id=group_id, assignment_epoch=epoch, assignment_timestamp_ms=None if time == _NO_TIMESTAMP else time
    )


def _read_timestamp(value: bytes, position: int) -> int:
    """The assignment's time from the message's tag buffer; 0 where it is absent."""
    time = _NO_TIMESTAMP
    fields, position = read_unsigned_varint(value, position, _VALUE)
    for _ in range(fields):
        tag, position = read_unsigned_varint(value, position, _VALUE)
        size, position = read_unsigned_varint(value, position, _VALUE)
        if tag == _TIMESTAMP_TAG:
            # Kafka reads the known field by its type and does not look at the size.
            time, position = read_integer(value, position, INT64, _VALUE)
        else:
            _, position = read_bytes(value, position, size, _VALUE)
    return time


def _read_target_member(
    group_id: GroupId, member_id: str, value: bytes, position: int
) -> ShareGroupTargetAssignmentMember:
    assigned, position = read_compact_array(value, position, _VALUE, _read_assigned, least=_TOPIC_ID_BYTES + 2)
    skip_tagged_fields(value, position, _VALUE)
    return ShareGroupTargetAssignmentMember(group_id=group_id, member_id=member_id, assigned=assigned)


def _read_current_member(
    group_id: GroupId, member_id: str, value: bytes, position: int
) -> ShareGroupCurrentMemberAssignment:
    epoch, position = read_integer(value, position, INT32, _VALUE)
    previous, position = read_integer(value, position, INT32, _VALUE)
    state, position = read_integer(value, position, INT8, _VALUE)
    assigned, position = read_compact_array(value, position, _VALUE, _read_assigned, least=_TOPIC_ID_BYTES + 2)
    skip_tagged_fields(value, position, _VALUE)
    return ShareGroupCurrentMemberAssignment(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        previous_member_epoch=previous,
        state=state,
        assigned=assigned,
    )


def _read_state_partitions(
    group_id: GroupId, _member_id: str, value: bytes, position: int
) -> ShareGroupStatePartitionMetadata:
    initializing, position = read_compact_array(value, position, _VALUE, _read_named, least=_TOPIC_ID_BYTES + 3)
    initialized, position = read_compact_array(value, position, _VALUE, _read_named, least=_TOPIC_ID_BYTES + 3)
    deleting, position = read_compact_array(value, position, _VALUE, _read_topic, least=_TOPIC_ID_BYTES + 2)
    skip_tagged_fields(value, position, _VALUE)
    return ShareGroupStatePartitionMetadata(
        group_id=group_id, initializing=initializing, initialized=initialized, deleting=deleting
    )


def _read_assigned(value: bytes, position: int, part: str) -> tuple[AssignedPartitions, int]:
    topic_id, position = read_bytes(value, position, _TOPIC_ID_BYTES, part)
    partitions, position = read_compact_int32s(value, position, part)
    found = AssignedPartitions(topic_id=topic_id_text(topic_id), partitions=partitions)
    return found, skip_tagged_fields(value, position, part)


def _read_named(value: bytes, position: int, part: str) -> tuple[NamedPartitions, int]:
    topic_id, position = read_bytes(value, position, _TOPIC_ID_BYTES, part)
    topic, position = read_compact_string(value, position, part)
    partitions, position = read_compact_int32s(value, position, part)
    found = NamedPartitions(topic_id=topic_id_text(topic_id), topic=topic, partitions=partitions)
    return found, skip_tagged_fields(value, position, part)


def _read_topic(value: bytes, position: int, part: str) -> tuple[NamedTopic, int]:
    topic_id, position = read_bytes(value, position, _TOPIC_ID_BYTES, part)
    topic, position = read_compact_string(value, position, part)
    return NamedTopic(topic_id=topic_id_text(topic_id), topic=topic), skip_tagged_fields(value, position, part)


_READERS: Final[Mapping[int, Callable[[GroupId, str, bytes, int], ShareGroupRecord]]] = MappingProxyType(
    {
        GroupRecordType.MEMBER_METADATA: _read_member,
        GroupRecordType.METADATA: _read_group,
        GroupRecordType.TARGET_ASSIGNMENT_METADATA: _read_target,
        GroupRecordType.TARGET_ASSIGNMENT_MEMBER: _read_target_member,
        GroupRecordType.CURRENT_MEMBER_ASSIGNMENT: _read_current_member,
        GroupRecordType.STATE_PARTITION_METADATA: _read_state_partitions,
    }
)
