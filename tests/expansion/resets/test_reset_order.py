"""A reset that breaks the order of a key across an expansion is seen before it is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import gcd
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.resets.reset_order import FencedExpansion, GroupPlace, ResetOrdering, check_reset

M = KeyMapping.MURMUR2
REJECT, UNCERTAIN, NEEDS_GATE = ResetOrdering
UNKNOWN = GroupPlace(first=0, is_exact=False, given=None)
small = st.integers(0, 6)


def exact(old_count: int, new_count: int, ends: Mapping[int, int], **changes: Any) -> FencedExpansion:
    known = {source: (at, at) for source, at in ends.items()}
    return FencedExpansion(**{"old_count": old_count, "new_count": new_count, "mapping": M, "fences": known} | changes)


def at(*offsets: int) -> dict[int, GroupPlace]:
    return {partition: GroupPlace(first=offset) for partition, offset in enumerate(offsets)}


@pytest.mark.parametrize("case", SEED["kip253"]["reset_cases"], ids=lambda case: case["verdict"])
def test_the_vectors_of_resets(case: dict[str, Any]) -> None:
    """R003-05: the worked cases, and the partitions that are named."""
    expansion = exact(case["n_old"], case["n_new"], {int(q): at for q, at in case["fence"].items()})
    reasons = check_reset({int(p): GroupPlace(first=at) for p, at in case["targets"].items()}, [expansion])

    found = [(reason.order.name, reason.sources, reason.destinations) for reason in reasons]
    assert found == ([] if case["verdict"] == "ACCEPT" else [(case["verdict"], (0,), (2,))])


def test_reasons_name_partitions() -> None:
    """Each sentence names what is rewound, the expansion and who depends on it."""
    reasons = check_reset(at(5, 5, 1, 0, 2), [exact(2, 5, {0: 10, 1: 10})])
    start = "partitions 0, 1 start before the expansion from 2 to 5"
    assert [str(reason) for reason in reasons] == [
        f"{start}, but partitions 2, 4 keep records from after it",
        f"{start}: to be finished before partitions 0, 1, 3 may be delivered",
    ]


@pytest.mark.parametrize(
    ("fence", "source", "destination"),
    [
        ((10, 20), GroupPlace(first=15), GroupPlace(first=0)),
        ((10, None), GroupPlace(first=30), GroupPlace(first=0)),
        ((None, None), GroupPlace(first=30), GroupPlace(first=0)),
        ((10, 20), UNKNOWN, GroupPlace(first=0)),
        ((10, 20), GroupPlace(first=5), UNKNOWN),
        ((10, 20), GroupPlace(first=5, is_exact=False), GroupPlace(first=7)),
    ],
    ids=["between", "settling", "no-fence", "no-source", "no-destination", "start-offset-alone"],
)
def test_what_is_not_known_is_uncertain(fence: Any, source: GroupPlace, destination: GroupPlace) -> None:
    reasons = check_reset({0: source, 1: destination}, [exact(1, 2, {}, fences={0: fence})])
    assert [reason.order for reason in reasons] == [UNCERTAIN]


def test_what_is_finished_has_no_reason() -> None:
    """At the fence, at the end of the log whatever the fence, by a start offset alone behind it, and where the
    retention took what was before."""
    known, unknown = exact(1, 2, {0: 10}), exact(1, 2, {})
    for place, expansion in [
        (GroupPlace(first=10), known),
        (GroupPlace(first=7, end=7), unknown),
        (GroupPlace(first=12, is_exact=False), known),
        (GroupPlace(first=3, start=11), known),
    ]:
        assert check_reset({0: place, 1: GroupPlace(first=9)}, [expansion]) == ()


def test_a_hidden_count_makes_every_old_partition_a_source() -> None:
    """From 2 to 3 to 4, seen at once: partition 3 can have keys of 0."""
    places = at(5, 99, 0, 9)
    assert [(each.order, each.destinations) for each in check_reset(places, [exact(2, 4, {0: 10, 1: 10})])] == [
        (NEEDS_GATE, (2,))
    ]
    hidden = check_reset(places, [exact(2, 4, {0: 10, 1: 10}, is_single=False)])
    assert [(each.order, each.destinations) for each in hidden] == [(UNCERTAIN, (3,)), (NEEDS_GATE, (2,))]


@st.composite
def places(draw: st.DrawFn) -> GroupPlace:
    first = draw(small)
    given_to = draw(st.sampled_from([None, *range(7)]))
    return GroupPlace(first=first, is_exact=draw(st.booleans()), given=given_to, end=draw(st.sampled_from([None, 6])))


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[FencedExpansion], dict[int, GroupPlace], frozenset[int]]:
    """Up to three expansions of one topic; some fences and places are not known; the partitions of a reset."""
    counts = [draw(st.integers(1, 3))]
    for _ in range(draw(st.integers(1, 3))):
        counts.append(counts[-1] + draw(st.integers(1, 4)))
    mapping = draw(st.sampled_from(KeyMapping))
    expansions = []
    for old, new in pairwise(counts):
        fences = {}
        for source in range(old):
            low, high = sorted((draw(small), draw(small)))
            fences[source] = draw(st.sampled_from([(low, high), (low, high), (low, None), (None, None)]))
        expansions.append(exact(old, new, {}, fences=fences, mapping=mapping, is_single=draw(st.booleans())))
    where = {partition: draw(places()) for partition in range(counts[-1])}
    return expansions, where, draw(st.frozensets(st.sampled_from(sorted(where)), min_size=1))


def pairs(expansions: Sequence[FencedExpansion]) -> Iterator[tuple[FencedExpansion, int, int, bool]]:
    """Every source of the first expansion with every partition that its keys may be in: by the expansion that reached
    it, and whether there is such a key for certain."""
    left = expansions[0]
    for number, reached in enumerate(expansions):
        hides = not all(each.is_single for each in expansions[: number + 1])
        for source in range(left.old_count):
            for destination in set(range(reached.new_count)) - {source}:
                is_new, step = destination >= left.old_count, gcd(left.old_count, reached.new_count)
                if left.mapping is KeyMapping.NONE:
                    moved, certain = is_new, number == 0
                else:
                    moved = (source - destination) % step == 0
                    certain = moved and number == 0 and (left.is_single or left.new_count % left.old_count == 0)
                if moved or (hides and is_new):
                    yield reached, source, destination, certain


@given(chains())
def test_each_destination_is_judged_by_its_worst_source(
    chain: tuple[list[FencedExpansion], dict[int, GroupPlace], frozenset[int]],
) -> None:
    """R003-05: as pair by pair; a reason names no partition that is not in such a pair, and none that the reset has
    nothing to do with."""
    expansions, where, touched = chain
    expected: dict[tuple[int, int], ResetOrdering] = {}
    for index, left in enumerate(expansions):
        for reached, source, destination, certain in pairs(expansions[index:]):
            place, own = where[source], left.fences[source]
            if place.is_finished(own) or touched.isdisjoint({source, destination}):
                continue
            beginning = reached.fences[destination] if destination < reached.old_count else (0, 0)
            begun, order = where[destination].has_begun(beginning), UNCERTAIN
            if place.is_before(own) and begun is not None:
                order = NEEDS_GATE if not begun else REJECT if certain else UNCERTAIN
            about = left.old_count, destination
            expected[about] = min(expected.get(about, order), order, key=list(ResetOrdering).index)
    reasons = check_reset(where, expansions, touched)
    found = {(each.old_count, destination): each.order for each in reasons for destination in each.destinations}
    assert found == expected
    assert sum(len(each.destinations) for each in reasons) == len(expected)
    for each in reasons:
        assert max(each.sources) < each.old_count
        assert all({source, *each.destinations} & touched for source in each.sources)


def test_ten_thousand_partitions_are_no_pairs() -> None:
    """R003-05: from 5,000 to 10,000 partitions without a mapping: one reason, 25 million pairs are not made."""
    doubled = exact(5_000, 10_000, dict.fromkeys(range(5_000), 10), mapping=KeyMapping.NONE)
    (reason,) = check_reset(dict.fromkeys(range(10_000), GroupPlace(first=0)), [doubled])
    assert (reason.order, len(reason.sources), len(reason.destinations)) == (NEEDS_GATE, 5_000, 5_000)
