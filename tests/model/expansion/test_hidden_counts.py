"""Another partition count between two observations: what is proven nevertheless."""

from __future__ import annotations

from collections.abc import Iterable

from definitions.dependencies import dependencies
from definitions.hidden_counts import moves_with_every_count, provable
from hypothesis import given
from hypothesis import strategies as st

from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import ExpansionFence, OrderingVerdict
from acktrail.model.expansion.reset_order import FencedExpansion, ResetReason, check_reset

MURMUR2 = KeyMapping.MURMUR2


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_what_moves_with_every_count_moves_with_each(source_count: int, more: int, added: int) -> None:
    """R003-02: a dependency on which a violation is proven is one of each count that can have been in between, at which
    the destination was there; of a partition from before, of the new count alone, by which its records are told."""
    old_count, new_count = source_count + more - 1, source_count + more - 1 + added
    for each in dependencies(source_count, new_count, MURMUR2):
        if not moves_with_every_count(each.destination, source_count, old_count, new_count, MURMUR2):
            continue
        for count in range(max(each.destination, old_count) + 1, new_count if each.destination >= old_count else 0):
            found = {(d.destination, d.source) for d in dependencies(source_count, count, MURMUR2)}
            assert (each.destination, each.source) in found, count


def test_nothing_is_safe_that_may_hide_a_count() -> None:
    """R003-02: from 2 to 3 to 4 partition 3 follows 0, 1 and 2, which 2 and 4 do not show."""
    assert {d.source for d in dependencies(2, 4, MURMUR2) if d.destination == 3} == {1}
    assert {d.source for d in dependencies(3, 4, MURMUR2) if d.destination == 3} == {0, 1, 2}
    for verdict in OrderingVerdict:
        assert provable(verdict, is_single=True, is_moved=True) is verdict
        changed = provable(verdict, is_single=False, is_moved=False)
        if verdict is OrderingVerdict.SAFE:
            assert changed is OrderingVerdict.INDETERMINATE
        elif verdict is OrderingVerdict.VIOLATION:
            assert changed is OrderingVerdict.POSSIBLE_VIOLATION
        else:
            assert changed is verdict


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.data())
def test_a_reset_that_breaks_order_by_a_hidden_count_is_not_accepted(
    old_count: int, hidden: int, added: int, data: st.DataObject
) -> None:
    """R003-02: what the two expansions that there were say of an old source and a new destination, the one that was
    seen has a reason for, too."""
    offsets, between, new_count = st.integers(0, 9), old_count + hidden, old_count + hidden + added
    lows = [data.draw(offsets) for _ in range(between)]
    highs = [low + data.draw(st.integers(0, 3)) for low in lows]
    targets = {partition: data.draw(offsets) for partition in range(new_count)}
    real = [_exact(old_count, between, lows[:old_count]), _exact(between, new_count, highs)]
    bracketed = {q: ExpansionFence(low=low, high=highs[q]) for q, low in enumerate(lows[:old_count])}
    seen = FencedExpansion(old_count=old_count, new_count=new_count, mapping=MURMUR2, fences=bracketed, is_single=False)

    broken = _pairs(check_reset(targets, real).reasons, old_count)
    assert broken <= _pairs(check_reset(targets, [seen]).reasons, old_count)


def _exact(old_count: int, new_count: int, fences: list[int]) -> FencedExpansion:
    known = {source: ExpansionFence(low=at, high=at) for source, at in enumerate(fences)}
    return FencedExpansion(old_count=old_count, new_count=new_count, mapping=MURMUR2, fences=known)


def _pairs(reasons: Iterable[ResetReason], old_count: int) -> set[tuple[int, int]]:
    every = {(each.source, destination) for each in reasons for destination in each.destinations}
    return {(source, destination) for source, destination in every if source < old_count <= destination}
