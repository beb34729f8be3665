"""Overlapping intervals to disjoint ones, on one axis: Kafka's batch combiner for all share partitions at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from acktrail.format.columns.binary_column import BoolArray, Int64Array, ascending

_Priorities = npt.NDArray[np.int32]
_Intervals = tuple[Int64Array, Int64Array, _Priorities]
"""First points, last points (inclusive), priorities."""

_UNCOVERED: Final = np.iinfo(np.int32).min


def cover(first: Int64Array, last: Int64Array, priority: _Priorities) -> _Intervals:
    """The shortest list of disjoint intervals in which every point has the highest priority that covers it.

    Args:
        first, last: int64, shape (n,): the first and last point of each interval, both inclusive, in any order; needs
            ``0 <= first <= last < 2**62``.
        priority: int32, shape (n,).

    Returns:
        The same three arrays, of the m intervals of the cover, ascending. Touching intervals of equal priority are one;
        points that no interval covers stay gaps.

    Only intervals that overlap others are cut: each end becomes a boundary, each interval marks the slices between its
    ends in a table of doubling widths, and the widths are pushed down to one. Cost: O(n log n) to sort, O(n log w) to
    push down, w the most slices that one interval spans.

    Priority 2 wins where 0-9 and 5-14 overlap; 20-29 touches nothing:

    >>> first, last = np.array([0, 5, 20]), np.array([9, 14, 29])
    >>> [array.tolist() for array in cover(first, last, np.array([1, 2, 1], np.int32))]
    [[0, 5, 20], [4, 14, 29], [1, 2, 1]]
    """
    order = ascending(first)
    first, last, priority = first[order], last[order], priority[order]
    if not len(first):
        return first, last, priority
    meets = first[1:] <= np.maximum.accumulate(last)[:-1]
    if meets.any():
        first, last, priority = _disjoint(first, last, priority, meets)
    return _joined(first, last, priority)


def _disjoint(first: Int64Array, last: Int64Array, priority: _Priorities, meets: BoolArray) -> _Intervals:
    """Ascending intervals cut so that none overlap; interval i+1 meets an earlier one where ``meets[i]``."""
    crowded = np.zeros(len(first), np.bool_)
    crowded[1:] = meets
    crowded[:-1] |= meets
    slices = _slices(first[crowded], last[crowded], priority[crowded])
    if crowded.all():
        return slices
    alone = ~crowded
    first = np.concatenate([first[alone], slices[0]])
    last = np.concatenate([last[alone], slices[1]])
    priority = np.concatenate([priority[alone], slices[2]])
    order = np.argsort(first, kind="stable")  # merges two ascending runs: linear in timsort
    return first[order], last[order], priority[order]


def _slices(first: Int64Array, last: Int64Array, priority: _Priorities) -> _Intervals:
    """Intervals cut at every end of any of them, each slice once with the highest priority over it."""
    points = np.concatenate([first, last + 1])
    points.sort()
    edges = points[np.concatenate([[True], points[1:] != points[:-1]])]
    begin, end = np.searchsorted(edges, first), np.searchsorted(edges, last + 1)
    highest = _highest_over_slices(begin, end, priority, len(edges))
    covered = np.flatnonzero(highest != _UNCOVERED)
    return edges[covered], edges[covered + 1] - 1, highest[covered]


def _highest_over_slices(begin: Int64Array, end: Int64Array, priority: _Priorities, count: int) -> _Priorities:
    """The highest priority at each of `count` slices; interval i covers slices ``begin[i]`` to ``end[i] - 1``.

    As in a sparse table for range queries: an interval of n slices is the union of two blocks, which may overlap, of
    the greatest power of two that is not above n. Each power marks only where its blocks begin; from the widest to the
    narrowest, a block of width 2w then passes its priority to its two halves of width w.
    """
    level = np.frexp(end - begin)[1] - 1
    highest = np.full(count, _UNCOVERED, np.int32)
    for exponent in range(int(level.max()), -1, -1):
        rows = np.flatnonzero(level == exponent)
        np.maximum.at(highest, begin[rows], priority[rows])
        if exponent:
            np.maximum.at(highest, end[rows] - (1 << exponent), priority[rows])
            half = 1 << (exponent - 1)
            narrower = highest.copy()
            np.maximum(narrower[half:], highest[:-half], out=narrower[half:])
            highest = narrower
    return highest


def _joined(first: Int64Array, last: Int64Array, priority: _Priorities) -> _Intervals:
    """Touching neighbours of equal priority made one."""
    begins = np.ones(len(first), np.bool_)
    begins[1:] = (first[1:] != last[:-1] + 1) | (priority[1:] != priority[:-1])
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(first)) - 1
    return first[starts], last[ends], priority[starts]
