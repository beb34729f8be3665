"""A number that distinguishes a record of a log from another one at the same offset."""

from __future__ import annotations

import hashlib
import struct

_HEAD = struct.Struct(">qq?q?")


def record_fingerprint(offset: int, timestamp_ms: int | None, key: bytes | None, value: bytes | None) -> int:
    """A positive 63-bit number of a record's offset in Kafka's log, its timestamp (ms) and its bytes.

    Two logs that have the same record at an offset have the same records before it (Kafka: replicas agree up to the
    high watermark), so one comparison shows whether a log is the one that was read before.
    """
    head = _HEAD.pack(
        offset,
        -1 if timestamp_ms is None else timestamp_ms,
        key is None,
        len(key or b""),
        value is None,
    )
    digest = hashlib.sha256(head + (key or b"") + (value or b"")).digest()
    return int.from_bytes(digest[:8], "big") >> 1 or 1
