"""A reset that breaks the order of a key across an expansion is seen before it is done."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise, product
from math import gcd

from hypothesis import given
from hypothesis import strategies as st

from acktrail_expansion.law.order import KeyMapping
from acktrail_expansion.resets.reset_order import FencedExpansion, GroupPlace, ResetOrdering, check_reset

REJECT, UNCERTAIN, NEEDS_GATE = ResetOrdering
small = st.integers(0, 6)


def test_a_place_is_before_or_behind_a_fence_as_far_as_it_is_known() -> None:
    """By an exact place, a start offset that may stand below finished records, the log's end and what retention took;
    has begun what was given something from behind the fence."""
    fence, exact = (10, 20), [GroupPlace(first=at) for at in (9, 15, 20)]
    inexact = [GroupPlace(first=at, is_exact=False, given=None) for at in (9, 20, 21)]
    assert [place.is_before(fence) for place in exact] == [True, None, False]
    assert [place.is_before(fence) for place in inexact] == [None, False, False]
    assert [place.has_begun(fence) for place in inexact] == [None, None, True]
    assert [exact[0].is_before(each) for each in ((None, None), (10, None), (9, None))] == [None, True, None]
    assert [GroupPlace(first=3, **of).is_before(fence) for of in ({"start": 20}, {"end": 3})] == [False, False]
    given_to = [GroupPlace(first=3, given=given) for given in (None, 10, 15, 21)]
    assert [place.has_begun(fence) for place in given_to] == [None, False, None, True]


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[FencedExpansion], dict[int, GroupPlace], frozenset[int]]:
    """Up to three expansions of one topic; some fences and places are not known; the partitions of a reset."""
    counts = [draw(st.integers(1, 3))]
    for _ in range(draw(st.integers(1, 3))):
        counts.append(counts[-1] + draw(st.integers(1, 4)))
    mapping, expansions = draw(st.sampled_from(KeyMapping)), []
    for old, new in pairwise(counts):
        low, high = sorted((draw(small), draw(small)))
        ends = st.sampled_from([(low, high), (low, high), (low, None), (None, None)])
        fences = {source: draw(ends) for source in range(old)}
        expansions.append(FencedExpansion(old, new, mapping, fences, draw(st.booleans())))
    made = st.builds(
        GroupPlace, first=small, is_exact=st.booleans(), given=st.none() | small, end=st.none() | st.just(6)
    )
    where = {partition: draw(made) for partition in range(counts[-1])}
    return expansions, where, draw(st.frozensets(st.sampled_from(sorted(where)), min_size=1))


@given(chains())
def test_each_destination_is_judged_by_its_worst_source(
    chain: tuple[list[FencedExpansion], dict[int, GroupPlace], frozenset[int]],
) -> None:
    """R003-05: as pair by pair of a source and a partition that its keys may be in; a reason names no partition that
    the reset has nothing to do with."""
    expansions, where, touched = chain
    expected: dict[tuple[int, int], ResetOrdering] = {}
    for index, number in combinations_with_replacement(range(len(expansions)), 2):
        left, reached = expansions[index], expansions[number]
        is_hidden = not all(each.is_single for each in expansions[index : number + 1])
        is_whole, is_known = left.new_count % left.old_count == 0, left.mapping is not KeyMapping.NONE
        for source, destination in product(range(left.old_count), range(reached.new_count)):
            is_new, is_before = destination >= left.old_count, where[source].is_before(left.fences[source])
            is_moved = (source - destination) % gcd(left.old_count, reached.new_count) == 0 if is_known else is_new
            is_pair = source != destination and (is_moved or (is_hidden and is_new))
            if not is_pair or is_before is False or touched.isdisjoint({source, destination}):
                continue
            begun, order = where[destination].has_begun(reached.fences.get(destination, (0, 0))), UNCERTAIN
            if is_before and begun is not None:
                is_certain = is_moved and number == index and (left.is_single or is_whole or not is_known)
                order = NEEDS_GATE if not begun else REJECT if is_certain else UNCERTAIN
            about = left.old_count, destination
            expected[about] = min(expected.get(about, order), order, key=list(ResetOrdering).index)
    reasons = [*check_reset(where, expansions, touched)]
    assert {(each.left.old_count, to): each.order for each in reasons for to in each.destinations} == expected
    assert sum(len(each.destinations) for each in reasons) == len(expected)
    assert all({source, *each.destinations} & touched for each in reasons for source in each.sources)
