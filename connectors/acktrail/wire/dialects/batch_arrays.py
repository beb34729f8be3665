"""Fields that several layouts share: unsigned integers, both arrays of state batches, the end of a message.

A batch is ``StateBatch`` of Kafka's ``ShareSnapshotValue.json``: int64 first and last offset, int8 delivery state,
int16 delivery count.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.model.delivery import StateBatch
from acktrail.wire.primitives import (
    INT8,
    INT16,
    INT32,
    INT64,
    read_integer,
    read_unsigned_varint,
    skip_tagged_fields,
    write_unsigned_varint,
)

__all__ = [
    "UINT8",
    "UINT16",
    "UINT32",
    "absent_if_none",
    "end_of_message",
    "group_id_bytes",
    "none_if_absent",
    "packed",
    "read_batch_array",
    "read_compact_batch_array",
    "read_offset",
    "read_version",
    "write_batch_array",
    "write_compact_batch_array",
]

UINT8: Final = Struct(">B")
UINT16: Final = Struct(">H")
UINT32: Final = Struct(">I")

_ABSENT: Final = -1
_BATCH_BYTES: Final = 8 + 8 + 1 + 2
"""A batch without a tag buffer."""


def none_if_absent(number: int) -> int | None:
    """None for -1, Kafka's number for an absent value."""
    return None if number == _ABSENT else number


def absent_if_none(number: int | None) -> int:
    """-1 for None."""
    return _ABSENT if number is None else number


def packed(kind: Struct, number: int, field: str) -> bytes:
    """`number` as an integer of `kind`.

    Raises:
        ValueError: when it does not fit; the message names the field.
    """
    try:
        return kind.pack(number)
    except struct.error as error:
        raise ValueError(f"{field} {number} does not fit in {kind.size} byte(s)") from error


def group_id_bytes(group_id: str) -> bytes:
    """A group id as a non-null string: int16 byte length, then UTF-8."""
    raw = group_id.encode("utf-8")
    return packed(INT16, len(raw), "length of the group id") + raw


def read_version(buffer: bytes, part: str, accepted: tuple[int, ...]) -> tuple[int, int]:
    """The leading int16 version of a key or value.

    Raises:
        UnsupportedRecord: when it is none of `accepted`.
        MalformedRecord: when it is cut off.
    """
    version, position = read_integer(buffer, 0, INT16, part)
    if version not in accepted:
        raise UnsupportedRecord(f"unknown {part} version", part=part, number=version)
    return version, position


def read_offset(buffer: bytes, position: int, field: str) -> tuple[int, int]:
    """An int64 that must be an offset.

    Raises:
        MalformedRecord: when it is negative or cut off.
    """
    number, after = read_integer(buffer, position, INT64, "value")
    if number < 0:
        raise MalformedRecord(f"{field} {number} is negative", part="value", position=position)
    return number, after


def end_of_message(buffer: bytes, position: int, part: str) -> None:
    """Check that nothing follows.

    Raises:
        MalformedRecord: when something does.
    """
    if position != len(buffer):
        raise MalformedRecord(f"{len(buffer) - position} byte(s) after the message", part=part, position=position)


def read_batch_array(value: bytes, position: int) -> tuple[tuple[StateBatch, ...], int]:
    """A non-flexible array: int32 count, then 19 bytes a batch. The count is checked before a batch is read.

    Raises:
        MalformedRecord: when it is null, cut off or announces more than there is.
    """
    count, after = read_integer(value, position, INT32, "value")
    if count < 0:
        raise MalformedRecord("null array of state batches", part="value", position=position)
    _check_room(value, position, after, count, _BATCH_BYTES)
    return _read_batches(value, after, count, tagged=False)


def read_compact_batch_array(value: bytes, position: int) -> tuple[tuple[StateBatch, ...], int]:
    """A flexible array: unsigned varint count plus one, then 19 bytes and a tag buffer a batch.

    Raises:
        MalformedRecord: when it is null, cut off or announces more than there is.
    """
    count_plus_one, after = read_unsigned_varint(value, position, "value")
    if count_plus_one == 0:
        raise MalformedRecord("null array of state batches", part="value", position=position)
    _check_room(value, position, after, count_plus_one - 1, _BATCH_BYTES + 1)
    return _read_batches(value, after, count_plus_one - 1, tagged=True)


def write_batch_array(batches: tuple[StateBatch, ...]) -> bytes:
    """The inverse of ``read_batch_array``; ValueError for a number that does not fit."""
    return packed(INT32, len(batches), "number of batches") + b"".join(map(_batch_bytes, batches))


def write_compact_batch_array(batches: tuple[StateBatch, ...]) -> bytes:
    """The inverse of ``read_compact_batch_array``; ValueError for a number that does not fit."""
    return write_unsigned_varint(len(batches) + 1) + b"".join(_batch_bytes(batch) + b"\x00" for batch in batches)


def _check_room(value: bytes, at: int, after: int, count: int, least: int) -> None:
    if count * least > len(value) - after:
        raise MalformedRecord(f"{count} state batches announced", part="value", position=at)


def _read_batches(value: bytes, position: int, count: int, *, tagged: bool) -> tuple[tuple[StateBatch, ...], int]:
    batches = []
    for _ in range(count):
        batch, position = _read_batch(value, position)
        batches.append(batch)
        if tagged:
            position = skip_tagged_fields(value, position, "value")
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
    return batch, position


def _batch_bytes(batch: StateBatch) -> bytes:
    return b"".join(
        (
            packed(INT64, batch.first_offset, "first offset"),
            packed(INT64, batch.last_offset, "last offset"),
            packed(INT8, batch.delivery_state, "delivery state"),
            packed(INT16, batch.delivery_count, "delivery count"),
        )
    )
