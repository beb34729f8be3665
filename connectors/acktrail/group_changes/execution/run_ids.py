"""Names and times of what is done."""

from __future__ import annotations

import os
import time

from acktrail.group_changes.request.times import compact_instant

__all__ = ["new_id", "now_ms"]


def now_ms() -> int:
    """The time, ms since the epoch."""
    return time.time_ns() // 1_000_000


def new_id(at_ms: int) -> str:
    """A name that nobody else has: UTC time and a random part."""
    return f"{compact_instant(at_ms)}-{os.urandom(4).hex()}"
