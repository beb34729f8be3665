"""Times and durations as people give them to an option."""

from __future__ import annotations

import re
from typing import Final

from acktrail.errors import InputError
from acktrail.offline.instants import instant_ms

__all__ = ["duration_ms", "time_ms"]

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


def time_ms(option: str, text: str) -> int:
    """ms since the epoch of an RFC 3339 time with its offset from UTC, or of a lone number of ms.

    Raises:
        InputError: it is neither.
    """
    if _NUMBER.fullmatch(text):
        return int(text)
    return instant_ms(option, text, kind="time", hint="give a time with time zone (2026-08-01T12:00:00Z) or epoch ms")


def duration_ms(option: str, text: str) -> int:
    """ms of a number with a unit: s, m, h or d.

    Raises:
        InputError: it is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise InputError(f"{option} {text!r} is no duration", hint="give a number and s, m, h or d: 15m")
    return int(found[1]) * _UNITS_MS[found[2]]
