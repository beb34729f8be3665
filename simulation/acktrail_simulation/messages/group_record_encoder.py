"""Records of ``__consumer_offsets`` about share groups, to bytes: the inverse of ``group_record.decode``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from acktrail.format.wire.group_record import VALUE_VERSION
from acktrail.format.wire.primitives import INT8, INT16, INT32, INT64, write_unsigned_varint
from acktrail.model.group_records import (
    AssignedPartitions,
    GroupRecordType,
    NamedPartitions,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupRecord,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
    ShareGroupTombstone,
    ShareGroupValue,
)
from acktrail.model.share_partition import topic_id_bytes

_NO_TAGS: Final = b"\x00"
_TIMESTAMP: Final = b"\x01\x00\x08"


def encode(record: ShareGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value of `record` as Kafka 4.1 and later write them.

    Raises:
        ValueError: for a tombstone with a member where its type has none, or without one where it has.
    """
    member_id = getattr(record, "member_id", None)
    if not isinstance(record, ShareGroupTombstone):
        return _key_bytes(_TYPES[type(record)], record.group_id, member_id), INT16.pack(VALUE_VERSION) + _body(record)
    if record.record_type.has_member != (member_id is not None):
        raise ValueError(f"a tombstone of {record.record_type.name} names a member exactly when the record does")
    return _key_bytes(record.record_type, record.group_id, member_id), None


_TYPES: Final[Mapping[type, GroupRecordType]] = MappingProxyType(
    {
        ShareGroupMemberMetadata: GroupRecordType.MEMBER_METADATA,
        ShareGroupMetadata: GroupRecordType.METADATA,
        ShareGroupTargetAssignmentMetadata: GroupRecordType.TARGET_ASSIGNMENT_METADATA,
        ShareGroupTargetAssignmentMember: GroupRecordType.TARGET_ASSIGNMENT_MEMBER,
        ShareGroupCurrentMemberAssignment: GroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
        ShareGroupStatePartitionMetadata: GroupRecordType.STATE_PARTITION_METADATA,
    }
)


def _body(record: ShareGroupValue) -> bytes:
    match record:
        case ShareGroupMemberMetadata():
            texts = [_compact_string_bytes(t) for t in (record.rack_id, record.client_id, record.client_host)]
            topics = _compact_array_bytes(map(_compact_string_bytes, record.subscribed_topics))
            return b"".join((*texts, topics, _NO_TAGS))
        case ShareGroupMetadata():
            return INT32.pack(record.epoch) + INT64.pack(record.metadata_hash) + _NO_TAGS
        case ShareGroupTargetAssignmentMetadata():
            return _target_bytes(record)
        case ShareGroupTargetAssignmentMember():
            return _compact_array_bytes(map(_assigned_bytes, record.assigned)) + _NO_TAGS
        case ShareGroupCurrentMemberAssignment():
            numbers = INT32.pack(record.member_epoch) + INT32.pack(record.previous_member_epoch)
            assigned = _compact_array_bytes(map(_assigned_bytes, record.assigned))
            return b"".join((numbers, INT8.pack(record.state), assigned, _NO_TAGS))
        case ShareGroupStatePartitionMetadata():
            return _state_partitions_bytes(record)


def _key_bytes(kind: int, group_id: str, member_id: str | None) -> bytes:
    texts = [text.encode("utf-8") for text in (group_id, member_id) if text is not None]
    return INT16.pack(kind) + b"".join(INT16.pack(len(raw)) + raw for raw in texts)


def _target_bytes(record: ShareGroupTargetAssignmentMetadata) -> bytes:
    time = record.assignment_timestamp_ms
    tags = _NO_TAGS if time is None else _TIMESTAMP + INT64.pack(time)
    return INT32.pack(record.assignment_epoch) + tags


def _state_partitions_bytes(record: ShareGroupStatePartitionMetadata) -> bytes:
    named = [_compact_array_bytes(map(_named_bytes, found)) for found in (record.initializing, record.initialized)]
    topics = [topic_id_bytes(t.topic_id) + _compact_string_bytes(t.topic) + _NO_TAGS for t in record.deleting]
    return b"".join((*named, _compact_array_bytes(topics), _NO_TAGS))


def _assigned_bytes(assigned: AssignedPartitions) -> bytes:
    partitions = _compact_array_bytes(map(INT32.pack, assigned.partitions))
    return topic_id_bytes(assigned.topic_id) + partitions + _NO_TAGS


def _named_bytes(named: NamedPartitions) -> bytes:
    partitions = _compact_array_bytes(map(INT32.pack, named.partitions))
    return topic_id_bytes(named.topic_id) + _compact_string_bytes(named.topic) + partitions + _NO_TAGS


def _compact_string_bytes(text: str | None) -> bytes:
    """The inverse of ``wire.compact.read_compact_nullable_string``."""
    if text is None:
        return b"\x00"
    raw = text.encode("utf-8")
    return write_unsigned_varint(len(raw) + 1) + raw


def _compact_array_bytes(items: Iterable[bytes]) -> bytes:
    """The inverse of ``wire.compact.read_compact_array``, of encoded items."""
    encoded = [*items]
    return write_unsigned_varint(len(encoded) + 1) + b"".join(encoded)
