"""Which chunks of a chunked table are rewritten together with new rows.

A lookup opens every chunk, so there must be few; a row should not be written often, so large chunks must be left alone.
Chunks are of a tier by their number of rows, each tier eight times the one below. As soon as eight of one tier would
lie side by side they become one of the next. A chunk of the highest tier is never touched again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["FULL_ROWS", "first_rewritten"]

_FAN: Final = 8

FULL_ROWS: Final = _FAN**6
"""A chunk with at least 262,144 rows stays as it is; the largest have eight times more."""


def first_rewritten(sizes: Sequence[int], new_rows: int) -> int:
    """Index of the first chunk to rewrite with `new_rows`, and all later ones with it.

    Args:
        sizes: rows of each chunk, oldest first.

    Returns:
        ``len(sizes)`` where the new rows become a chunk of their own.

    The invariant: at most seven chunks of a tier that is not full lie side by side, so that n rows lie in fewer than
    n / FULL_ROWS + 42 chunks where rows come evenly; a row is written at most seven times, once for each tier.
    """
    index, total = len(sizes), new_rows
    while True:
        begin = index
        while begin and sizes[begin - 1] < FULL_ROWS and _tier(sizes[begin - 1]) <= _tier(total):
            begin -= 1
        if index - begin < _FAN - 1:
            return index
        total += sum(sizes[begin:index])
        index = begin


def _tier(rows: int) -> int:
    tier = 0
    while rows >= _FAN:
        rows //= _FAN
        tier += 1
    return tier
