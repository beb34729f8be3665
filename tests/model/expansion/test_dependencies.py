"""The partitions that a partition depends on are those that its keys came from, and no other."""

from __future__ import annotations

from math import lcm
from typing import Any

import pytest
from definitions.dependencies import dependencies
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail.model.expansion.dependencies import DependencyKind, destinations_of
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail_simulation.expansion.key_partitions import sources_across

KIP = SEED["kip253"]
counts = st.integers(1, 14)


def moves(old_count: int, new_count: int) -> set[tuple[int, int]]:
    """Source and destination of every hash that changes its partition."""
    hashes = range(lcm(old_count, new_count))
    return {(h % old_count, h % new_count) for h in hashes if h % old_count != h % new_count}


@pytest.mark.parametrize("case", KIP["dependencies"], ids=lambda case: f"{case['n_old']} to {case['n_new']}")
def test_the_vectors_of_dependencies(case: dict[str, Any]) -> None:
    """R003-02: the sources of every partition are those of the worked examples."""
    found = dependencies(case["n_old"], case["n_new"], KeyMapping.MURMUR2)
    sources = {str(each): [d.source for d in found if d.destination == each] for each in range(case["n_new"])}

    assert sources == case["sources_of"]


def test_the_gap_in_the_rule_of_lower_partitions() -> None:
    """R003-05: from 2 to 3 keys move between partitions that were there before, which a map that only new partitions
    have does not show."""
    case = KIP["kip_lower_partition_rule_gap"]
    found = dependencies(case["n_old"], case["n_new"], KeyMapping.CRC32)

    assert sorted([d.source, d.destination] for d in found) == case["moves"]
    existing = {(d.source, d.destination) for d in found if d.kind is DependencyKind.EXISTING_MOVE}
    assert existing == {(0, 1), (1, 0)}


@given(counts, counts)
def test_dependencies_are_the_moves_of_all_hashes(old_count: int, more: int) -> None:
    """R003-02: a destination depends on a source exactly when some hash moves from there to here."""
    new_count = old_count + more
    found = dependencies(old_count, new_count, KeyMapping.MURMUR2)

    assert {(d.source, d.destination) for d in found} == moves(old_count, new_count)
    assert list(found) == sorted(found)
    assert all((d.kind is DependencyKind.NEW_PARTITION) == (d.destination >= old_count) for d in found)
    if new_count % old_count == 0:
        assert {d.kind for d in found} == {DependencyKind.NEW_PARTITION}


@given(counts, counts, st.sampled_from(KeyMapping))
def test_destinations_of_one_source(old_count: int, more: int, mapping: KeyMapping) -> None:
    """The dependents of a source are those of the whole list; without a known mapping all new partitions."""
    found = dependencies(old_count, old_count + more, mapping)
    for source in range(old_count):
        expected = tuple(d.destination for d in found if d.source == source)
        assert destinations_of(source, old_count, old_count + more, mapping) == expected
    if mapping is KeyMapping.NONE:
        assert {d.kind for d in found} == {DependencyKind.ALL_LOWER}
        assert len(found) == old_count * more


@given(st.lists(st.integers(1, 7), min_size=2, max_size=4))
def test_sources_across_several_changes(history: list[int]) -> None:
    """After any sequence of counts, a partition waits for every other one that had one of its keys, up to the end of
    the last count at which it had one."""
    for destination in range(history[-1]):
        expected: dict[int, int] = {}
        for index, count in enumerate(history[:-1]):
            expected |= {h % count: index for h in range(lcm(*history)) if h % history[-1] == destination}
        expected.pop(destination, None)
        assert sources_across(history, destination, KeyMapping.MURMUR2) == expected


def test_two_expansions_are_more_than_each_of_them() -> None:
    """From 4 to 6 to 9, hash 28 is in 0, then 4, then 1: partition 1 depends on 0 through 4, and no dependency of the
    second expansion says so."""
    second = {(d.source, d.destination) for d in dependencies(6, 9, KeyMapping.MURMUR2)}

    assert (0, 1) not in second
    assert (4, 1) in second
    assert sources_across([4, 6, 9], 1, KeyMapping.MURMUR2) == {0: 0, 2: 0, 3: 0, 4: 1}


@pytest.mark.parametrize(("old_count", "new_count"), [(2, 2), (3, 2), (0, 2), (-1, 2)])
def test_what_is_no_expansion_is_refused(old_count: int, new_count: int) -> None:
    """A count that does not grow, or none."""
    with pytest.raises(ValueError, match="no expansion"):
        dependencies(old_count, new_count, KeyMapping.MURMUR2)
    with pytest.raises(ValueError, match="no dependents"):
        destinations_of(old_count, old_count, new_count, KeyMapping.MURMUR2)
    with pytest.raises(ValueError, match="no change of partitions"):
        sources_across([old_count], 0, KeyMapping.MURMUR2)
