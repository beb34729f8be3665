"""What one writes first: every record by struct.unpack, field by field, into lists. No check, no odd record."""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from typing import Any

_KEY_HEAD = struct.Struct(">hh")
_UPDATE = struct.Struct(">hiiq")
_SNAPSHOT = struct.Struct(">hiiiqqq")
_BATCH = struct.Struct(">qqbhb")
_INT32 = struct.Struct(">i")


def unpack(keys: Iterable[bytes], values: Iterable[bytes | None]) -> list[tuple[Any, ...]]:
    """The rows; what does not fit the layout is left out."""
    rows = []
    for key, value in zip(keys, values, strict=True):
        try:
            rows.append(_row(key, value))
        except (struct.error, IndexError, UnicodeDecodeError):
            continue
    return rows


def _row(key: bytes, value: bytes | None) -> tuple[Any, ...]:
    kind, length = _KEY_HEAD.unpack_from(key)
    group_id = key[4 : 4 + length].decode()
    topic_id = urlsafe_b64encode(key[4 + length : 20 + length])[:22].decode()
    (partition,) = _INT32.unpack_from(key, 20 + length)
    if value is None:
        return ("tombstone", group_id, topic_id, partition)
    layout = _UPDATE if kind else _SNAPSHOT
    fields = layout.unpack_from(value)
    at = layout.size
    count, shift = 0, 0
    while True:
        octet = value[at]
        at += 1
        count |= (octet & 0x7F) << shift
        shift += 7
        if octet < 0x80:
            break
    batches = []
    for _ in range(count - 1):
        first, last, state, deliveries, _ = _BATCH.unpack_from(value, at)
        batches.append((first, last, state, deliveries))
        at += _BATCH.size
    complete = _INT32.unpack_from(value, at + 3)[0] if value[at] else None
    return ("update" if kind else "snapshot", group_id, topic_id, partition, *fields, complete, batches)
