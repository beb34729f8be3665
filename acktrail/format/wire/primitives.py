"""Kafka's primitive types (https://kafka.apache.org/protocol#protocol_types), fixed-size, compact and tagged.

Here, too: fields that several layouts share. A batch is ``StateBatch`` of Kafka's ``ShareSnapshotValue.json``: int64
first and last offset, int8 delivery state, int16 delivery count.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Final, TypeVar

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.model.batches import StateBatch

UINT16: Final = Struct(">H")
_ABSENT: Final = -1
BATCH_BYTES: Final = 8 + 8 + 1 + 2
"""A batch without a tag buffer."""
INT8: Final = Struct(">b")
INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
ItemT = TypeVar("ItemT")


class Reader:
    """Reads the fields of `buffer` one after the other, from `position` on.

    Every method returns one field and moves `position` behind it. Each raises MalformedRecord, with `part` (the name of
    the buffer: ``key`` or ``value``) and the position of the field, when the buffer ends inside the field.
    """

    __slots__ = ("buffer", "part", "position")

    def __init__(self, buffer: bytes, part: str, position: int = 0) -> None:
        self.buffer = buffer
        self.part = part
        self.position = position

    @property
    def left(self) -> int:
        """The number of bytes after `position`."""
        return len(self.buffer) - self.position

    def malformed(self, fault: str, position: int | None = None) -> MalformedRecord:
        """The error for a fault at `position`, by default the current one."""
        return MalformedRecord(fault, part=self.part, position=self.position if position is None else position)

    def integer(self, kind: Struct) -> int:
        """A big-endian integer of `kind`."""
        end = self.position + kind.size
        if end > len(self.buffer):
            raise self.malformed(f"{kind.size}-byte integer is cut off")
        value: int = kind.unpack_from(self.buffer, self.position)[0]
        self.position = end
        return value

    def raw(self, length: int) -> bytes:
        """`length` bytes; a negative length is malformed."""
        if length < 0:
            raise self.malformed(f"negative length {length}")
        end = self.position + length
        if end > len(self.buffer):
            raise self.malformed(f"{length} bytes announced, {self.left} left")
        start, self.position = self.position, end
        return self.buffer[start:end]

    def string(self) -> str:
        """A string that is not null: int16 length, then UTF-8."""
        return self._text(self.integer(INT16))

    def unsigned_varint(self) -> int:
        """An unsigned LEB128 number of at most five bytes (Kafka: ``ByteUtils.readUnsignedVarint``)."""
        return self._varint(5, "five")

    def varint(self) -> int:
        """A zigzag number of at most five bytes (Kafka: ``ByteUtils.readVarint``)."""
        value = self._varint(5, "5")
        return (value >> 1) ^ -(value & 1)

    def varlong(self) -> int:
        """A zigzag number of at most ten bytes (Kafka: ``ByteUtils.readVarlong``)."""
        value = self._varint(10, "10")
        return (value >> 1) ^ -(value & 1)

    def compact_string(self) -> str:
        """A compact string that is not null."""
        start = self.position
        text = self.compact_nullable_string()
        if text is None:
            raise self.malformed("null string", start)
        return text

    def compact_nullable_string(self) -> str | None:
        """A compact string: unsigned varint length plus one (0: null), then UTF-8 (KIP-482)."""
        length_plus_one = self.unsigned_varint()
        return self._text(length_plus_one - 1) if length_plus_one else None

    def compact_array(self, read_item: Callable[[], ItemT], *, least: int, items: str = "items") -> tuple[ItemT, ...]:
        """A compact array that is not null: unsigned varint count plus one, then items of at least `least` bytes each.
        A count that does not fit into the buffer is malformed, before any item is read."""
        start = self.position
        count_plus_one = self.unsigned_varint()
        if count_plus_one == 0:
            raise self.malformed("null array" if items == "items" else f"null array of {items}", start)
        if (count_plus_one - 1) * least > self.left:
            raise self.malformed(f"{count_plus_one - 1} {items} announced", start)
        return tuple(read_item() for _ in range(count_plus_one - 1))

    def compact_int32s(self) -> tuple[int, ...]:
        """A compact array of int32."""
        return self.compact_array(lambda: self.integer(INT32), least=INT32.size)

    def tagged_integer(self, tag: int, kind: Struct, default: int) -> int:
        """A tag buffer: the integer in field `tag`, or `default`. Other fields are skipped."""
        value = default
        for _ in range(self.unsigned_varint()):
            field, size = self.unsigned_varint(), self.unsigned_varint()
            if field == tag:
                value = self.integer(kind)  # as Kafka does: by the field's type, ignoring its size
            else:
                self.raw(size)
        return value

    def skip_tagged_fields(self) -> None:
        """Skip a tag buffer."""
        for _ in range(self.unsigned_varint()):
            self.unsigned_varint()
            self.raw(self.unsigned_varint())

    def end(self) -> None:
        """Check that nothing follows; MalformedRecord when something does."""
        if self.left:
            raise self.malformed(f"{self.left} byte(s) after the message")

    def _text(self, length: int) -> str:
        raw = self.raw(length)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.malformed("not UTF-8", self.position - length + error.start) from error

    def _varint(self, most: int, most_in_words: str) -> int:
        at = self.position
        if at < len(self.buffer) and self.buffer[at] < 0x80:
            self.position += 1
            return self.buffer[at]
        value = 0
        for index, byte in enumerate(self.buffer[self.position : self.position + most]):
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                self.position += index + 1
                return value
        if self.left < most:
            raise self.malformed("variable-length integer is cut off")
        raise self.malformed(f"variable-length integer is longer than {most_in_words} bytes")


def write_unsigned_varint(value: int) -> bytes:
    """The unsigned LEB128 encoding of `value`."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def none_if_absent(number: int) -> int | None:
    """None for -1, Kafka's number for an absent value."""
    return None if number == _ABSENT else number


def absent_if_none(number: int | None) -> int:
    """-1 for None."""
    return _ABSENT if number is None else number


def packed(kind: Struct, number: int, field: str) -> bytes:
    """`number` as an integer of `kind`. Raises ValueError when it does not fit; the message names the field."""
    try:
        return kind.pack(number)
    except struct.error as error:
        raise ValueError(f"{field} {number} does not fit in {kind.size} byte(s)") from error


def read_version(reader: Reader, accepted: tuple[int, ...]) -> int:
    """The leading int16 version of a key or value. Raises UnsupportedRecord when it is none of `accepted`."""
    version = reader.integer(INT16)
    if version not in accepted:
        raise UnsupportedRecord(f"unknown {reader.part} version", part=reader.part, number=version)
    return version


def read_compact_batch_array(reader: Reader) -> tuple[StateBatch, ...]:
    """A flexible array: unsigned varint count plus one, then 19 bytes and a tag buffer a batch."""
    return reader.compact_array(lambda: _read_tagged_batch(reader), least=BATCH_BYTES + 1, items="state batches")


def write_compact_batch_array(batches: tuple[StateBatch, ...]) -> bytes:
    """The inverse of ``read_compact_batch_array``; ValueError for a number that does not fit."""
    return write_unsigned_varint(len(batches) + 1) + b"".join(_batch_bytes(batch) + b"\x00" for batch in batches)


def batches_form(batches: tuple[StateBatch, ...]) -> list[list[int]]:
    """In JSON: ``[first, last, delivery_state, delivery_count]`` for each batch."""
    return [[b.first_offset, b.last_offset, b.delivery_state, b.delivery_count] for b in batches]


def read_batch(reader: Reader) -> StateBatch:
    """A batch without its tag buffer."""
    return StateBatch(
        first_offset=reader.integer(INT64),
        last_offset=reader.integer(INT64),
        delivery_state=reader.integer(INT8),
        delivery_count=reader.integer(INT16),
    )


def _read_tagged_batch(reader: Reader) -> StateBatch:
    batch = read_batch(reader)
    reader.skip_tagged_fields()
    return batch


def _batch_bytes(batch: StateBatch) -> bytes:
    offsets = packed(INT64, batch.first_offset, "first offset") + packed(INT64, batch.last_offset, "last offset")
    delivery_state = packed(INT8, batch.delivery_state, "delivery state")
    return offsets + delivery_state + packed(INT16, batch.delivery_count, "delivery count")
