"""Records and states as JSON: the stable output of ``acktrail record decode`` and ``acktrail record replay``. -1 is
Kafka's own "not known" for epochs and start offset; a delivery complete count is null instead."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from acktrail.format.wire.dialects.dialect import Dialect, JsonForm
from acktrail.format.wire.dialects.released import key_form
from acktrail.format.wire.primitives import INT16, absent_if_none, batches_form
from acktrail.format.wire.raw_record import AddressedRecord
from acktrail.model.group_records import GroupRecordType, ShareGroupRecord, ShareGroupTombstone
from acktrail.model.records import ShareSnapshot, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState

_GROUP_NAMES: Final = {
    "group_id": "group",
    "member_id": "member",
    "rack_id": "rack",
    "assignment_timestamp_ms": "assignment_timestamp",
}
"""Fields of a group's record with another name in JSON."""


def record_json(addressed: AddressedRecord[Any], dialect: Dialect[Any]) -> JsonForm:
    """One decoded record of `dialect` with its address; for one that could not be read, its status and the reason."""
    form = _address("state_partition", addressed)
    if addressed.record is None:
        return form
    if dialect.content is not None:
        return {**form, **dialect.content(addressed.record, addressed.raw.state_partition)}
    return {**form, **_content(addressed.record)}


def group_record_json(addressed: AddressedRecord[ShareGroupRecord]) -> JsonForm:
    """``record_json`` of a record of ``__consumer_offsets``."""
    form, record = _address("partition", addressed), addressed.record
    if record is None:
        return form
    if isinstance(record, ShareGroupTombstone):
        member = {} if record.member_id is None else {"member": record.member_id}
        return {**form, "type": "tombstone", "of": record.record_type.name.lower(), "group": record.group_id, **member}
    kind = GroupRecordType(INT16.unpack_from(addressed.raw.key or b"")[0])
    content = {_GROUP_NAMES.get(name, name): value for name, value in asdict(record).items()}
    return {**form, "type": kind.name.lower(), **content}


def state_json(state: SharePartitionState) -> JsonForm:
    """The replayed state of one share partition; `state_epoch` is -1 where only updates were seen."""
    return {
        **key_form(state.key),
        "state_epoch": absent_if_none(state.state_epoch),
        "snapshot_epoch": state.snapshot_epoch,
        "leader_epoch": absent_if_none(state.leader_epoch),
        "start_offset": absent_if_none(state.start_offset),
        "delivery_complete_count": state.delivery_complete_count,
        "batches": batches_form(state.batches),
    }


def _address(partition: str, addressed: AddressedRecord[Any]) -> JsonForm:
    """Where a record is, its status, and why it could not be read."""
    raw, record = addressed.raw, addressed.record
    form = {partition: raw.state_partition, "offset": raw.offset, "timestamp": raw.timestamp_ms}
    error = {"decode_error": addressed.reason} if record is None else {}
    return {**form, "decode_status": addressed.status.value, **error}


def _content(record: StateRecord) -> JsonForm:
    if isinstance(record, Tombstone):
        return {"type": "tombstone", **key_form(record.key)}
    epochs, times = {}, {}
    if isinstance(record, ShareSnapshot):
        epochs = {"state_epoch": record.state_epoch}
        times = {"create_timestamp": record.create_timestamp_ms, "write_timestamp": record.write_timestamp_ms}
    return {
        "type": "snapshot" if isinstance(record, ShareSnapshot) else "update",
        **key_form(record.key),
        "snapshot_epoch": record.snapshot_epoch,
        **epochs,
        "leader_epoch": absent_if_none(record.leader_epoch),
        "start_offset": absent_if_none(record.start_offset),
        "delivery_complete_count": record.delivery_complete_count,
        **times,
        "batches": batches_form(record.batches),
    }
