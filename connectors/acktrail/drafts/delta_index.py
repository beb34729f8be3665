"""The delta index of generation iii: 0 to 255, one more for every delta, rolled over, never reset by a checkpoint.

It only keeps the keys of deltas apart under compaction; the order of deltas is that of the log. A coordinator may roll
over before 255 and may extend its range when it reaches the end.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

__all__ = ["HIGHEST_DELTA_INDEX", "IndexStep", "delta_index_step", "next_delta_index"]

HIGHEST_DELTA_INDEX: Final = 255


class IndexStep(StrEnum):
    """What one step from an index to the next is."""

    OK = "ok"
    ROLLED_OVER_EARLY = "rolled_over_early"
    """Back to 0 before 255: legal, and the range's highest index is the one before."""
    INVALID_UINT8 = "invalid_uint8"
    INVALID_SKIP = "invalid_skip"
    INVALID_REGRESSION = "invalid_regression"
    INVALID_REUSE = "invalid_reuse"

    @property
    def is_valid(self) -> bool:
        return self in (IndexStep.OK, IndexStep.ROLLED_OVER_EARLY)


def delta_index_step(before: int | None, index: int) -> IndexStep:
    """What it is when `index` follows `before`; None: `index` is the first of its share partition."""
    if not 0 <= index <= HIGHEST_DELTA_INDEX:
        return IndexStep.INVALID_UINT8
    if before is None:
        return IndexStep.OK if index == 0 else IndexStep.INVALID_SKIP
    if index == before + 1 or (index, before) == (0, HIGHEST_DELTA_INDEX):
        return IndexStep.OK
    if index == before:
        return IndexStep.INVALID_REUSE
    if index == 0:
        return IndexStep.ROLLED_OVER_EARLY
    return IndexStep.INVALID_SKIP if index > before else IndexStep.INVALID_REGRESSION


def next_delta_index(last: int | None, highest: int | None = None) -> int:
    """The index of the next delta: one more than `last`, or 0 at the end of the range.

    `highest` is the highest index of a range that was seen to roll over early; None: 255.
    """
    if last is None:
        return 0
    end = HIGHEST_DELTA_INDEX if highest is None else highest
    return 0 if last == end or last >= HIGHEST_DELTA_INDEX else last + 1
