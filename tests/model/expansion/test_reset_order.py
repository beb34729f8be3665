"""A reset that breaks the order of a key across an expansion is seen before it is done."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail.model.expansion.dependencies import destinations_of
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import ExpansionFence
from acktrail.model.expansion.reset_order import FencedExpansion, ResetOrdering, check_reset

M = KeyMapping.MURMUR2


def exact(old_count: int, new_count: int, fences: dict[int, int]) -> FencedExpansion:
    known = {source: ExpansionFence(low=at, high=at) for source, at in fences.items()}
    return FencedExpansion(old_count=old_count, new_count=new_count, mapping=M, fences=known)


@pytest.mark.parametrize("case", SEED["kip253"]["reset_cases"], ids=lambda case: case["verdict"])
def test_the_vectors_of_resets(case: dict[str, Any]) -> None:
    """R003-05: the worked cases, and the partitions that are named."""
    expansion = exact(case["n_old"], case["n_new"], {int(q): at for q, at in case["fence"].items()})
    check = check_reset({int(p): at for p, at in case["targets"].items()}, [expansion])

    assert check.order.name == case["verdict"]
    found = [(reason.source, reason.destinations) for reason in check.reasons]
    assert found == ([] if case["verdict"] == "ACCEPT" else [(0, (2,))])


def test_reasons_name_partitions() -> None:
    """Each sentence names what is rewound, the expansion and who depends on it."""
    check = check_reset({0: 5, 1: 5, 2: 1, 3: 0, 4: 2}, [exact(2, 5, {0: 10, 1: 10})])

    assert [str(reason) for reason in check.reasons] == [
        "partition 0 starts before the expansion from 2 to 5, but partitions 2, 4 keep records from after it",
        "partition 0 starts before the expansion from 2 to 5: finish it before partitions 1, 3 may be delivered",
        "partition 1 starts before the expansion from 2 to 5, but partitions 2, 4 keep records from after it",
        "partition 1 starts before the expansion from 2 to 5: finish it before partitions 0, 3 may be delivered",
    ]


def test_what_is_not_known_is_uncertain() -> None:
    """A target between the fences, no fence, no high fence, no target of a source or of a destination."""
    between = FencedExpansion(old_count=1, new_count=2, mapping=M, fences={0: ExpansionFence(low=10, high=20)})
    settling = FencedExpansion(old_count=1, new_count=2, mapping=M, fences={0: ExpansionFence(low=10, high=None)})
    unknown = FencedExpansion(old_count=1, new_count=2, mapping=M, fences={})
    for expansion, targets in [
        (between, {0: 15, 1: 0}),
        (settling, {0: 30, 1: 0}),
        (unknown, {0: 30, 1: 0}),
        (between, {0: None, 1: 0}),
        (between, {1: 0}),
        (between, {0: 5, 1: None}),
    ]:
        assert check_reset(targets, [expansion]).order is ResetOrdering.UNCERTAIN
    assert check_reset({0: 30, 1: 0}, [settling], log_ends={0: 30}).order is ResetOrdering.ACCEPT
    assert check_reset({0: 5, 1: 40}, [between], log_starts={1: 40}).order is ResetOrdering.WARN_NEEDS_GATE
    assert check_reset({0: 5, 1: 41}, [between], log_starts={1: 40}).order is ResetOrdering.REJECT


def test_a_destination_that_was_there_before_is_begun_behind_its_own_fence() -> None:
    """From 2 to 3, partition 0 depends on 1 and 1 on 0: each is judged by its own interval."""
    fences = {0: ExpansionFence(low=10, high=12), 1: ExpansionFence(low=20, high=22)}
    expansion = FencedExpansion(old_count=2, new_count=3, mapping=M, fences=fences)
    orders = {at: check_reset({0: 5, 1: at, 2: 0}, [expansion]).reasons for at in (22, 23)}

    assert [(r.order, r.destinations) for r in orders[22]] == [
        (ResetOrdering.UNCERTAIN, (1,)),
        (ResetOrdering.WARN_NEEDS_GATE, (2,)),
    ]
    assert [(r.order, r.destinations) for r in orders[23]] == [
        (ResetOrdering.REJECT, (1,)),
        (ResetOrdering.WARN_NEEDS_GATE, (2,)),
    ]


def test_keys_move_across_two_expansions() -> None:
    """From 4 to 6 to 9 keys get from 0 to 1 past 4: a rewind of 0 names 1 although no single expansion does."""
    first = exact(4, 6, dict.fromkeys(range(4), 10))
    second = exact(6, 9, dict.fromkeys(range(4), 20) | {4: 0, 5: 0})
    targets = dict.fromkeys(range(9), 30) | {0: 5, 2: 10, 4: 0}
    reasons = check_reset(targets, [first, second]).reasons

    assert {r.destinations for r in reasons if (r.old_count, r.new_count, r.source) == (4, 9, 0)} == {
        (1, 3, 5, 6, 7, 8)
    }


small = st.integers(0, 12)


@st.composite
def resets(draw: st.DrawFn) -> tuple[dict[int, int], FencedExpansion]:
    old_count = draw(st.integers(1, 4))
    new_count = old_count + draw(st.integers(1, 4))
    fences = {}
    for source in range(old_count):
        low, high = sorted((draw(small), draw(small)))
        fences[source] = ExpansionFence(low=low, high=high)
    mapping = draw(st.sampled_from(KeyMapping))
    expansion = FencedExpansion(old_count=old_count, new_count=new_count, mapping=mapping, fences=fences)
    return {partition: draw(small) for partition in range(new_count)}, expansion


@given(resets())
def test_ends_are_accepted_and_starts_need_a_gate(given_reset: tuple[dict[int, int], FencedExpansion]) -> None:
    """To the end of all partitions is always accepted, with any fences; to the start never rejected nor uncertain."""
    targets, expansion = given_reset
    unknown = FencedExpansion(old_count=expansion.old_count, new_count=expansion.new_count, mapping=M, fences={})

    assert check_reset(targets, [unknown], log_ends=targets).order is ResetOrdering.ACCEPT
    order = check_reset(dict.fromkeys(targets, 0), [expansion]).order
    assert order in {ResetOrdering.WARN_NEEDS_GATE, ResetOrdering.ACCEPT, ResetOrdering.UNCERTAIN}
    if all(fence.low for fence in expansion.fences.values()):
        assert order is ResetOrdering.WARN_NEEDS_GATE


@given(resets(), st.data())
def test_moving_a_source_forward_makes_no_reset_worse(
    given_reset: tuple[dict[int, int], FencedExpansion], data: st.DataObject
) -> None:
    """A source set to its high fence or behind it has no reason of its own, and adds none as a source to others."""
    targets, expansion = given_reset
    source = data.draw(st.sampled_from(sorted(expansion.fences)))
    high = expansion.fences[source].high
    assert high is not None
    before = check_reset(targets, [expansion])
    after = check_reset(targets | {source: max(high, targets[source])}, [expansion])

    assert source not in {reason.source for reason in after.reasons}
    assert {reason.source for reason in after.reasons} <= {reason.source for reason in before.reasons}


@given(resets())
def test_an_accepted_reset_delivers_nothing_out_of_order(
    given_reset: tuple[dict[int, int], FencedExpansion],
) -> None:
    """Where a reset is accepted, no source delivers a record from before the expansion again that a destination's
    records have moved on from; where it is rejected, one does with every fence in the interval."""
    targets, expansion = given_reset
    check = check_reset(targets, [expansion])
    if check.order is ResetOrdering.ACCEPT:
        for source, fence in expansion.fences.items():
            assert fence.high is not None
            waits = destinations_of(source, expansion.old_count, expansion.new_count, expansion.mapping)
            assert targets[source] >= fence.high or not waits
    for reason in check.reasons:
        low = expansion.fences[reason.source].low
        assert low is not None
        if reason.order is ResetOrdering.REJECT:
            assert targets[reason.source] < low
            assert all(targets[each] > 0 for each in reason.destinations)
