"""The range of time that a page shows: a length back from now, or two instants. Always in the address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError

LENGTHS: Final = MappingProxyType(
    {
        "1h": timedelta(hours=1),
        "6h": timedelta(hours=6),
        "24h": timedelta(hours=24),
        "7d": timedelta(days=7),
        "30d": timedelta(days=30),
        "90d": timedelta(days=90),
    }
)
"""Ranges with a name."""
_USUAL: Final = "24h"
_SHORTEST: Final = timedelta(minutes=1)
_LONGEST: Final = timedelta(days=370)
_HINT: Final = "give UTC times such as 2026-11-23T08:00, the earlier one first, at most 370 days apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """From `begin` (inclusive) to `end` (exclusive). `name` None: two instants that the reader chose."""

    begin: datetime
    end: datetime
    name: str | None

    @property
    def text(self) -> str:
        """In words."""
        if self.name is not None:
            return f"last {self.name}"
        return f"{self.begin:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"

    def around(self, instants: pa.ChunkedArray) -> TimeRange:
        """The part of the range that has `instants`: all of it where there are none."""
        if not len(instants):
            return self
        ends = pc.min_max(instants).as_py()
        begin, end = max(self.begin, ends["min"]), min(self.end, ends["max"])
        return TimeRange(begin=begin, end=max(end, begin + _SHORTEST), name=None)

    @property
    def query(self) -> dict[str, str]:
        """As parameters of an address."""
        if self.name is not None:
            return {} if self.name == _USUAL else {"range": self.name}
        return {"from": f"{self.begin:%Y-%m-%dT%H:%M}", "to": f"{self.end:%Y-%m-%dT%H:%M}"}


def time_range(query: Mapping[str, str], now: datetime) -> TimeRange:
    """The range that an address names: ``range``, or ``from`` and ``to`` (default: now); 24 hours where it names none.

    Raises:
        InputError: it is none of the lengths, or the times are none.
    """
    begin, end = query.get("from", ""), query.get("to", "")
    if begin or end:
        return _between(_instant(begin or end), _instant(end) if begin and end else now)
    name = query.get("range") or _USUAL
    if name not in LENGTHS:
        raise InputError(f"{name!r} is no range of time", hint=f"one of {', '.join(LENGTHS)}")
    return TimeRange(begin=now - LENGTHS[name], end=now, name=name)


def _between(begin: datetime, end: datetime) -> TimeRange:
    if not timedelta() < end - begin <= _LONGEST:
        raise InputError("the range of time is empty or too long", hint=_HINT)
    return TimeRange(begin=begin, end=end, name=None)


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text.strip())
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{text!r} is no time", hint=_HINT) from error
