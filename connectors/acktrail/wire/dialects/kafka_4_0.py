"""State records as Kafka 4.0 (early access) wrote them: uint16 snapshot epoch, no timestamps, no complete count.

Key and value version are those of every later release; only the layout tells them apart (Kafka 4.0:
``ShareSnapshotValue.json``, ``ShareUpdateValue.json``). Unknown tagged fields and bytes after the message are passed
over, as Kafka's generated readers do.
"""

from __future__ import annotations

from typing import Final

from acktrail.errors import MalformedRecord
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import SharePartition
from acktrail.wire.dialects.batch_arrays import (
    UINT16,
    absent_if_none,
    none_if_absent,
    packed,
    read_compact_batch_array,
    read_version,
    write_compact_batch_array,
)
from acktrail.wire.dialects.kafka_4_2 import VALUE_VERSION
from acktrail.wire.primitives import INT16, INT32, INT64, read_integer, skip_tagged_fields
from acktrail.wire.state_key import SNAPSHOT_TYPE, UPDATE_TYPE, decode_key, encode_key

__all__ = ["decode", "encode"]

_NO_TAGS: Final = b"\x00"


def decode(key: bytes | None, value: bytes | None) -> StateRecord:
    """The record that a key and a value spell.

    Raises:
        UnsupportedRecord: for an unknown record type or value version.
        MalformedRecord: for bytes that are no such record, with the byte position; also for a null value under an
            update key.
    """
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    kind, share_partition = decode_key(key)
    if value is None:
        if kind == UPDATE_TYPE:
            raise MalformedRecord("null value under an update key", part="value", position=0)
        return Tombstone(key=share_partition)
    _, position = read_version(value, "value", (VALUE_VERSION,))
    return (_read_snapshot if kind == SNAPSHOT_TYPE else _read_update)(share_partition, value, position)


def encode(record: StateRecord) -> tuple[bytes, bytes | None]:
    """Key and value of `record`.

    Raises:
        ValueError: for what Kafka 4.0 has no field for (timestamps, a complete count) or a number that does not fit.
    """
    match record:
        case Tombstone():
            return encode_key(SNAPSHOT_TYPE, record.key), None
        case ShareSnapshot():
            return encode_key(SNAPSHOT_TYPE, record.key), _snapshot_bytes(record)
        case ShareUpdate():
            return encode_key(UPDATE_TYPE, record.key), _update_bytes(record)


def _read_snapshot(key: SharePartition, value: bytes, position: int) -> ShareSnapshot:
    snapshot_epoch, position = read_integer(value, position, UINT16, "value")
    state_epoch, position = read_integer(value, position, INT32, "value")
    leader_epoch, position = read_integer(value, position, INT32, "value")
    start_offset, position = read_integer(value, position, INT64, "value")
    batches, position = read_compact_batch_array(value, position)
    skip_tagged_fields(value, position, "value")
    return ShareSnapshot(
        key=key,
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=none_if_absent(start_offset),
        delivery_complete_count=None,
        create_timestamp_ms=None,
        write_timestamp_ms=None,
        batches=batches,
    )


def _read_update(key: SharePartition, value: bytes, position: int) -> ShareUpdate:
    snapshot_epoch, position = read_integer(value, position, UINT16, "value")
    leader_epoch, position = read_integer(value, position, INT32, "value")
    start_offset, position = read_integer(value, position, INT64, "value")
    batches, position = read_compact_batch_array(value, position)
    skip_tagged_fields(value, position, "value")
    return ShareUpdate(
        key=key,
        snapshot_epoch=snapshot_epoch,
        leader_epoch=none_if_absent(leader_epoch),
        start_offset=none_if_absent(start_offset),
        delivery_complete_count=None,
        batches=batches,
    )


def _snapshot_bytes(record: ShareSnapshot) -> bytes:
    later = (record.create_timestamp_ms, record.write_timestamp_ms, record.delivery_complete_count)
    if later != (None, None, None):
        raise ValueError("a snapshot of Kafka 4.0 has neither timestamps nor a complete count")
    return b"".join(
        (
            INT16.pack(VALUE_VERSION),
            packed(UINT16, record.snapshot_epoch, "snapshot epoch"),
            packed(INT32, record.state_epoch, "state epoch"),
            packed(INT32, record.leader_epoch, "leader epoch"),
            packed(INT64, absent_if_none(record.start_offset), "start offset"),
            write_compact_batch_array(record.batches),
            _NO_TAGS,
        )
    )


def _update_bytes(record: ShareUpdate) -> bytes:
    if record.delivery_complete_count is not None:
        raise ValueError("an update of Kafka 4.0 has no complete count")
    return b"".join(
        (
            INT16.pack(VALUE_VERSION),
            packed(UINT16, record.snapshot_epoch, "snapshot epoch"),
            packed(INT32, absent_if_none(record.leader_epoch), "leader epoch"),
            packed(INT64, absent_if_none(record.start_offset), "start offset"),
            write_compact_batch_array(record.batches),
            _NO_TAGS,
        )
    )
