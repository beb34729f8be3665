"""Instants as people write them."""

from __future__ import annotations

import datetime as dt
from typing import Final

from acktrail.errors import InputError

__all__ = ["instant_ms"]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def instant_ms(option: str, text: str, *, kind: str, hint: str) -> int:
    """ms since the epoch of an RFC 3339 time with its offset from UTC; fractions below a ms are cut off.

    Raises:
        InputError: it is none. `option`, `kind` (what it should have been) and `hint` are said then.
    """
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InputError(f"{option} {text!r} is no {kind}", hint=hint) from error
    if time.tzinfo is None:
        raise InputError(f"{option} {text!r} has no time zone", hint="add Z or an offset such as +02:00")
    return (time - _EPOCH) // _MILLISECOND
