"""Key and value out of any bytes."""

from __future__ import annotations


def pair(data: bytes) -> tuple[int, bytes | None, bytes | None]:
    """A selector, and what a record may have."""
    selector, length, rest = data[0], data[1], data[2:]
    key = None if length == 0xFF else rest[:length]
    rest = rest if key is None else rest[length:]
    return selector, key, rest[1:] if rest[:1] not in (b"", b"\x00") else None
