"""Which offsets were ever archived: sets, in arrays."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail.reconcile import newest_offsets
from acktrail.reconcile.newest_offsets import RANGES, ArchivedRanges, offset_counts

GREATEST = 2**63 - 1

bounds = st.tuples(st.integers(-3, 30), st.integers(0, 6)).map(lambda drawn: (drawn[0], sum(drawn)))
added = st.lists(st.lists(st.tuples(st.integers(0, 4), bounds), max_size=8), max_size=4)


@given(added, st.sampled_from([0, 5, 200_000]))
@settings(max_examples=100)
def test_they_are_sets(pieces: list[list[tuple[int, tuple[int, int]]]], kept: int) -> None:
    """However they come, and however often they are united meanwhile: the distinct offsets of each number, in the
    longest ranges."""
    own, plain = ArchivedRanges(), defaultdict[int, set[int]](set)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(newest_offsets, "_ROWS_KEPT", kept)
        for piece in pieces:
            own.add(*columns(piece))
            for number, (first, last) in piece:
                plain[number].update(range(first, last + 1))
    lists = own.lists(6)
    assert lists.type == RANGES
    assert offset_counts(lists).to_pylist() == [len(plain[number]) for number in range(6)]
    for number, found in enumerate(lists.to_pylist()):
        ranges = [(each["first_offset"], each["last_offset"]) for each in found]
        assert sorted(plain[number]) == [offset for first, last in ranges for offset in range(first, last + 1)]
        assert all(before + 1 < first for (_, before), (first, _) in pairwise(ranges))


def test_the_greatest_offsets() -> None:
    """The greatest offset has no one after it; a count that no column can hold is not known."""
    own = ArchivedRanges()
    own.add(*columns([(0, (0, GREATEST - 1)), (0, (GREATEST, GREATEST)), (0, (-5, -1))]))
    own.add(*columns([(1, (GREATEST - 1, GREATEST)), (1, (GREATEST, GREATEST))]))
    own.add(*columns([(2, (1, GREATEST)), (3, (-GREATEST - 1, GREATEST))]))
    assert offset_counts(own.lists(5)).to_pylist() == [None, 2, GREATEST, None, 0]


def columns(piece: list[tuple[int, tuple[int, int]]]) -> tuple[npt.NDArray[np.int64], pa.StructArray]:
    ranges = [{"first_offset": first, "last_offset": last} for _, (first, last) in piece]
    return np.array([number for number, _ in piece], np.int64), pa.array(ranges, RANGES.value_type)
