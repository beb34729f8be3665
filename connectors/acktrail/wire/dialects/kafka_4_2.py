"""State records as Kafka 4.2 and later write them (and 4.1 without the complete count).

Layout (Kafka: ``ShareSnapshotValue.json``, ``ShareUpdateValue.json``; version 0 in every release): a value is int16
version and a flexible body whose tag 0 is the delivery complete count (Kafka 4.2, KIP-1226). Unknown tagged fields and
bytes after the message are skipped, as Kafka's generated readers do. The keys are ``state_key``'s.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from acktrail.errors import MalformedRecord
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import SharePartition
from acktrail.wire.dialects.batch_arrays import (
    absent_if_none,
    none_if_absent,
    packed,
    read_compact_batch_array,
    read_version,
    write_compact_batch_array,
)
from acktrail.wire.primitives import INT16, INT32, INT64, read_bytes, read_integer, read_unsigned_varint
from acktrail.wire.state_key import SNAPSHOT_TYPE, UPDATE_TYPE, decode_key, encode_key

__all__ = ["VALUE_VERSION", "decode", "decode_values", "encode", "encode_values"]

VALUE_VERSION: Final = 0

_ABSENT: Final = -1
_COUNT_TAG: Final = 0

_ReadValue = Callable[[SharePartition, bytes, int], StateRecord]
"""Share partition, value, and the position after its version, to a record."""


def decode(key: bytes | None, value: bytes | None) -> StateRecord:
    """The record encoded in a key and a value.

    Raises:
        UnsupportedRecord: for an unknown record type or value version.
        MalformedRecord: for bytes that are not such a record, with the byte position; also for a null key and for a
            null value under an update key: no broker writes them, and a broker fails to load them.
    """
    return decode_values(key, value, _read_snapshot, _read_update)


def encode(record: StateRecord) -> tuple[bytes, bytes | None]:
    """Key and value of `record` as Kafka 4.2 and later write them; an unknown complete count is left out.

    Raises:
        ValueError: for a snapshot without timestamps (the dialects before Kafka 4.1), or a number that does not fit.
    """
    return encode_values(record, _write_snapshot, _write_update)


def decode_values(
    key: bytes | None, value: bytes | None, read_snapshot: _ReadValue, read_update: _ReadValue
) -> StateRecord:
    """The record of any release, by its readers of snapshot and update values; raises as ``decode``."""
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    kind, share_partition = decode_key(key)
    if value is None:
        if kind == UPDATE_TYPE:
            raise MalformedRecord("null value under an update key", part="value", position=0)
        return Tombstone(key=share_partition)
    _, position = read_version(value, "value", (VALUE_VERSION,))
    return (read_snapshot if kind == SNAPSHOT_TYPE else read_update)(share_partition, value, position)


def encode_values(
    record: StateRecord, write_snapshot: Callable[[ShareSnapshot], bytes], write_update: Callable[[ShareUpdate], bytes]
) -> tuple[bytes, bytes | None]:
    """Key and value of a record of any release, by its writers of values after the version."""
    version = INT16.pack(VALUE_VERSION)
    match record:
        case Tombstone():
            return encode_key(SNAPSHOT_TYPE, record.key), None
        case ShareSnapshot():
            return encode_key(SNAPSHOT_TYPE, record.key), version + write_snapshot(record)
        case ShareUpdate():
            return encode_key(UPDATE_TYPE, record.key), version + write_update(record)


def _read_snapshot(key: SharePartition, value: bytes, position: int) -> ShareSnapshot:
    snapshot_epoch, position = read_integer(value, position, INT32, "value")
    state_epoch, position = read_integer(value, position, INT32, "value")
    leader_epoch, position = read_integer(value, position, INT32, "value")
    start_offset, position = read_integer(value, position, INT64, "value")
    created, position = read_integer(value, position, INT64, "value")
    written, position = read_integer(value, position, INT64, "value")
    batches, position = read_compact_batch_array(value, position)
    return ShareSnapshot(
        key=key,
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=none_if_absent(start_offset),
        delivery_complete_count=_read_count(value, position),
        create_timestamp_ms=created,
        write_timestamp_ms=written,
        batches=batches,
    )


def _read_update(key: SharePartition, value: bytes, position: int) -> ShareUpdate:
    snapshot_epoch, position = read_integer(value, position, INT32, "value")
    leader_epoch, position = read_integer(value, position, INT32, "value")
    start_offset, position = read_integer(value, position, INT64, "value")
    batches, position = read_compact_batch_array(value, position)
    return ShareUpdate(
        key=key,
        snapshot_epoch=snapshot_epoch,
        leader_epoch=none_if_absent(leader_epoch),
        start_offset=none_if_absent(start_offset),
        delivery_complete_count=_read_count(value, position),
        batches=batches,
    )


def _read_count(value: bytes, position: int) -> int | None:
    """The delivery complete count from the message's tag buffer; None where it is absent or -1."""
    count = _ABSENT
    fields, position = read_unsigned_varint(value, position, "value")
    for _ in range(fields):
        tag, position = read_unsigned_varint(value, position, "value")
        size, position = read_unsigned_varint(value, position, "value")
        if tag == _COUNT_TAG:
            # Kafka reads the known field by its type and does not look at the size.
            count, position = read_integer(value, position, INT32, "value")
        else:
            _, position = read_bytes(value, position, size, "value")
    return none_if_absent(count)


def _write_snapshot(record: ShareSnapshot) -> bytes:
    if record.create_timestamp_ms is None or record.write_timestamp_ms is None:
        raise ValueError("a snapshot of Kafka 4.1 and later has timestamps")
    return b"".join(
        (
            packed(INT32, record.snapshot_epoch, "snapshot epoch"),
            packed(INT32, record.state_epoch, "state epoch"),
            packed(INT32, record.leader_epoch, "leader epoch"),
            packed(INT64, absent_if_none(record.start_offset), "start offset"),
            packed(INT64, record.create_timestamp_ms, "create timestamp"),
            packed(INT64, record.write_timestamp_ms, "write timestamp"),
            write_compact_batch_array(record.batches),
            _write_count(record.delivery_complete_count),
        )
    )


def _write_update(record: ShareUpdate) -> bytes:
    return b"".join(
        (
            packed(INT32, record.snapshot_epoch, "snapshot epoch"),
            packed(INT32, absent_if_none(record.leader_epoch), "leader epoch"),
            packed(INT64, absent_if_none(record.start_offset), "start offset"),
            write_compact_batch_array(record.batches),
            _write_count(record.delivery_complete_count),
        )
    )


def _write_count(count: int | None) -> bytes:
    return b"\x00" if count is None else b"\x01\x00\x04" + packed(INT32, count, "complete count")
