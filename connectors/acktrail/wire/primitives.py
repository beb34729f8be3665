"""Kafka's primitive types (https://kafka.apache.org/protocol#protocol_types).

Every reader checks its bounds and returns the value and the position after it. `part` names the buffer in errors:
``key`` or ``value``.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from acktrail.errors import MalformedRecord

__all__ = [
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "read_bytes",
    "read_integer",
    "read_string",
    "read_unsigned_varint",
    "skip_tagged_fields",
    "write_unsigned_varint",
]

INT8: Final = Struct(">b")
INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")

_VARINT_BYTES: Final = 5


def read_integer(buffer: bytes, position: int, kind: Struct, part: str) -> tuple[int, int]:
    """A big-endian integer of `kind`.

    Raises:
        MalformedRecord: when the buffer ends inside it.
    """
    end = position + kind.size
    if end > len(buffer):
        raise MalformedRecord(f"{kind.size}-byte integer is cut off", part=part, position=position)
    value: int = kind.unpack_from(buffer, position)[0]
    return value, end


def read_bytes(buffer: bytes, position: int, length: int, part: str) -> tuple[bytes, int]:
    """`length` raw bytes.

    Raises:
        MalformedRecord: when the length is negative or the buffer ends inside.
    """
    if length < 0:
        raise MalformedRecord(f"negative length {length}", part=part, position=position)
    end = position + length
    if end > len(buffer):
        raise MalformedRecord(f"{length} bytes announced, {len(buffer) - position} left", part=part, position=position)
    return buffer[position:end], end


def read_string(buffer: bytes, position: int, part: str) -> tuple[str, int]:
    """A non-null string: int16 byte length, then UTF-8.

    Raises:
        MalformedRecord: when it is null, cut off or not UTF-8.
    """
    length, start = read_integer(buffer, position, INT16, part)
    raw, end = read_bytes(buffer, start, length, part)
    try:
        return raw.decode("utf-8"), end
    except UnicodeDecodeError as error:
        raise MalformedRecord("not UTF-8", part=part, position=start + error.start) from error


def read_unsigned_varint(buffer: bytes, position: int, part: str) -> tuple[int, int]:
    """An unsigned LEB128 number of at most 32 bits (Kafka: ``ByteUtils.readUnsignedVarint``).

    Raises:
        MalformedRecord: when it is cut off or longer than five bytes.
    """
    value = 0
    for index in range(_VARINT_BYTES):
        if position + index >= len(buffer):
            raise MalformedRecord("variable-length integer is cut off", part=part, position=position)
        byte = buffer[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise MalformedRecord("variable-length integer is longer than five bytes", part=part, position=position)


def skip_tagged_fields(buffer: bytes, position: int, part: str) -> int:
    """Position after a tag buffer, skipping every field.

    Raises:
        MalformedRecord: when the buffer ends inside it.
    """
    count, position = read_unsigned_varint(buffer, position, part)
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position, part)
        size, position = read_unsigned_varint(buffer, position, part)
        _, position = read_bytes(buffer, position, size, part)
    return position


def write_unsigned_varint(value: int) -> bytes:
    """The unsigned LEB128 form of `value`."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
