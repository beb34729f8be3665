"""The partitions that a partition depends on are those that its keys came from, and no other."""

from __future__ import annotations

from math import lcm
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail_expansion.law.order import moves_with_every_count, sources_of
from acktrail_expansion.law.partition_ledger import KeyMapping

KIP = SEED["kip253"]
counts = st.integers(1, 14)


def moves(old_count: int, new_count: int, mapping: KeyMapping = KeyMapping.MURMUR2) -> list[list[int]]:
    """Source and destination of every pair that depends."""
    pairs = [(source, to) for to in range(new_count) for source in sources_of(to, old_count, new_count, mapping)]
    return sorted(map(list, pairs))


@pytest.mark.parametrize("case", KIP["dependencies"], ids=lambda case: f"{case['n_old']} to {case['n_new']}")
def test_the_vectors_of_dependencies(case: dict[str, Any]) -> None:
    """R003-02: the sources of every partition are those of the worked examples."""
    old, new = case["n_old"], case["n_new"]
    found = {str(each): [*sources_of(each, old, new, KeyMapping.MURMUR2)] for each in range(new)}

    assert found == case["sources_of"]


def test_the_gap_in_the_rule_of_lower_partitions() -> None:
    """R003-05: from 2 to 3 keys move between partitions that were there before, which a map that only new partitions
    have does not show."""
    assert moves(2, 3) == KIP["kip_lower_partition_rule_gap"]["moves"]


@given(counts, counts, st.sampled_from(KeyMapping))
def test_sources_and_destinations_are_the_moves_of_all_hashes(old: int, more: int, mapping: KeyMapping) -> None:
    """R003-02: a destination depends on a source exactly when some hash moves from there to here; without a known
    mapping each new partition on each old one. What is a source by every count is one by each count in between."""
    new = old + more
    found = moves(old, new, mapping)
    expected = {(h % old, h % new) for h in range(lcm(old, new)) if h % old != h % new}
    if mapping is KeyMapping.NONE:
        expected = {(source, to) for source in range(old) for to in range(old, new)}
    assert found == sorted(map(list, expected))
    for to in range(old, new):
        if moves_with_every_count(to, old, new, mapping):
            by_each = [{*sources_of(to, old, middle, mapping)} for middle in range(to + 1, new)]
            assert all({*sources_of(to, old, new, mapping)} <= own for own in by_each)
