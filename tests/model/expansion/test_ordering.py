"""SAFE and VIOLATION are proofs, and everything else is what no observation proves."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from definitions.ordering_audit import GroupPosition, OrderingAudit, audit_ordering
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail.model.expansion.ordering import ExpansionFence, OrderingReason, OrderingVerdict, has_begun

KIP = SEED["kip253"]
PROOFS = {OrderingVerdict.SAFE, OrderingVerdict.VIOLATION}


def fence_of(case: dict[str, Any]) -> ExpansionFence:
    return ExpansionFence(low=case["fence_low"], high=case["fence_high"])


@pytest.mark.parametrize("case", KIP["interval_cases"], ids=str)
def test_the_vectors_of_intervals(case: dict[str, Any]) -> None:
    """R003-01: the verdicts of the worked series of observations."""
    series = [GroupPosition(source=source, started=started) for source, started in case["snapshots"]]

    assert audit_ordering(series, fence_of(case)).verdict.name == case["verdict"]


@pytest.mark.parametrize("case", KIP["verdict_cases"], ids=str)
def test_the_vectors_of_one_moment(case: dict[str, Any]) -> None:
    """R003-01: the verdicts where the position is known at the moment when the destination is begun."""
    before = GroupPosition(source=case["pos_src"], started=False)
    series = [before, replace(before, started=case["dest_consumed"])]

    assert audit_ordering(series, fence_of(case)).verdict.name == case["verdict"]


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[GroupPosition], ExpansionFence, bool | None]:
    """Observations of a group that walks through both partitions, the fences, and the truth: was each record of the
    source from before the expansion done when the first of the destination from after it was? None: not begun."""
    fences = sorted(draw(st.lists(st.integers(0, 6), min_size=6, max_size=6)))
    low, true, high = sorted(draw(st.permutations(fences))[:3])
    own_low, own_true, own_high = sorted(draw(st.permutations(fences))[:3])
    at, own, truth = 0, 0, None
    series = []
    for step in draw(st.lists(st.sampled_from(("source", "destination", "look", "blind")), max_size=24)):
        at += step == "source"
        own += step == "destination"
        if truth is None and own > own_true:
            truth = at >= true
        if step in ("look", "blind"):
            begun = has_begun(own, ExpansionFence(low=own_low, high=own_high))
            series.append(GroupPosition(source=at if step == "look" else None, started=begun))
    return series, ExpansionFence(low=low, high=high), truth


@given(lives())
def test_safe_and_violation_are_true(life: tuple[list[GroupPosition], ExpansionFence, bool | None]) -> None:
    """R003-01: where a verdict is a proof, the order was as it says, with fences of destinations as intervals, too."""
    series, fence, truth = life
    verdict = audit_ordering(series, fence).verdict

    if verdict is OrderingVerdict.SAFE:
        assert truth is not False
    if verdict is OrderingVerdict.VIOLATION:
        assert truth is False
    if verdict is OrderingVerdict.NOT_STARTED and series:
        assert truth is None or series[-1].started is False


@given(lives())
def test_a_longer_series_never_turns_a_proof_around(
    life: tuple[list[GroupPosition], ExpansionFence, bool | None],
) -> None:
    """R003-01: one more observation, after or between the others, never turns SAFE into VIOLATION or the reverse, and
    one at the end takes no proof away."""
    series, fence, _ = life
    whole = audit_ordering(series, fence).verdict
    for left_out in range(len(series)):
        shorter = audit_ordering(series[:left_out] + series[left_out + 1 :], fence).verdict
        assert shorter not in PROOFS or whole not in PROOFS or shorter is whole
        beginning = audit_ordering(series[:left_out], fence).verdict
        assert beginning not in PROOFS or beginning is whole


def naive(series: list[GroupPosition], fence: ExpansionFence) -> OrderingVerdict | None:
    """The proof, if there is one, by trying every world: each fence and each position at which the destination can have
    been begun between two looks."""
    at = next((index for index, each in enumerate(series) if each.started), None)
    if at is None:
        return OrderingVerdict.NOT_STARTED
    now, earlier = series[at].source, series[at - 1].source if at else 0
    assert now is not None
    assert earlier is not None
    assert fence.low is not None
    assert fence.high is not None
    worlds = product(range(earlier, now + 1), range(fence.low, fence.high + 1))
    kept = {position >= true for position, true in worlds}
    return {(True,): OrderingVerdict.SAFE, (False,): OrderingVerdict.VIOLATION}.get(tuple(kept))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=6),
    st.integers(0, 9),
    st.integers(0, 5),
)
def test_the_audit_equals_every_world(steps: list[tuple[int, bool]], low: int, width: int) -> None:
    """R003-01: for a new partition the audit proves exactly what holds in every world that fits the observations."""
    positions = sorted(source for source, _ in steps)
    begun = sorted(started for _, started in steps)
    series = [GroupPosition(source=s, started=b) for s, b in zip(positions, begun, strict=True)]
    fence = ExpansionFence(low=low, high=low + width)
    verdict = audit_ordering(series, fence).verdict

    expected = naive(series, fence)
    assert verdict is expected if expected else verdict not in {*PROOFS, OrderingVerdict.NOT_STARTED}


def test_a_restart_cuts_the_series() -> None:
    """What was before a reset proves nothing, for neither verdict."""
    fence = ExpansionFence(low=10, high=12)
    begun = GroupPosition(source=5, started=True)
    again = GroupPosition(source=12, started=False, restarted=True)

    assert audit_ordering([begun], fence) == OrderingAudit(verdict=OrderingVerdict.VIOLATION, at=0)
    assert audit_ordering([begun, again], fence).verdict is OrderingVerdict.NOT_STARTED
    after = [begun, again, GroupPosition(source=13, started=True)]
    assert audit_ordering(after, fence) == OrderingAudit(verdict=OrderingVerdict.SAFE, before=1, at=2)
    later = [again, GroupPosition(source=14, started=True, restarted=True)]
    assert audit_ordering(later, fence).verdict is OrderingVerdict.INDETERMINATE


def test_what_is_not_known_proves_nothing() -> None:
    """An open fence is possible violation at most, no fence is UNKNOWN_FENCE, an empty source is safe, a look without
    position leans on its neighbours, and a series without looks is NOT_STARTED."""
    looks = [GroupPosition(source=5, started=False), GroupPosition(source=20, started=True)]

    assert audit_ordering([], ExpansionFence(low=1, high=2)).verdict is OrderingVerdict.NOT_STARTED
    assert audit_ordering(looks, ExpansionFence(low=3, high=None)).verdict is OrderingVerdict.POSSIBLE_VIOLATION
    assert audit_ordering(looks, ExpansionFence(low=None, high=4)).verdict is OrderingVerdict.UNKNOWN_FENCE
    assert audit_ordering(looks[1:], ExpansionFence(low=0, high=0)).verdict is OrderingVerdict.SAFE
    blind = [looks[0], GroupPosition(source=None, started=False), GroupPosition(source=None, started=True)]
    assert audit_ordering(blind, ExpansionFence(low=3, high=5)) == OrderingAudit(verdict=OrderingVerdict.SAFE, before=0)
    assert audit_ordering(blind, ExpansionFence(low=3, high=6)).verdict is OrderingVerdict.INDETERMINATE
    below = [*blind, GroupPosition(source=6, started=True)]
    assert audit_ordering(below, ExpansionFence(low=7, high=9)) == OrderingAudit(
        verdict=OrderingVerdict.VIOLATION, before=0, at=3
    )


def test_between_the_fences_of_a_destination_nothing_has_surely_begun() -> None:
    """A partition that was there before holds records from before and after between its fences: past the low one is no
    violation yet."""
    own = ExpansionFence(low=100, high=110)

    assert [has_begun(at, own) for at in (None, 100, 101, 110, 111)] == [None, False, None, None, True]
    assert has_begun(5, ExpansionFence(low=None, high=None)) is None
    perhaps = [GroupPosition(source=0, started=False), GroupPosition(source=5, started=has_begun(105, own))]
    assert audit_ordering(perhaps, ExpansionFence(low=10, high=12)).verdict is OrderingVerdict.POSSIBLE_VIOLATION
    certain = [*perhaps, GroupPosition(source=6, started=has_begun(111, own))]
    assert audit_ordering(certain, ExpansionFence(low=10, high=12)).verdict is OrderingVerdict.VIOLATION


def test_only_a_record_that_is_left_breaks_the_order() -> None:
    """R003-01: below the fence there can be a transaction marker alone, or aborted or compacted records: a group behind
    the last record that is known there breaks no order for certain, and one at it or before it does."""
    looks = [GroupPosition(source=5, started=False), GroupPosition(source=8, started=True)]
    reason = OrderingReason.NO_RECORD_KNOWN

    def audited(record_end: int | None) -> tuple[OrderingVerdict, OrderingReason | None]:
        found = audit_ordering(looks, ExpansionFence(low=10, high=12, record_end=record_end))
        return found.verdict, found.reason

    assert audited(None) == audited(9) == (OrderingVerdict.VIOLATION, None)
    assert audited(8) == audited(0) == (OrderingVerdict.POSSIBLE_VIOLATION, reason)
