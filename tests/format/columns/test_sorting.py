"""Orders digit by digit are those that numpy's stable sorts give."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import INT64

from acktrail.format.columns.binary_column import ascending, by_partition_and_offset

numbers = st.lists(st.one_of(st.integers(-3, 3), INT64, st.sampled_from([-(2**63), 2**63 - 1])), max_size=12)


@given(numbers)
def test_ascending_is_the_stable_order(found: list[int]) -> None:
    """Equal numbers stay in the order they came in, from one end of int64 to the other."""
    array = np.array(found, np.int64)
    assert ascending(array).tolist() == np.argsort(array, kind="stable").tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.integers(0, 4), INT64)), max_size=12))
def test_rows_are_sorted_by_share_partition_then_offset(rows: list[tuple[int, int]]) -> None:
    """Whether the offsets of an owner ascend already or not; rows of equal offset stay in their order."""
    owners, offsets = (np.array([row[place] for row in rows], np.int64) for place in (0, 1))
    assert by_partition_and_offset(owners, offsets).tolist() == np.lexsort((offsets, owners)).tolist()
