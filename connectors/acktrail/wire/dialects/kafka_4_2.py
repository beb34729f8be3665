"""One record of ``__share_group_state`` as Kafka 4.2 and later write it (and 4.1 without the count).

Layout (Kafka: ``ShareSnapshotValue.json``, ``ShareUpdateValue.json``; version 0 in every release): a value is int16
version and a flexible body whose tag 0 is the delivery complete count (Kafka 4.2, KIP-1226). Unknown tagged fields and
bytes after the message are skipped, as Kafka's generated readers do. The keys are ``state_key``'s.
"""

from __future__ import annotations

from typing import Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.model.delivery import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import SharePartition
from acktrail.wire.primitives import (
    INT8,
    INT16,
    INT32,
    INT64,
    read_bytes,
    read_integer,
    read_unsigned_varint,
    skip_tagged_fields,
    write_unsigned_varint,
)
from acktrail.wire.state_key import SNAPSHOT_TYPE, UPDATE_TYPE, decode_key, encode_key

__all__ = ["VALUE_VERSION", "decode", "encode"]

VALUE_VERSION: Final = 0

_ABSENT: Final = -1
_COUNT_TAG: Final = 0
_BATCH_BYTES: Final = 20
"""Bytes of a batch without tagged fields: the least one can take."""


def decode(key: bytes | None, value: bytes | None) -> StateRecord:
    """The record that a key and a value spell.

    Raises:
        UnsupportedRecord: for an unknown record type or value version.
        MalformedRecord: for bytes that are no such record; it carries the byte position. A null key and a null value
            under an update key are malformed: no broker writes them, and a broker fails to load them.
    """
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    kind, share_partition = decode_key(key)
    if value is None:
        if kind == UPDATE_TYPE:
            raise MalformedRecord("null value under an update key", part="value", position=0)
        return Tombstone(key=share_partition)
    version, position = read_integer(value, 0, INT16, "value")
    if version != VALUE_VERSION:
        raise UnsupportedRecord("unknown value version", part="value", number=version)
    return (_read_snapshot if kind == SNAPSHOT_TYPE else _read_update)(share_partition, value, position)


def encode(record: StateRecord) -> tuple[bytes, bytes | None]:
    """Key and value of `record` as Kafka 4.2 and later write them; the count is left out when it is not known.

    Raises:
        ValueError: for a snapshot without timestamps (the dialects before Kafka 4.1).
    """
    match record:
        case Tombstone():
            return encode_key(SNAPSHOT_TYPE, record.key), None
        case ShareSnapshot():
            return encode_key(SNAPSHOT_TYPE, record.key), _write_snapshot(record)
        case ShareUpdate():
            return encode_key(UPDATE_TYPE, record.key), _write_update(record)


def _read_snapshot(key: SharePartition, value: bytes, position: int) -> ShareSnapshot:
    snapshot_epoch, position = read_integer(value, position, INT32, "value")
    state_epoch, position = read_integer(value, position, INT32, "value")
    leader_epoch, position = read_integer(value, position, INT32, "value")
    start_offset, position = read_integer(value, position, INT64, "value")
    created, position = read_integer(value, position, INT64, "value")
    written, position = read_integer(value, position, INT64, "value")
    batches, position = _read_batches(value, position)
    return ShareSnapshot(
        key=key,
        snapshot_epoch=snapshot_epoch,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=_present(start_offset),
        delivery_complete_count=_read_count(value, position),
        create_timestamp_ms=created,
        write_timestamp_ms=written,
        batches=batches,
    )


def _read_update(key: SharePartition, value: bytes, position: int) -> ShareUpdate:
    snapshot_epoch, position = read_integer(value, position, INT32, "value")
    leader_epoch, position = read_integer(value, position, INT32, "value")
    start_offset, position = read_integer(value, position, INT64, "value")
    batches, position = _read_batches(value, position)
    return ShareUpdate(
        key=key,
        snapshot_epoch=snapshot_epoch,
        leader_epoch=_present(leader_epoch),
        start_offset=_present(start_offset),
        delivery_complete_count=_read_count(value, position),
        batches=batches,
    )


def _present(number: int) -> int | None:
    return None if number == _ABSENT else number


def _read_batches(value: bytes, position: int) -> tuple[tuple[StateBatch, ...], int]:
    """The compact array of batches: its count plus one, then the batches. The count is checked before any is read."""
    at = position
    count_plus_one, position = read_unsigned_varint(value, position, "value")
    if count_plus_one == 0:
        raise MalformedRecord("null array of state batches", part="value", position=at)
    if (count_plus_one - 1) * _BATCH_BYTES > len(value) - position:
        raise MalformedRecord(f"{count_plus_one - 1} state batches announced", part="value", position=at)
    batches = []
    for _ in range(count_plus_one - 1):
        batch, position = _read_batch(value, position)
        batches.append(batch)
    return tuple(batches), position


def _read_batch(value: bytes, position: int) -> tuple[StateBatch, int]:
    first_offset, position = read_integer(value, position, INT64, "value")
    last_offset, position = read_integer(value, position, INT64, "value")
    delivery_state, position = read_integer(value, position, INT8, "value")
    delivery_count, position = read_integer(value, position, INT16, "value")
    batch = StateBatch(
        first_offset=first_offset,
        last_offset=last_offset,
        delivery_state=delivery_state,
        delivery_count=delivery_count,
    )
    return batch, skip_tagged_fields(value, position, "value")


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
    return _present(count)


def _write_snapshot(record: ShareSnapshot) -> bytes:
    if record.create_timestamp_ms is None or record.write_timestamp_ms is None:
        raise ValueError("a snapshot of Kafka 4.1 and later has timestamps")
    return b"".join(
        (
            INT16.pack(VALUE_VERSION),
            INT32.pack(record.snapshot_epoch),
            INT32.pack(record.state_epoch),
            INT32.pack(record.leader_epoch),
            INT64.pack(_or_absent(record.start_offset)),
            INT64.pack(record.create_timestamp_ms),
            INT64.pack(record.write_timestamp_ms),
            _write_batches(record.batches),
            _write_count(record.delivery_complete_count),
        )
    )


def _write_update(record: ShareUpdate) -> bytes:
    return b"".join(
        (
            INT16.pack(VALUE_VERSION),
            INT32.pack(record.snapshot_epoch),
            INT32.pack(_or_absent(record.leader_epoch)),
            INT64.pack(_or_absent(record.start_offset)),
            _write_batches(record.batches),
            _write_count(record.delivery_complete_count),
        )
    )


def _or_absent(number: int | None) -> int:
    return _ABSENT if number is None else number


def _write_batches(batches: tuple[StateBatch, ...]) -> bytes:
    return write_unsigned_varint(len(batches) + 1) + b"".join(_write_batch(batch) for batch in batches)


def _write_batch(batch: StateBatch) -> bytes:
    return b"".join(
        (
            INT64.pack(batch.first_offset),
            INT64.pack(batch.last_offset),
            INT8.pack(batch.delivery_state),
            INT16.pack(batch.delivery_count),
            b"\x00",
        )
    )


def _write_count(count: int | None) -> bytes:
    return b"\x00" if count is None else b"\x01\x00\x04" + INT32.pack(count)
