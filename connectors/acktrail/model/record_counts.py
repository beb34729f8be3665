"""How many records a range of a log holds for one share group.

Not every offset is a record that the group gets: markers of transactions and what compaction removed are none, and
records of aborted transactions are none for a group that reads committed ones (``share.isolation.level``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

Span = tuple[int, int]
"""First and last offset, inclusive."""


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
