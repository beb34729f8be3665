"""The headers that say where a record that was put back comes from. Pure.

Anybody who may write to a topic can write such headers: what is no small number counts as absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

PLAN: Final = "acktrail.redrive.plan"
NUMBER: Final = "acktrail.redrive.number"
COUNT: Final = "acktrail.redrive.count"
_MOST_DIGITS: Final = 9
Headers = Sequence[tuple[bytes, bytes | None]]


def header_value(headers: Headers, name: str) -> bytes:
    """Return the value of the last header of this name; empty: there is none."""
    return dict(headers).get(name.encode()) or b""


def header_number(headers: Headers, name: str) -> int | None:
    """Return the number in the last header of this name; None: there is none.

    >>> header_number([(b"acktrail.redrive.count", b"2")], COUNT)
    2
    """
    text = header_value(headers, name)
    return int(text) if text.isdigit() and len(text) <= _MOST_DIGITS else None
