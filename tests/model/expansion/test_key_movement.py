"""Which share of keys an expansion moves."""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.key_movement import moving_share
from acktrail_simulation.expansion.key_partitions import partition_of_key


@given(old=st.integers(1, 40), more=st.integers(1, 40))
def test_the_share_is_that_of_all_remainders(old: int, more: int) -> None:
    """Counted over every remainder that a hash can leave by both counts."""
    new = old + more
    remainders = range(lcm(old, new))

    assert moving_share(old, new) == Fraction(sum(each % old != each % new for each in remainders), len(remainders))


@pytest.mark.parametrize("mapping", [KeyMapping.MURMUR2, KeyMapping.CRC32])
@pytest.mark.parametrize(("old", "new", "share"), [(2, 4, 0.5), (2, 3, 2 / 3), (3, 4, 3 / 4)])
def test_real_keys_move_in_that_share(mapping: KeyMapping, old: int, new: int, share: float) -> None:
    """Keys of both partitioners, within what their number allows."""
    keys = [f"key-{number}".encode() for number in range(4_000)]
    moved = sum(partition_of_key(mapping, key, old) != partition_of_key(mapping, key, new) for key in keys)

    assert float(moving_share(old, new)) == pytest.approx(share)
    assert moved / len(keys) == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize(("old", "new"), [(0, 1), (2, 2), (3, 2), (-1, 4)])
def test_what_is_no_expansion_is_refused(old: int, new: int) -> None:
    """Partitions are not taken away, and there is at least one."""
    with pytest.raises(ValueError, match="no expansion"):
        moving_share(old, new)
