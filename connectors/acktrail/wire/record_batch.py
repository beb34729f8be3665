"""Kafka's record batch of version 2 (magic 2): header, and the records once they are decompressed.

The header is 61 bytes: int64 base offset, int32 length of what follows, int32 leader epoch, int8 magic, uint32 CRC-32C
of what follows, int16 attributes (bits 0 to 2 compression, 3 append time, 4 transactional, 5 control), int32 last
offset delta, int64 base and int64 newest timestamp, int64 producer id, int16 producer epoch, int32 base sequence, int32
record count (Kafka: ``DefaultRecordBatch``, ``DefaultRecord``). Integers of a record are zigzag variable-length ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from acktrail.errors import MalformedRecord
from acktrail.wire.crc32c import crc32c
from acktrail.wire.primitives import INT16, read_bytes, read_integer

__all__ = [
    "HEADER_BYTES",
    "BatchHeader",
    "Compression",
    "ControlType",
    "LogRecord",
    "batch_records",
    "control_type",
    "is_intact",
    "read_header",
]

HEADER_BYTES: Final = 61

_HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH_FIELD_END: Final = 12
_CHECKED_FROM: Final = 21
_MAGIC: Final = 2
_HIGHEST_OFFSET: Final = (1 << 63) - 1
_LOWEST_TIME: Final = -(1 << 63)
_PART: Final = "batch"

_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class Compression(IntEnum):
    """The compression of a batch's records."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class ControlType(IntEnum):
    """Control records of a transaction (Kafka: ``ControlRecordType``)."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """The header of a batch. `size_bytes` counts the whole batch; `attributes` are Kafka's bits."""

    base_offset: int
    size_bytes: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def has_append_time(self) -> bool:
        """Every record has the broker's time of the append, the newest timestamp of the batch."""
        return bool(self.attributes & _APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def compression(self) -> Compression:
        """Raises MalformedRecord for a number that no release defines."""
        try:
            return Compression(self.attributes & 0x07)
        except ValueError as error:
            number = self.attributes & 0x07
            raise MalformedRecord(f"unknown compression {number}", part=_PART, position=_CHECKED_FROM) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One record of a batch, its headers left out."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def read_header(raw: bytes) -> BatchHeader:
    """The header at the start of `raw`.

    Raises:
        MalformedRecord: it is cut off, of another version, or has a value that is not possible (a negative offset, a
            length below that of a header).
    """
    if len(raw) < HEADER_BYTES:
        raise MalformedRecord("batch header is cut off", part=_PART, position=len(raw))
    base, length, epoch, magic, crc, attributes, delta, created, newest, producer, _, _, count = _HEADER.unpack_from(
        raw
    )
    if magic != _MAGIC:
        raise MalformedRecord(f"message format version {magic}", part=_PART, position=16)
    if base < 0 or delta < 0 or base > _HIGHEST_OFFSET - delta:
        raise MalformedRecord(f"offsets {base} to {base} + {delta}", part=_PART, position=0)
    if length < HEADER_BYTES - _LENGTH_FIELD_END:
        raise MalformedRecord(f"batch length {length}", part=_PART, position=8)
    return BatchHeader(
        base_offset=base,
        size_bytes=length + _LENGTH_FIELD_END,
        leader_epoch=epoch,
        crc=crc,
        attributes=attributes,
        last_offset_delta=delta,
        base_timestamp_ms=created,
        max_timestamp_ms=newest,
        producer_id=producer,
        record_count=count,
    )


def is_intact(header: BatchHeader, raw: bytes) -> bool:
    """Whether the whole batch in `raw` has the checksum in `header`."""
    return len(raw) == header.size_bytes and crc32c(raw[_CHECKED_FROM:]) == header.crc


def batch_records(header: BatchHeader, records: bytes) -> Iterator[LogRecord]:
    """The records of a batch, from the decompressed bytes after its header. Positions in errors are within `records`.

    Raises:
        MalformedRecord: after the records that could be read, when bytes are not a record, a record is missing, offsets
            do not ascend within the batch, or bytes are left over.
    """
    position, last_delta = 0, -1
    if header.record_count < 0:
        raise MalformedRecord(f"record count {header.record_count}", part=_PART, position=0)
    for _ in range(header.record_count):
        begun = position
        length, position = _read_varint(records, position)
        if not 0 <= length <= len(records) - position:
            raise MalformedRecord(f"record of {length} bytes announced", part=_PART, position=begun)
        record, delta = _record(header, records[position : position + length], position)
        if not last_delta < delta <= header.last_offset_delta:
            raise MalformedRecord(f"offset delta {delta} after {last_delta}", part=_PART, position=begun)
        last_delta, position = delta, position + length
        yield record
    if position != len(records):
        raise MalformedRecord(f"{len(records) - position} byte(s) after the records", part=_PART, position=position)


def control_type(key: bytes | None) -> int:
    """The type of a control record, by its key: int16 version, int16 type.

    Raises:
        MalformedRecord: the key is null or cut off.
    """
    if key is None:
        raise MalformedRecord("null key of a control record", part="key", position=0)
    _, position = read_integer(key, 0, INT16, "key")
    return read_integer(key, position, INT16, "key")[0]


def _record(header: BatchHeader, record: bytes, begun: int) -> tuple[LogRecord, int]:
    """The record in `record`, which begins at `begun` of the batch, and its offset delta."""
    try:
        timestamp_delta, position = _read_varint(record, 1, _LONG)
        offset_delta, position = _read_varint(record, position)
        key, position = _read_nullable(record, position)
        value, position = _read_nullable(record, position)
        _skip_headers(record, position)
    except MalformedRecord as error:
        raise MalformedRecord(error.fault, part=_PART, position=begun + error.position) from error
    created = header.base_timestamp_ms + timestamp_delta
    if not _LOWEST_TIME <= created < -_LOWEST_TIME:
        raise MalformedRecord(f"timestamp {created}", part=_PART, position=begun)
    return (
        LogRecord(
            offset=header.base_offset + offset_delta,
            timestamp_ms=header.max_timestamp_ms if header.has_append_time else created,
            key=key,
            value=value,
        ),
        offset_delta,
    )


_INT: Final = 5
_LONG: Final = 10


def _read_varint(buffer: bytes, position: int, most: int = _INT) -> tuple[int, int]:
    """A zigzag number of at most `most` bytes (Kafka: ``ByteUtils.readVarint``, ``readVarlong``)."""
    value = 0
    for index in range(most):
        if position + index >= len(buffer):
            raise MalformedRecord("variable-length integer is cut off", part=_PART, position=position)
        byte = buffer[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + index + 1
    raise MalformedRecord(f"variable-length integer is longer than {most} bytes", part=_PART, position=position)


def _read_nullable(buffer: bytes, position: int) -> tuple[bytes | None, int]:
    length, after = _read_varint(buffer, position)
    return (None, after) if length == -1 else read_bytes(buffer, after, length, _PART)


def _skip_headers(buffer: bytes, position: int) -> None:
    count, position = _read_varint(buffer, position)
    if not 0 <= count <= len(buffer) - position:
        raise MalformedRecord(f"{count} record headers announced", part=_PART, position=position)
    for _ in range(count):
        length, position = _read_varint(buffer, position)
        _, position = read_bytes(buffer, position, length, _PART)
        _, position = _read_nullable(buffer, position)
    if position != len(buffer):
        raise MalformedRecord(f"{len(buffer) - position} byte(s) after the record", part=_PART, position=position)
