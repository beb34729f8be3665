"""Kafka's record batch of version 2 (magic 2): header, and the records once they are decompressed.

The header has 61 bytes (Kafka: ``DefaultRecordBatch``)::

    position  type    field
           0  int64   base offset
           8  int32   batch length: bytes after this field
          12  int32   leader epoch
          16  int8    magic
          17  uint32  CRC-32C of the bytes after this field
          21  int16   attributes: bits 0 to 2 compression, 3 append time, 4 transactional, 5 control
          23  int32   last offset delta
          27  int64   base timestamp
          35  int64   max timestamp
          43  int64   producer id
          51  int16   producer epoch
          53  int32   base sequence
          57  int32   record count

The integers of a record are zigzag variable-length integers (Kafka: ``DefaultRecord``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from acktrail.errors import MalformedRecord
from acktrail.format.wire.primitives import INT16, Reader

HEADER_BYTES: Final = 61
CHECKED_FROM: Final = 21
"""Position of the first byte that the checksum covers; it covers all bytes to the end of the batch."""
_HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH_FIELD_END: Final = 12
_MAGIC: Final = 2
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_NO_HEADERS: Final = b"\x00"
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


class BatchKind(StrEnum):
    """Which consumers get a batch's records. `ABORTED`: only read_uncommitted consumers. `CONTROL` (markers of
    transactions): none. `OPEN` (beyond the last stable offset): until the transaction ends, only read_uncommitted ones.
    """

    DATA = "data"
    ABORTED = "aborted"
    OPEN = "open"
    CONTROL = "control"


class ControlType(IntEnum):
    """Control records of a transaction (Kafka: ``ControlRecordType``)."""

    ABORT = 0
    COMMIT = 1


_COMPRESSIONS: Final = {each.value: each for each in Compression}


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
        """Whether every record has the broker's time of the append: the max timestamp of the batch."""
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
        number = self.attributes & 0x07
        found = _COMPRESSIONS.get(number)  # called for every batch: `Compression(number)` costs ten times as much
        if found is None:
            raise MalformedRecord(f"unknown compression {number}", part=_PART, position=CHECKED_FROM)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One record of a batch. `headers` are bytes for ``record_headers``; the default has no headers."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: bytes = _NO_HEADERS


class PackedBatch(NamedTuple):
    """A complete batch. `raw` has all its bytes, the header included."""

    header: BatchHeader
    kind: BatchKind
    raw: memoryview


class DataBatch(NamedTuple):
    """A batch of `partition` whose records a consumer gets. `records` has the bytes after the header, decompressed."""

    partition: int
    header: BatchHeader
    records: bytes


def batches_in(data: bytes, aborted: Iterable[tuple[int, int]], *, is_stable: bool = True) -> Iterator[PackedBatch]:
    """Yield the complete batches in `data`, in order. An incomplete batch at the end is ignored.

    `aborted`: producer id and first offset of every aborted transaction that has records in `data`. `is_stable`: all
    records are below the last stable offset. Raises MalformedRecord for a header with impossible values.

    Producer 7 aborts, producer 8 commits, and the response lists (7, 0)::

        0 to 2 of 7, transactional  aborted
        3 to 4 of 8, transactional  data
        5 of 7, a marker            control: 7's transaction is over
        6 of 7, transactional       data: its next transaction is not listed
    """
    waiting, active = sorted(aborted, key=itemgetter(1), reverse=True), set[int]()
    rest = memoryview(data)
    while len(rest) >= HEADER_BYTES and (header := read_header(rest)).size_bytes <= len(rest):
        while waiting and waiting[-1][1] <= header.last_offset:
            active.add(waiting.pop()[0])
        kind = BatchKind.DATA
        if header.is_control:
            kind = BatchKind.CONTROL
            active.discard(header.producer_id)
        elif header.is_transactional and not is_stable:
            kind = BatchKind.OPEN
        elif header.is_transactional and header.producer_id in active:
            kind = BatchKind.ABORTED
        yield PackedBatch(header, kind, rest[: header.size_bytes])
        rest = rest[header.size_bytes :]


def read_header(raw: bytes | memoryview) -> BatchHeader:
    """Read the header at the start of `raw`. Raises MalformedRecord when it is cut off, of another version, or has an
    impossible value (a negative offset, a length below that of a header)."""
    if len(raw) < HEADER_BYTES:
        raise MalformedRecord("batch header is cut off", part=_PART, position=len(raw))
    fields = _HEADER.unpack_from(raw)
    base_offset, length, epoch, magic, crc, attributes, delta, base_time, max_time, producer_id, _, _, count = fields
    if magic != _MAGIC:
        raise MalformedRecord(f"message format version {magic}", part=_PART, position=16)
    if base_offset < 0 or delta < 0 or base_offset > _INT64_MAX - delta:
        raise MalformedRecord(f"offsets {base_offset} to {base_offset} + {delta}", part=_PART, position=0)
    if length < HEADER_BYTES - _LENGTH_FIELD_END:
        raise MalformedRecord(f"batch length {length}", part=_PART, position=8)
    return BatchHeader(
        base_offset=base_offset,
        size_bytes=length + _LENGTH_FIELD_END,
        leader_epoch=epoch,
        crc=crc,
        attributes=attributes,
        last_offset_delta=delta,
        base_timestamp_ms=base_time,
        max_timestamp_ms=max_time,
        producer_id=producer_id,
        record_count=count,
    )


def batch_records(header: BatchHeader, records: bytes) -> Iterator[LogRecord]:
    """Yield the records of a batch. `records` has the bytes after the header, decompressed; positions in errors count
    from its start. After the records that can be read, raises MalformedRecord when bytes are not a record, a record is
    missing, offsets do not ascend within the batch, or bytes remain after the last record."""
    reader, last_delta = Reader(records, _PART), -1
    if header.record_count < 0:
        raise reader.malformed(f"record count {header.record_count}")
    for _ in range(header.record_count):
        start = reader.position
        length = reader.varint()
        if not 0 <= length <= reader.left:
            raise reader.malformed(f"record of {length} bytes announced", start)
        base_position = reader.position
        record, delta = _record(header, reader.raw(length), base_position)
        if not last_delta < delta <= header.last_offset_delta:
            raise reader.malformed(f"offset delta {delta} after {last_delta}", start)
        last_delta = delta
        yield record
    if reader.left:
        raise reader.malformed(f"{reader.left} byte(s) after the records")


def record_headers(headers: bytes, base_position: int = 0) -> tuple[tuple[bytes, bytes | None], ...]:
    """Return names and values of a record's headers. `headers` has the bytes from the count of headers to the end of
    the record (Kafka: ``DefaultRecord.readHeaders``). Raises MalformedRecord, with `base_position` added to the
    position in `headers`."""
    reader = Reader(headers, _PART)
    try:
        count = reader.varint()
        if not 0 <= count <= reader.left:
            raise reader.malformed(f"{count} record headers announced")
        found = tuple((reader.raw(reader.varint()), _read_nullable(reader)) for _ in range(count))
        if reader.left:
            raise reader.malformed(f"{reader.left} byte(s) after the record")
    except MalformedRecord as error:
        raise MalformedRecord(error.fault, part=_PART, position=base_position + error.position) from error
    return found


def control_type(key: bytes | None) -> int:
    """Return the type of a control record from its key: int16 version, int16 type. Raises MalformedRecord when the key
    is null or cut off."""
    if key is None:
        raise MalformedRecord("null key of a control record", part="key", position=0)
    reader = Reader(key, "key")
    reader.integer(INT16)
    return reader.integer(INT16)


def _record(header: BatchHeader, record: bytes, base_position: int) -> tuple[LogRecord, int]:
    """Return the record whose bytes are `record`, and its offset delta. `base_position`: where they begin in the
    batch."""
    reader = Reader(record, _PART, 1)  # after the int8 record attributes, which magic 2 does not use
    try:
        timestamp_delta, offset_delta = reader.varlong(), reader.varint()
        key, value = _read_nullable(reader), _read_nullable(reader)
        headers = record[reader.position :]
        if headers != _NO_HEADERS:
            record_headers(headers, reader.position)
    except MalformedRecord as error:
        raise MalformedRecord(error.fault, part=_PART, position=base_position + error.position) from error
    created = header.base_timestamp_ms + timestamp_delta
    if not _INT64_MIN <= created <= _INT64_MAX:
        raise MalformedRecord(f"timestamp {created}", part=_PART, position=base_position)
    time = header.max_timestamp_ms if header.has_append_time else created
    offset = header.base_offset + offset_delta
    return LogRecord(offset=offset, timestamp_ms=time, key=key, value=value, headers=headers), offset_delta


def _read_nullable(reader: Reader) -> bytes | None:
    length = reader.varint()
    return None if length == -1 else reader.raw(length)
