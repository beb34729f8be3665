"""A reset in phases: what waits for what, and that waiting comes to an end."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from acktrail.model.expansion.key_mapping import KeyMapping
from acktrail.model.expansion.ordering import ExpansionFence
from acktrail.model.expansion.reset_order import FencedExpansion, ResetOrdering, check_reset
from acktrail.model.expansion.reset_phases import waiting

END = 100


def fenced(old_count: int, new_count: int, mapping: KeyMapping, fences: dict[int, int]) -> FencedExpansion:
    known = {source: ExpansionFence(low=at, high=at) for source, at in fences.items()}
    return FencedExpansion(old_count=old_count, new_count=new_count, mapping=mapping, fences=known)


@st.composite
def chains(draw: st.DrawFn) -> list[FencedExpansion]:
    """Up to three expansions of one topic, all fences below its ends."""
    counts = [draw(st.integers(1, 3))]
    for _ in range(draw(st.integers(1, 3))):
        counts.append(counts[-1] + draw(st.integers(1, 4)))
    mapping = draw(st.sampled_from(KeyMapping))
    return [
        fenced(old, new, mapping, {source: draw(st.integers(0, END - 1)) for source in range(old)})
        for old, new in pairwise(counts)
    ]


def test_new_partitions_wait_for_those_they_got_keys_from() -> None:
    """From 2 to 4, to the start of everything: 2 waits for 0, 3 for 1. From 2 to 3 keys move between 0 and 1 as well,
    and only 2 can wait."""
    doubled = fenced(2, 4, KeyMapping.MURMUR2, {0: 10, 1: 20})
    assert waiting(dict.fromkeys(range(4), 0), [doubled]) == {2: (0,), 3: (1,)}
    assert waiting({0: 10, 1: 0, 2: 0, 3: 0}, [doubled]) == {3: (1,)}
    assert waiting({0: 0, 1: 0, 2: 5, 3: 0}, [doubled]) == {3: (1,)}, "what is begun cannot wait any more"
    odd = fenced(2, 3, KeyMapping.MURMUR2, {0: 10, 1: 20})
    assert waiting(dict.fromkeys(range(3), 0), [odd]) == {2: (0, 1)}


@given(chains(), st.data())
def test_phases_end_and_release_nothing_too_early(expansions: list[FencedExpansion], data: st.DataObject) -> None:
    """Each phase sets what waits for nothing, and the group finishes that: after at most one phase more than there are
    partitions all is set, no partition is released before those that it waits for are finished, and what waits is
    always above all it waits for."""
    count = expansions[-1].new_count
    ends = dict.fromkeys(range(count), END)
    wanted = {partition: data.draw(st.integers(0, END)) for partition in range(count)}
    positions: dict[int, int | None] = dict(ends)
    left = dict(wanted)
    for _ in range(count + 1):
        if not left:
            break
        vector = {**positions, **left}
        waits = waiting(vector, expansions, log_ends=ends)
        assert all(source < destination for destination, sources in waits.items() for source in sources)
        ready = {partition: at for partition, at in left.items() if partition not in waits}
        assert ready
        reasons = check_reset({**positions, **ready}, expansions, log_ends=ends).reasons
        for reason in reasons:
            if reason.order is ResetOrdering.WARN_NEEDS_GATE:
                assert all(each < reason.old_count for each in reason.destinations if each in ready)
        left = {partition: at for partition, at in left.items() if partition in waits}
        positions = dict(ends)
    assert not left
