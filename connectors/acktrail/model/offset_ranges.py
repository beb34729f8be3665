"""A set of offsets, stored as ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import itemgetter

_Range = tuple[int, int]


class OffsetRanges:
    """A set of offsets. Every range of its methods is inclusive at both ends.

    The invariant: ranges are ascending and disjoint. Each call costs O(log n + k) for n ranges, k of them overlapping
    its own, and one move of the ranges after them.
    """

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[_Range] = []

    def __iter__(self) -> Iterator[_Range]:
        """The ranges, ascending."""
        return iter(self._ranges)

    def add(self, first: int, last: int) -> None:
        """Add offsets."""
        self.remove(first, last)
        self._ranges.insert(bisect_left(self._ranges, first, key=itemgetter(0)), (first, last))

    def remove(self, first: int, last: int) -> None:
        """Remove offsets."""
        overlapping = self._overlapping(first, last)
        left: list[_Range] = []
        for begin, end in self._ranges[overlapping]:
            left.extend(part for part in ((begin, first - 1), (last + 1, end)) if part[0] <= part[1])
        self._ranges[overlapping] = left

    def outside(self, first: int, last: int) -> Iterator[_Range]:
        """The parts of a range that are not in the set, ascending."""
        reached = first
        for begin, end in self._ranges[self._overlapping(first, last)]:
            if begin > reached:
                yield reached, begin - 1
            reached = end + 1
        if reached <= last:
            yield reached, last

    def _overlapping(self, first: int, last: int) -> slice:
        """The slice of ranges that share an offset with this one."""
        return slice(
            bisect_left(self._ranges, first, key=itemgetter(1)), bisect_right(self._ranges, last, key=itemgetter(0))
        )
