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
from acktrail.wire.primitives import INT16, INT32, INT64, Reader
from acktrail.wire.state_key import SNAPSHOT_TYPE, UPDATE_TYPE, decode_key, encode_key

VALUE_VERSION: Final = 0

_ABSENT: Final = -1
_COUNT_TAG: Final = 0

_ReadValue = Callable[[SharePartition, Reader], StateRecord]
"""Reads the fields after the version of a value."""


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
    reader = Reader(value, "value")
    read_version(reader, (VALUE_VERSION,))
    return (read_snapshot if kind == SNAPSHOT_TYPE else read_update)(share_partition, reader)


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


def _read_snapshot(key: SharePartition, reader: Reader) -> ShareSnapshot:
    snapshot_epoch, state_epoch, leader_epoch = (reader.integer(INT32) for _ in range(3))
    start_offset, created, written = (reader.integer(INT64) for _ in range(3))
    return ShareSnapshot(
        key=key,
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=none_if_absent(start_offset),
        create_timestamp_ms=created,
        write_timestamp_ms=written,
        batches=read_compact_batch_array(reader),
        delivery_complete_count=_read_count(reader),
    )


def _read_update(key: SharePartition, reader: Reader) -> ShareUpdate:
    return ShareUpdate(
        key=key,
        snapshot_epoch=reader.integer(INT32),
        leader_epoch=none_if_absent(reader.integer(INT32)),
        start_offset=none_if_absent(reader.integer(INT64)),
        batches=read_compact_batch_array(reader),
        delivery_complete_count=_read_count(reader),
    )


def _read_count(reader: Reader) -> int | None:
    """The delivery complete count from the message's tag buffer; None where it is absent or -1."""
    return none_if_absent(reader.tagged_integer(_COUNT_TAG, INT32, _ABSENT))


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
