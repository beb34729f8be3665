"""Times and durations as people give them to an option."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from acktrail.errors import InputError

__all__ = ["duration_ms", "time_ms"]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)
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
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        hint = "give a time with time zone (2026-08-01T12:00:00Z) or epoch ms"
        raise InputError(f"{option} {text!r} is no time", hint=hint) from error
    if time.tzinfo is None:
        raise InputError(f"{option} {text!r} has no time zone", hint="add Z or an offset such as +02:00")
    return (time - _EPOCH) // _MILLISECOND


def duration_ms(option: str, text: str) -> int:
    """ms of a number with a unit: s, m, h or d.

    Raises:
        InputError: it is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise InputError(f"{option} {text!r} is no duration", hint="give a number and s, m, h or d: 15m")
    return int(found[1]) * _UNITS_MS[found[2]]
