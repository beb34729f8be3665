"""Kafka's compact types, those of flexible messages: strings and arrays whose length plus one comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from acktrail.errors import MalformedRecord
from acktrail.wire.primitives import INT32, Part, read_bytes, read_integer, read_unsigned_varint, write_unsigned_varint

__all__ = [
    "compact_array_bytes",
    "compact_string_bytes",
    "read_compact_array",
    "read_compact_int32s",
    "read_compact_nullable_string",
    "read_compact_string",
]

ItemT = TypeVar("ItemT")


def read_compact_string(buffer: bytes, position: int, part: Part) -> tuple[str, int]:
    """A string that is not null.

    Raises:
        MalformedRecord: when it is null, cut off or no UTF-8.
    """
    text, after = read_compact_nullable_string(buffer, position, part)
    if text is None:
        raise MalformedRecord("null string", part=part, position=position)
    return text, after


def read_compact_nullable_string(buffer: bytes, position: int, part: Part) -> tuple[str | None, int]:
    """A string or null; raises as ``read_compact_string``."""
    length_plus_one, start = read_unsigned_varint(buffer, position, part)
    if length_plus_one == 0:
        return None, start
    raw, end = read_bytes(buffer, start, length_plus_one - 1, part)
    try:
        return raw.decode("utf-8"), end
    except UnicodeDecodeError as error:
        raise MalformedRecord("not UTF-8", part=part, position=start + error.start) from error


def read_compact_array(
    buffer: bytes,
    position: int,
    part: Part,
    read_item: Callable[[bytes, int, Part], tuple[ItemT, int]],
    *,
    least: int,
) -> tuple[tuple[ItemT, ...], int]:
    """Items of at least `least` bytes each. The count is checked before an item is read.

    Raises:
        MalformedRecord: when it is null, cut off or announces more than there is; whatever `read_item` raises.
    """
    count_plus_one, after = read_unsigned_varint(buffer, position, part)
    if count_plus_one == 0:
        raise MalformedRecord("null array", part=part, position=position)
    if (count_plus_one - 1) * least > len(buffer) - after:
        raise MalformedRecord(f"{count_plus_one - 1} items announced", part=part, position=position)
    items = []
    for _ in range(count_plus_one - 1):
        item, after = read_item(buffer, after, part)
        items.append(item)
    return tuple(items), after


def read_compact_int32s(buffer: bytes, position: int, part: Part) -> tuple[tuple[int, ...], int]:
    """An array of 32-bit numbers; raises as ``read_compact_array``."""
    return read_compact_array(buffer, position, part, _read_int32, least=INT32.size)


def compact_string_bytes(text: str | None) -> bytes:
    """The form that ``read_compact_nullable_string`` reads."""
    if text is None:
        return b"\x00"
    raw = text.encode("utf-8")
    return write_unsigned_varint(len(raw) + 1) + raw


def compact_array_bytes(items: Iterable[bytes]) -> bytes:
    """The form that ``read_compact_array`` reads, of items in their own form."""
    encoded = [*items]
    return write_unsigned_varint(len(encoded) + 1) + b"".join(encoded)


def _read_int32(buffer: bytes, position: int, part: Part) -> tuple[int, int]:
    return read_integer(buffer, position, INT32, part)
