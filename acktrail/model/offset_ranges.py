"""A set of offsets, stored as ranges.

Not every offset is a record that a share group gets: markers of transactions and what compaction removed are none, and
records of aborted transactions are none for a group that reads committed ones (``share.isolation.level``). A count of
the records of a range says whether it is exact.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter

Span = tuple[int, int]
"""First and last offset, inclusive."""


class OffsetRanges:
    """A set of offsets. Every range of its methods is inclusive at both ends.

    The invariant: ranges are ascending and disjoint. Each call costs O(log n + k) for n ranges, k of them overlapping
    its own, and one move of the ranges after them.
    """

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[Span] = []

    def __iter__(self) -> Iterator[Span]:
        """The ranges, ascending."""
        return iter(self._ranges)

    def add(self, first: int, last: int) -> None:
        """Add offsets."""
        self.remove(first, last)
        self._ranges.insert(bisect_left(self._ranges, first, key=itemgetter(0)), (first, last))

    def remove(self, first: int, last: int) -> None:
        """Remove offsets."""
        overlapping = self._overlapping(first, last)
        left: list[Span] = []
        for begin, end in self._ranges[overlapping]:
            left.extend(part for part in ((begin, first - 1), (last + 1, end)) if part[0] <= part[1])
        self._ranges[overlapping] = left

    def outside(self, first: int, last: int) -> Iterator[Span]:
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


class RecordCounter:
    """Counts without the offsets in `hidden`: ascending, disjoint spans. Without any it counts offsets. Cost: O(log n)
    a count for n spans."""

    def __init__(self, hidden: Sequence[Span] = ()) -> None:
        self._hidden = hidden
        self._firsts = [first for first, _ in hidden]
        self._before = list(accumulate((last - first + 1 for first, last in hidden), initial=0))

    def count(self, first: int, last: int) -> int:
        """The records from `first` to `last` (inclusive); 0 where there are no such offsets.

        >>> RecordCounter([(5, 5), (8, 11)]).count(4, 9)
        3
        """
        return max(0, last - first + 1 - self._below(last + 1) + self._below(first))

    def _below(self, offset: int) -> int:
        """How many hidden offsets lie below `offset`."""
        spans = bisect_left(self._firsts, offset)
        return self._before[spans] - max(0, self._hidden[spans - 1][1] + 1 - offset) if spans else 0


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Ascending `spans`, with neighbours as one and empty ones left out."""
    found: list[Span] = []
    for first, last in spans:
        if first <= last:
            begin = found.pop()[0] if found and found[-1][1] + 1 == first else first
            found.append((begin, last))
    return tuple(found)
