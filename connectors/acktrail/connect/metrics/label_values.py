"""Names from a cluster as values of labels: bounded, and harmless where a scrape is read on a terminal."""

from __future__ import annotations

import hashlib
from typing import Final

from acktrail.plain_tables import printable

_MOST: Final = 200
_KEPT: Final = 160


def label_value(name: str) -> str:
    """`name` as it is, if it is printable and at most 200 characters. Else escaped and cut, with the beginning of its
    SHA-256 behind it, so that two names never have one value. (Quotes and backslashes are escaped by the exposition.)

    >>> label_value("orders")
    'orders'
    """
    shown = printable(name)
    if shown == name and len(name) <= _MOST:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{shown[:_KEPT]}~{digest}"
