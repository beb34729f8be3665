"""Moments and durations as people write them, to milliseconds since the epoch."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from acktrail.errors import ChangeRefused

__all__ = ["compact_instant", "excerpt", "instant_text", "parse_duration", "parse_moment"]

_MOMENT: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(Z|[+-]\d{2}(?::?\d{2})?)?", re.ASCII
)
_DURATION: Final = re.compile(
    r"P(?:(\d{1,15})D)?(T(?:(\d{1,15})H)?(?:(\d{1,15})M)?(?:(\d{1,15})(?:[.,](\d{1,9}))?S)?)?", re.ASCII
)
_LONGEST_MS: Final = 10**14
_SHOWN: Final = 60
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def parse_moment(text: str) -> int:
    """``YYYY-MM-DDTHH:mm[:SS[.sss]]`` with a time zone (``Z``, ``+02:00``, ``+0200``, ``+02``), as ms since the epoch.

    Kafka's tools take a time without a zone as UTC; here it is refused: a person meant the local one half of the time.

    Raises:
        ChangeRefused: `bad_datetime` or `timezone_missing`.
    """
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        raise _bad_moment(text)
    *numbers, fraction, zone = found.groups()
    if zone is None:
        raise ChangeRefused(
            "timezone_missing",
            f"{excerpt(text)} has no time zone",
            hint="append Z for UTC, or an offset such as +02:00",
        )
    try:
        year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
        moment = dt.datetime(year, month, day, hour, minute, second, tzinfo=_zone(zone))
        whole_seconds = (moment - _EPOCH) // dt.timedelta(seconds=1)
    except (ValueError, OverflowError):
        raise _bad_moment(text) from None
    milliseconds = whole_seconds * 1000 + int(((fraction or "") + "000")[:3])
    if milliseconds < 0:
        raise ChangeRefused("bad_datetime", f"{excerpt(text)} is before 1970", hint="records have no such time")
    return milliseconds


def parse_duration(text: str) -> int:
    """``PnDTnHnMnS`` as ms.

    Raises:
        ChangeRefused: `bad_duration`.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()[i] for i in (0, 2, 3, 4)):
        raise ChangeRefused(
            "bad_duration", f"{excerpt(text)} is no duration", hint="for example PT30M, PT6H or P1DT12H"
        )
    days, _, hours, minutes, seconds, fraction = (part or "" for part in found.groups())
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    milliseconds = whole * 1000 + int((fraction + "000")[:3])
    if milliseconds > _LONGEST_MS:
        raise ChangeRefused("bad_duration", f"{excerpt(text)} is longer than Kafka exists", hint="for example P7D")
    return milliseconds


def excerpt(text: str) -> str:
    """`text` in quotes for a message, cut where it is long."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}... ({len(text)} characters)"


def instant_text(milliseconds: int) -> str:
    """A moment as UTC text, ``2026-01-02T03:04:05.678Z``; a number beyond the calendar stays a number."""
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def compact_instant(milliseconds: int) -> str:
    """A moment as UTC text that sorts and fits into names, ``20260102T030405Z``."""
    return f"{_EPOCH + dt.timedelta(milliseconds=milliseconds):%Y%m%dT%H%M%SZ}"


def _zone(text: str) -> dt.timezone:
    if text == "Z":
        return dt.UTC
    digits = text[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if minutes > 59:
        raise ValueError(text)
    offset = dt.timedelta(hours=hours, minutes=minutes)
    return dt.timezone(-offset if text[0] == "-" else offset)


def _bad_moment(text: str) -> ChangeRefused:
    return ChangeRefused(
        "bad_datetime",
        f"{excerpt(text)} is no date and time",
        hint="for example 2026-01-31T13:30:00Z or ...T13:30:00.000+02:00",
    )
