"""How share-group records of ``__consumer_offsets`` look as JSON. `partition` and `offset` are the record's address."""

from __future__ import annotations

from collections.abc import Iterable

from acktrail.model.group_records import (
    AssignedPartitions,
    NamedPartitions,
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

__all__ = ["group_record_json"]


def group_record_json(addressed: AddressedRecord[ShareGroupRecord]) -> dict[str, object]:
    """One decoded record with its address; for one that could not be read, its status and the reason."""
    form: dict[str, object] = {
        "partition": addressed.raw.state_partition,
        "offset": addressed.raw.offset,
        "timestamp": addressed.raw.timestamp_ms,
        "decode_status": addressed.status.value,
    }
    if addressed.record is None:
        return {**form, "decode_error": addressed.reason}
    return {**form, **_content(addressed.record)}


def _content(record: ShareGroupRecord) -> dict[str, object]:
    match record:
        case ShareGroupTombstone():
            member = {} if record.member_id is None else {"member": record.member_id}
            return {"type": "tombstone", "of": record.record_type.name.lower(), "group": record.group_id, **member}
        case ShareGroupMetadata():
            return {
                "type": "metadata",
                "group": record.group_id,
                "epoch": record.epoch,
                "metadata_hash": record.metadata_hash,
            }
        case ShareGroupTargetAssignmentMetadata():
            return {
                "type": "target_assignment_metadata",
                "group": record.group_id,
                "assignment_epoch": record.assignment_epoch,
                "assignment_timestamp": record.assignment_timestamp_ms,
            }
        case ShareGroupStatePartitionMetadata():
            return {
                "type": "state_partition_metadata",
                "group": record.group_id,
                "initializing": _named(record.initializing),
                "initialized": _named(record.initialized),
                "deleting": [{"topic_id": found.topic_id, "topic": found.topic} for found in record.deleting],
            }
        case _:
            return _of_member(record)


def _of_member(
    record: ShareGroupMemberMetadata | ShareGroupTargetAssignmentMember | ShareGroupCurrentMemberAssignment,
) -> dict[str, object]:
    names: dict[str, object] = {"group": record.group_id, "member": record.member_id}
    match record:
        case ShareGroupMemberMetadata():
            return {
                "type": "member_metadata",
                **names,
                "rack": record.rack_id,
                "client_id": record.client_id,
                "client_host": record.client_host,
                "subscribed_topics": list(record.subscribed_topics),
            }
        case ShareGroupTargetAssignmentMember():
            return {"type": "target_assignment_member", **names, "assigned": _assigned(record.assigned)}
        case ShareGroupCurrentMemberAssignment():
            return {
                "type": "current_member_assignment",
                **names,
                "member_epoch": record.member_epoch,
                "previous_member_epoch": record.previous_member_epoch,
                "state": record.state,
                "assigned": _assigned(record.assigned),
            }


def _assigned(found: Iterable[AssignedPartitions]) -> list[dict[str, object]]:
    return [{"topic_id": one.topic_id, "partitions": list(one.partitions)} for one in found]


def _named(found: Iterable[NamedPartitions]) -> list[dict[str, object]]:
    return [{"topic_id": one.topic_id, "topic": one.topic, "partitions": list(one.partitions)} for one in found]
