"""Where the mapping of keys is not known, sources share their destinations: judged once, not pair by pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from acktrail.model.expansion.dependencies import destinations_of
from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import ExpansionFence, has_begun
from acktrail.model.expansion.reset_order import FencedExpansion, ResetOrdering, check_reset, is_finished
from acktrail.model.expansion.reset_phases import waiting

Targets = Mapping[int, int | None]
Pair = tuple[FencedExpansion, FencedExpansion, int, int]
START = ExpansionFence(low=0, high=0)
ORDERS = {True: ResetOrdering.REJECT, False: ResetOrdering.WARN_NEEDS_GATE, None: ResetOrdering.UNCERTAIN}
small = st.integers(0, 6)


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[FencedExpansion], dict[int, int | None]]:
    """Up to three expansions of one topic; some fences and targets are not known."""
    counts = [draw(st.integers(1, 3))]
    for _ in range(draw(st.integers(1, 3))):
        counts.append(counts[-1] + draw(st.integers(1, 4)))
    mapping = draw(st.sampled_from(KeyMapping))
    expansions = []
    for old, new in pairwise(counts):
        fences = {}
        for source in range(old):
            low, high = sorted((draw(small), draw(small)))
            known = draw(st.integers(0, 5))
            fences[source] = ExpansionFence(low=low if known else None, high=high if known > 1 else None)
        expansions.append(FencedExpansion(old_count=old, new_count=new, mapping=mapping, fences=fences))
    targets: dict[int, int | None] = {each: draw(st.sampled_from((*range(7), None))) for each in range(counts[-1])}
    return expansions, targets


def unfinished_pairs(expansions: Sequence[FencedExpansion], targets: Targets) -> Iterator[Pair]:
    """Every source that is not finished with every partition that keys moved to: by the expansion that they left, and
    each one up to which they may have moved on."""
    for index, left in enumerate(expansions):
        for source in range(left.old_count):
            if not is_finished(targets[source], left.fences.get(source), None):
                for reached in expansions[index:]:
                    for destination in destinations_of(source, left.old_count, reached.new_count, left.mapping):
                        yield left, reached, source, destination


def begun(reached: FencedExpansion, destination: int, targets: Targets) -> bool | None:
    return has_begun(targets[destination], reached.fences[destination] if destination < reached.old_count else START)


@given(chains())
def test_reasons_are_those_of_all_pairs(chain: tuple[list[FencedExpansion], dict[int, int | None]]) -> None:
    """R003-05: each pair is in one reason, judged by the first expansion that reaches the destination."""
    expansions, targets = chain
    expected: dict[tuple[int, int, int], tuple[ResetOrdering, int]] = {}
    for left, reached, source, destination in unfinished_pairs(expansions, targets):
        target, low = targets[source], left.fences[source].low
        is_rewound = target is not None and low is not None and target < low
        order = ORDERS[begun(reached, destination, targets)] if is_rewound else ResetOrdering.UNCERTAIN
        expected.setdefault((left.old_count, source, destination), (order, reached.new_count))
    reasons = check_reset(targets, expansions).reasons
    found = [
        ((each.old_count, each.source, destination), (each.order, each.new_count))
        for each in reasons
        for destination in each.destinations
    ]
    assert dict(found) == expected
    assert len(found) == len(expected)


@given(chains())
def test_who_waits_is_that_of_all_pairs(chain: tuple[list[FencedExpansion], dict[int, int | None]]) -> None:
    """A partition that an expansion made, and that has not begun, waits for each source of it that is not finished."""
    expansions, targets = chain
    expected = defaultdict[int, set[int]](set)
    for left, reached, source, destination in unfinished_pairs(expansions, targets):
        if destination >= left.old_count and begun(reached, destination, targets) is False:
            expected[destination].add(source)
    assert waiting(targets, expansions) == {each: tuple(sorted(own)) for each, own in sorted(expected.items())}


def test_ten_thousand_partitions_are_no_pairs() -> None:
    """R003-05: from 5,000 to 10,000 partitions without a mapping: reasons, and partitions that wait, share tuples, so
    that 25 million pairs are not made."""
    fences = {source: ExpansionFence(low=10, high=20) for source in range(5_000)}
    doubled = FencedExpansion(old_count=5_000, new_count=10_000, mapping=KeyMapping.NONE, fences=fences)
    targets = dict.fromkeys(range(10_000), 0)
    reasons = check_reset(targets, [doubled]).reasons
    waits = waiting(targets, [doubled])

    assert (len(reasons), len({id(each.destinations) for each in reasons})) == (5_000, 1)
    assert (len(waits), len({id(each) for each in waits.values()})) == (5_000, 1)
