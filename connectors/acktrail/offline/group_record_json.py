"""Share-group records of ``__consumer_offsets`` as JSON. `partition` and `offset` are the record's address."""

from __future__ import annotations

from dataclasses import asdict
from types import MappingProxyType
from typing import Final

from acktrail.model.group_records import (
    GroupRecordType,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupMetadata,
    ShareGroupRecord,
    ShareGroupStatePartitionMetadata,
    ShareGroupTargetAssignmentMember,
    ShareGroupTargetAssignmentMetadata,
    ShareGroupTombstone,
)
from acktrail.wire.raw_record import AddressedRecord

_TYPES: Final = MappingProxyType(
    {
        ShareGroupMemberMetadata: GroupRecordType.MEMBER_METADATA,
        ShareGroupMetadata: GroupRecordType.METADATA,
        ShareGroupTargetAssignmentMetadata: GroupRecordType.TARGET_ASSIGNMENT_METADATA,
        ShareGroupTargetAssignmentMember: GroupRecordType.TARGET_ASSIGNMENT_MEMBER,
        ShareGroupCurrentMemberAssignment: GroupRecordType.CURRENT_MEMBER_ASSIGNMENT,
        ShareGroupStatePartitionMetadata: GroupRecordType.STATE_PARTITION_METADATA,
    }
)
_NAMES: Final = MappingProxyType(
    {
        "group_id": "group",
        "member_id": "member",
        "rack_id": "rack",
        "assignment_timestamp_ms": "assignment_timestamp",
    }
)
"""Fields with another name in JSON."""


def group_record_json(addressed: AddressedRecord[ShareGroupRecord]) -> dict[str, object]:
    """One decoded record with its address; for one that could not be read, its status and the reason."""
    form: dict[str, object] = {
        "partition": addressed.raw.state_partition,
        "offset": addressed.raw.offset,
        "timestamp": addressed.raw.timestamp_ms,
        "decode_status": addressed.status.value,
    }
    record = addressed.record
    if record is None:
        return {**form, "decode_error": addressed.reason}
    if isinstance(record, ShareGroupTombstone):
        member = {} if record.member_id is None else {"member": record.member_id}
        return {**form, "type": "tombstone", "of": record.record_type.name.lower(), "group": record.group_id, **member}
    content = {_NAMES.get(name, name): value for name, value in asdict(record).items()}
    return {**form, "type": _TYPES[type(record)].name.lower(), **content}
