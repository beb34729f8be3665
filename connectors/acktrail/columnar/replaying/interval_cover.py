"""Overlapping intervals to disjoint ones, on one axis: the combiner's law for all share partitions at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.sorting import ascending

__all__ = ["Intervals", "cover"]

Priorities = npt.NDArray[np.int32]
Intervals = tuple[Int64Array, Int64Array, Priorities]
"""First points, last points (inclusive), priorities."""

_UNCOVERED: Final = np.iinfo(np.int32).min


def cover(first: Int64Array, last: Int64Array, priority: Priorities) -> Intervals:
    """The shortest list of disjoint ascending intervals in which every point has the highest priority among the
    intervals given that cover it; points that none covers stay gaps.

    Needs ``0 <= first <= last``, last points below 2**62. Only intervals that meet others are cut up: each end becomes
    a boundary, each interval spreads its priority over the slices between its ends by at most two marks in a table of
    doubling widths, and the widths are pushed down to one. Cost: O(n log n) to sort, O(n log w) to push down, w the
    most slices that one interval spans.
    """
    order = ascending(first)
    first, last, priority = first[order], last[order], priority[order]
    if not len(first):
        return first, last, priority
    meets = first[1:] <= np.maximum.accumulate(last)[:-1]
    if meets.any():
        first, last, priority = _disjoint(first, last, priority, meets)
    return _joined(first, last, priority)


def _disjoint(first: Int64Array, last: Int64Array, priority: Priorities, meets: BoolArray) -> Intervals:
    """Intervals in ascending order, of which i+1 meets one before it where ``meets[i]``, with no two overlapping."""
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
    order = np.argsort(first, kind="stable")  # merges two ascending runs
    return first[order], last[order], priority[order]


def _slices(first: Int64Array, last: Int64Array, priority: Priorities) -> Intervals:
    """Intervals cut at every end of any of them, each slice once with the highest priority over it."""
    points = np.concatenate([first, last + 1])
    points.sort()
    edges = points[np.concatenate([[True], points[1:] != points[:-1]])]
    begin, end = np.searchsorted(edges, first), np.searchsorted(edges, last + 1)
    highest = _spread(begin, end, priority, len(edges))
    covered = np.flatnonzero(highest != _UNCOVERED)
    return edges[covered], edges[covered + 1] - 1, highest[covered]


def _spread(begin: Int64Array, end: Int64Array, priority: Priorities, count: int) -> Priorities:
    """The highest priority at each of `count` slices, interval i covering slices ``begin[i]`` to ``end[i] - 1``.

    An interval of n slices is two, overlapping, of the greatest power of two that is not above n.
    """
    level = np.frexp(end - begin)[1] - 1
    highest = np.full(count, _UNCOVERED, np.int32)
    for exponent in range(int(level.max()), -1, -1):
        own = np.flatnonzero(level == exponent)
        np.maximum.at(highest, begin[own], priority[own])
        if exponent:
            np.maximum.at(highest, end[own] - (1 << exponent), priority[own])
            half = 1 << (exponent - 1)
            narrower = highest.copy()
            np.maximum(narrower[half:], highest[:-half], out=narrower[half:])
            highest = narrower
    return highest


def _joined(first: Int64Array, last: Int64Array, priority: Priorities) -> Intervals:
    """Neighbours that touch and have equal priority made one."""
    begins = np.ones(len(first), np.bool_)
    begins[1:] = (first[1:] != last[:-1] + 1) | (priority[1:] != priority[:-1])
    heads = np.flatnonzero(begins)
    tails = np.append(heads[1:], len(first)) - 1
    return first[heads], last[tails], priority[heads]
