"""Instants and durations: the clock, how people write them, how they are printed, and the names of runs."""

from __future__ import annotations

import datetime as dt
import os
import re
import time
from typing import Final, overload

from acktrail.errors import InputError

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([1-9][0-9]{0,8})([smhd])")
_ISO_DURATION: Final = re.compile(
    r"P(?:(\d{1,15})D)?(T(?:(\d{1,15})H)?(?:(\d{1,15})M)?(?:(\d{1,15})(?:[.,](\d{1,9}))?S)?)?", re.ASCII
)
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class MissingTimeZone(ValueError):
    """A date and time without its offset from UTC."""


def now_ms() -> int:
    """The time, ms since the epoch."""
    return time.time_ns() // 1_000_000


def new_run_id(at_ms: int | None = None) -> str:
    """A unique name that sorts by time: UTC time (`at_ms`, default now), then a random part."""
    at = _EPOCH + dt.timedelta(milliseconds=now_ms() if at_ms is None else at_ms)
    return f"{at:%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}"


@overload
def instant_text(timestamp_ms: int) -> str: ...
@overload
def instant_text(timestamp_ms: int | None) -> str | None: ...
def instant_text(timestamp_ms: int | None) -> str | None:
    """ms since the epoch as UTC text, ``2026-01-02T03:04:05.678Z``; beyond the calendar as ``123 ms``."""
    if timestamp_ms is None:
        return None
    try:
        return utc_text(_EPOCH + dt.timedelta(milliseconds=timestamp_ms), "milliseconds")
    except OverflowError:
        return f"{timestamp_ms} ms"


def utc_text(at: dt.datetime, precision: str = "seconds") -> str:
    """An aware time as UTC text, ``2026-01-02T03:04:05Z``; `precision` as `datetime.isoformat` takes it."""
    return at.astimezone(dt.UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def parse_instant(text: str) -> int:
    """ms since the epoch of an ISO 8601 date and time with its offset from UTC; fractions below a ms are cut off.

    >>> parse_instant("2026-01-31T13:30:00,1239+02:00") == parse_instant("2026-01-31T11:30:00.123Z")
    True

    Raises:
        MissingTimeZone: the offset from UTC is missing. ValueError: it is not a date and time.
    """
    at = dt.datetime.fromisoformat(text.strip())
    if at.tzinfo is None:
        raise MissingTimeZone(text)
    return (at - _EPOCH) // _MILLISECOND


def ago_ms(text: str, now: int) -> int | None:
    """ms since the epoch of the moment that a duration lies before `now` (ms since the epoch), never before 1970; None:
    `text` is not a duration.

    >>> ago_ms("15m", 1_000_000), ago_ms("2026", 1_000_000)
    (100000, None)
    """
    found = _DURATION.fullmatch(text)
    return None if found is None else max(0, now - int(found[1]) * _UNITS_MS[found[2]])


def instant_ms(option: str, text: str, *, kind: str, hint: str) -> int:
    """`parse_instant` for a command's `option`, or `ago_ms`; else InputError with `kind` (what it should be) and
    `hint`."""
    ago = ago_ms(text, now_ms())
    if ago is not None:
        return ago
    try:
        return parse_instant(text)
    except MissingTimeZone as error:
        raise InputError(f"{option} {text!r} has no time zone", hint="add Z or an offset such as +02:00") from error
    except ValueError as error:
        raise InputError(f"{option} {text!r} is not a {kind}", hint=hint) from error


def time_ms(option: str, text: str) -> int:
    """ms since the epoch of a time with its offset from UTC, of how long ago it was (``1h``), or of a lone number of
    ms; else InputError."""
    if _NUMBER.fullmatch(text):
        return int(text)
    hint = "give a time with time zone (2026-08-01T12:00:00Z), how long ago (1h), or epoch ms"
    return instant_ms(option, text, kind="time", hint=hint)


def duration_ms(option: str, text: str) -> int:
    """ms of a number with a unit: s, m, h or d; else InputError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise InputError(f"{option} {text!r} is not a duration", hint="give a number and s, m, h or d: 15m")
    return int(found[1]) * _UNITS_MS[found[2]]


def iso_duration_ms(text: str) -> int:
    """ms of ``PnDTnHnMnS``; else ValueError.

    >>> iso_duration_ms("P1DT0.5S")
    86400500
    """
    found = _ISO_DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()[index] for index in (0, 2, 3, 4)):
        raise ValueError(text)
    days, _, hours, minutes, seconds, fraction = (part or "" for part in found.groups())
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    return whole * 1000 + int((fraction + "000")[:3])
