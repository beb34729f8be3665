"""SAFE and BROKEN are proofs, by the few instants that are left of a series of looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail_expansion.law.order import NEVER, Judged, Marks, judge_by_looks, worst
from acktrail_expansion.law.verdict import NotProven, OrderVerdict

KIP = SEED["kip253"]
V, N = OrderVerdict, NotProven
NAMES = {"SAFE": V.SAFE, "VIOLATION": V.BROKEN}
"""The verdicts of the vectors that are proofs; the others are not proven, for these reasons."""
REASONS = {
    "NOT_STARTED": N.NOT_BEGUN,
    "POSSIBLE_VIOLATION": N.BETWEEN_FENCES,
    "INDETERMINATE": N.BETWEEN_LOOKS,
    "UNKNOWN_FENCE": N.NO_FENCE,
}


def judged(looks: Sequence[tuple[int, bool]], low: int | None, high: int | None, **more: Any) -> Judged:
    """By looks at the position in the source, and whether the destination was begun; a look at each instant from 0."""
    begun = next((at for at, (_, has_begun) in enumerate(looks) if has_begun), NEVER)
    below = [at for at, (position, _) in enumerate(looks) if low is not None and position < low]
    source = Marks(
        finished_at=next((at for at, (p, _) in enumerate(looks) if high is not None and p >= high), NEVER),
        below_at=below[-1] if below else -1,
        below=looks[below[-1]][0] if below else -1,
    )
    idle = [at for at, (_, has_begun) in enumerate(looks) if not has_begun and at < begun]
    destination = Marks(idle_until=idle[-1] if idle else -1, begun_at=begun)
    return judge_by_looks(destination, source, low=low, high=high, last_record=(low or 0) - 1, **more)


def expected(name: str) -> tuple[OrderVerdict, NotProven | None]:
    return (NAMES[name], None) if name in NAMES else (V.NOT_PROVEN, REASONS[name])


@pytest.mark.parametrize("case", KIP["interval_cases"], ids=str)
def test_the_vectors_of_intervals(case: dict[str, Any]) -> None:
    """R003-01: the verdicts of the worked series of observations."""
    found = judged([tuple(each) for each in case["snapshots"]], case["fence_low"], case["fence_high"])

    assert (found.verdict, found.reason) == expected(case["verdict"])


@pytest.mark.parametrize("case", KIP["verdict_cases"], ids=str)
def test_the_vectors_of_one_moment(case: dict[str, Any]) -> None:
    """R003-01: the verdicts where the position is known at the moment when the destination is begun."""
    at = case["pos_src"]
    found = judged([(at, False), (at, case["dest_consumed"])], case["fence_low"], case["fence_high"])

    assert (found.verdict, found.reason) == expected(case["verdict"])


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[tuple[int, bool]], int, int, bool | None]:
    """Looks at a group that walks through both partitions, the fence, and the truth: was each record of the source from
    before the expansion done when the first of the destination was? None: not begun."""
    low, true, high = sorted(draw(st.lists(st.integers(0, 6), min_size=3, max_size=3)))
    at, has_begun, truth = 0, False, None
    looks = []
    for step in draw(st.lists(st.sampled_from(("source", "destination", "look")), max_size=24)):
        at += step == "source"
        if step == "destination" and not has_begun:
            has_begun, truth = True, at >= true
        if step == "look":
            looks.append((at, has_begun))
    return looks, low, high, truth


@given(lives())
def test_proofs_are_true_and_stay(life: tuple[list[tuple[int, bool]], int, int, bool | None]) -> None:
    """R003-01: where a verdict is a proof, the order was as it says; one more look never turns SAFE into BROKEN or the
    reverse, and one at the end takes no proof away."""
    looks, low, high, truth = life
    whole = judged(looks, low, high).verdict
    if whole is V.SAFE:
        assert truth is not False
    if whole is V.BROKEN:
        assert truth is False
    for left_out in range(len(looks)):
        shorter = judged(looks[:left_out] + looks[left_out + 1 :], low, high).verdict
        assert {shorter, whole} != {V.SAFE, V.BROKEN}
        beginning = judged(looks[:left_out], low, high).verdict
        assert beginning is V.NOT_PROVEN or beginning is whole


def test_what_takes_a_proof_away() -> None:
    """A restart of the source after what would prove it, no record below the fence that is known, a fence without a
    high end; of a share group a look of the same moment, and what is below the fence, which its start offset never
    shows."""
    to = Marks(idle_until=2, begun_at=4)
    below, done = Marks(below_at=4, below=50), Marks(finished_at=2)

    def reason(
        source: Marks, *, low: int | None = 60, high: int | None = 60, record: int = 59, share: bool = False
    ) -> Any:
        found = judge_by_looks(to, source, low=low, high=high, last_record=record, is_share=share)
        return found.reason or found.verdict

    assert reason(below) is V.BROKEN
    assert reason(done) is V.SAFE
    assert reason(Marks(restarted_at=3, below_at=4, below=50)) is N.RESET
    assert reason(below, record=49) is N.NO_RECORD_KNOWN
    assert reason(below, high=None) is V.BROKEN
    assert reason(done, high=None) is N.NO_FENCE
    assert reason(done, share=True) is N.NOT_RECORDED
    assert reason(Marks(finished_at=1), share=True) is V.SAFE
    assert reason(below, share=True) is N.NOT_RECORDED
    assert reason(Marks(), low=0, high=0) is V.SAFE, "there is no record from before"


def test_the_worst_source_counts() -> None:
    """BROKEN before a reason, the first reason that applies, and of an earlier count only that it is not safe. Where
    another count may have lain in between nothing is safe, and broken only what is so by each count."""
    safe = Judged(verdict=V.SAFE, source=0)
    broken = [Judged(verdict=V.BROKEN, source=each, open_records=each) for each in (1, 2)]
    open_one = Judged(verdict=V.NOT_PROVEN, reason=N.BETWEEN_LOOKS, source=3)
    no_fence = Judged(verdict=V.NOT_PROVEN, reason=N.NO_FENCE, source=4)

    def found(*direct: Judged, earlier: Sequence[Judged] = (), single: bool = True, moved: bool = True) -> Any:
        each = worst(direct, earlier, is_single=single, is_moved=moved)
        return each.verdict, each.reason, each.source

    assert found(safe, *broken) == (V.BROKEN, None, 2)
    assert found(safe, open_one, no_fence) == (V.NOT_PROVEN, N.NO_FENCE, 4)
    assert found(safe) == (V.SAFE, None, 0)
    assert found(safe, earlier=broken)[:2] == (V.NOT_PROVEN, N.BETWEEN_LOOKS)
    assert found(safe, single=False)[:2] == (V.NOT_PROVEN, N.SEVERAL_EXPANSIONS)
    assert found(*broken, single=False) == (V.BROKEN, None, 2)
    assert found(*broken, single=False, moved=False)[:2] == (V.NOT_PROVEN, N.SEVERAL_EXPANSIONS)
