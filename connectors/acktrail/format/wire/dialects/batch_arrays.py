"""Fields that several layouts share: unsigned integers, both arrays of state batches, the end of a message.

A batch is ``StateBatch`` of Kafka's ``ShareSnapshotValue.json``: int64 first and last offset, int8 delivery state,
int16 delivery count.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Final

from acktrail.errors import UnsupportedRecord
from acktrail.format.wire.primitives import INT8, INT16, INT64, Reader, write_unsigned_varint
from acktrail.model.delivery import StateBatch

UINT16: Final = Struct(">H")

_ABSENT: Final = -1
BATCH_BYTES: Final = 8 + 8 + 1 + 2
"""A batch without a tag buffer."""


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
