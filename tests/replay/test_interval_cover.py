"""Intervals on one axis: the cover is pointwise."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from acktrail.replay.combine_batches import cover

intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(-5, 5)).map(lambda t: (t[0], t[0] + t[1], t[2])),
    max_size=25,
)


@given(intervals, st.sampled_from([0, 2**61]))
def test_every_point_has_the_highest_priority(found: list[tuple[int, int, int]], shift: int) -> None:
    """Disjoint, ascending, as few as can be, and at each point the greatest priority of those that cover it."""
    first, last, priority = (np.array([t[i] for t in found], np.int64) for i in range(3))
    covers = list(
        zip(*(a.tolist() for a in cover(first + shift, last + shift, priority.astype(np.int32))), strict=True)
    )
    told = {p - shift: priority for begin, end, priority in covers for p in range(begin, end + 1)}
    assert told == {
        p: max(rank for begin, end, rank in found if begin <= p <= end)
        for p in range(100)
        if any(begin <= p <= end for begin, end, _ in found)
    }
    for (_, end, rank), (begin, _, next_rank) in itertools.pairwise(covers):
        assert begin > end
        assert begin > end + 1 or rank != next_rank
