"""Many keys hashed at once are hashed as one key is."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.columnar.binary_column import binary_column
from acktrail_expansion.keys.key_hashes import ANY_PARTITION, hashes_of_keys
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_simulation.expansion.key_partitions import partition_of_key

keys = st.lists(st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=510, max_size=516)), max_size=30)


@given(keys, st.sampled_from(KeyMapping), st.integers(1, 1000), st.integers(0, 5))
def test_the_partitions_are_those_of_the_plain_law(
    found: list[bytes | None], mapping: KeyMapping, partition_count: int, skipped: int
) -> None:
    """Every mapping, keys of any length, none and empty ones, and a slice of a column."""
    column = binary_column(pa.array(found, pa.binary()).slice(skipped))
    hashes = hashes_of_keys(mapping, column).tolist()

    partitions = [None if each == ANY_PARTITION else each % partition_count for each in hashes]
    assert partitions == [partition_of_key(mapping, key, partition_count) for key in found[skipped:]]


@pytest.mark.parametrize("mapping", KeyMapping)
def test_no_keys_at_all(mapping: KeyMapping) -> None:
    """An empty column, and one of nulls alone."""
    assert hashes_of_keys(mapping, binary_column(pa.array([], pa.binary()))).tolist() == []
    assert hashes_of_keys(mapping, binary_column(pa.array([None, None], pa.binary()))).tolist() == [ANY_PARTITION] * 2
