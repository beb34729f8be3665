"""Ranges of offsets, and the set that they stand for."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from acktrail.model.record_history import OffsetRanges

ranges = st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda drawn: (drawn[0], sum(drawn)))
deeds = st.lists(st.tuples(st.booleans(), ranges), max_size=12)


@given(deeds, ranges)
def test_offset_ranges_behave_as_a_set(done: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]) -> None:
    """Whatever is put in and taken out: what lies outside is what a plain set lacks, in the longest ranges."""
    own, plain = OffsetRanges(), set[int]()
    for is_added, (first, last) in done:
        (own.add if is_added else own.remove)(first, last)
        (plain.update if is_added else plain.difference_update)(range(first, last + 1))
    outside = list(own.outside(*asked))
    told = [offset for first, last in outside for offset in range(first, last + 1)]
    assert told == [offset for offset in range(asked[0], asked[1] + 1) if offset not in plain]
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(outside))
