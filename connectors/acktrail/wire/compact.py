"""Kafka's compact types of flexible messages (KIP-482): strings and arrays that begin with their length plus one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from acktrail.errors import MalformedRecord
from acktrail.wire.primitives import INT32, read_bytes, read_integer, read_unsigned_varint

__all__ = [
    "read_compact_array",
    "read_compact_int32s",
    "read_compact_nullable_string",
    "read_compact_string",
]

ItemT = TypeVar("ItemT")


def read_compact_string(buffer: bytes, position: int, part: str) -> tuple[str, int]:
    """A string that is not null.

    Raises:
        MalformedRecord: when it is null, cut off or not UTF-8.
    """
    text, after = read_compact_nullable_string(buffer, position, part)
    if text is None:
        raise MalformedRecord("null string", part=part, position=position)
    return text, after


def read_compact_nullable_string(buffer: bytes, position: int, part: str) -> tuple[str | None, int]:
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
    part: str,
    read_item: Callable[[bytes, int, str], tuple[ItemT, int]],
    *,
    least: int,
) -> tuple[tuple[ItemT, ...], int]:
    """Items of at least `least` bytes each. The count is checked before an item is read.

    Raises:
        MalformedRecord: when it is null, cut off or announces more than there is; also what `read_item` raises.
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


def read_compact_int32s(buffer: bytes, position: int, part: str) -> tuple[tuple[int, ...], int]:
    """An array of 32-bit numbers; raises as ``read_compact_array``."""
    return read_compact_array(buffer, position, part, _read_int32, least=INT32.size)


def _read_int32(buffer: bytes, position: int, part: str) -> tuple[int, int]:
    return read_integer(buffer, position, INT32, part)
