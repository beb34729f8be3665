"""How records and states look as JSON: the stable contract of ``acktrail decode`` and ``acktrail replay``.

In these forms -1 is Kafka's own number for "not known" where Kafka has one (epochs, start offset); the delivery
complete count is null instead.
"""

from __future__ import annotations

from typing import assert_never

from acktrail.model.delivery import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import SharePartition
from acktrail.wire.raw_record import AddressedRecord

__all__ = ["record_json", "state_json"]


def record_json(addressed: AddressedRecord) -> dict[str, object]:
    """One decoded record with its address; for one that could not be read, its status and the reason."""
    raw = addressed.raw
    form: dict[str, object] = {
        "state_partition": raw.state_partition,
        "offset": raw.offset,
        "timestamp": raw.timestamp_ms,
        "decode_status": addressed.status.value,
    }
    if addressed.record is None:
        return {**form, "decode_error": addressed.reason}
    return {**form, **_content(addressed.record)}


def state_json(state: SharePartitionState) -> dict[str, object]:
    """The replayed state of one share partition; `state_epoch` is -1 where only updates were seen."""
    return {
        **_key(state.key),
        "state_epoch": _number(state.state_epoch),
        "snapshot_epoch": state.snapshot_epoch,
        "leader_epoch": _number(state.leader_epoch),
        "start_offset": _number(state.start_offset),
        "delivery_complete_count": state.delivery_complete_count,
        "batches": _batches(state.batches),
    }


def _content(record: StateRecord) -> dict[str, object]:
    match record:
        case Tombstone():
            return {"type": "tombstone", **_key(record.key)}
        case ShareSnapshot():
            return {
                "type": "snapshot",
                **_key(record.key),
                "snapshot_epoch": record.snapshot_epoch,
                "state_epoch": record.state_epoch,
                "leader_epoch": record.leader_epoch,
                "start_offset": _number(record.start_offset),
                "delivery_complete_count": record.delivery_complete_count,
                "create_timestamp": record.create_timestamp_ms,
                "write_timestamp": record.write_timestamp_ms,
                "batches": _batches(record.batches),
            }
        case ShareUpdate():
            return {
                "type": "update",
                **_key(record.key),
                "snapshot_epoch": record.snapshot_epoch,
                "leader_epoch": _number(record.leader_epoch),
                "start_offset": _number(record.start_offset),
                "delivery_complete_count": record.delivery_complete_count,
                "batches": _batches(record.batches),
            }
        case _:
            assert_never(record)


def _key(share_partition: SharePartition) -> dict[str, object]:
    return {
        "group": share_partition.group_id,
        "topic_id": share_partition.topic_id,
        "partition": share_partition.partition,
    }


def _batches(batches: tuple[StateBatch, ...]) -> list[list[int]]:
    return [[b.first_offset, b.last_offset, b.delivery_state, b.delivery_count] for b in batches]


def _number(value: int | None) -> int:
    return -1 if value is None else value
