"""SAFE and BROKEN are proofs, by the few instants that are left of a series of looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from samples.golden_vectors import SEED

from acktrail_expansion.law.order import (
    NEVER,
    Judged,
    Marks,
    NotProven,
    OrderVerdict,
    SourceFence,
    judge_by_looks,
    worst,
)

KIP = SEED["kip253"]
V, N = OrderVerdict, NotProven
MEANT = {
    "SAFE": V.SAFE,
    "VIOLATION": V.BROKEN,
    "NOT_STARTED": N.NOT_BEGUN,
    "POSSIBLE_VIOLATION": N.BETWEEN_FENCES,
    "INDETERMINATE": N.BETWEEN_LOOKS,
    "UNKNOWN_FENCE": N.NO_FENCE,
}
"""The verdicts of the vectors: proofs, and why nothing is proven."""


def judged(looks: Sequence[tuple[int, bool]], low: int | None, high: int | None) -> Judged:
    """By looks at the position in the source, and whether the destination was begun; a look at each instant from 0."""
    begun = next((at for at, (_, has_begun) in enumerate(looks) if has_begun), NEVER)
    below = [(at, position) for at, (position, _) in enumerate(looks) if low is not None and position < low]
    below_at, position = below[-1] if below else (-1, -1)
    finished_at = next((at for at, (position, _) in enumerate(looks) if high is not None and position >= high), NEVER)
    destination = Marks(idle_until=begun - 1 if begun < NEVER else len(looks) - 1, begun_at=begun)
    fence = SourceFence(partition=0, low=low, high=high, last_record=(low or 0) - 1)
    return judge_by_looks(destination, Marks(finished_at=finished_at, below_at=below_at, below=position), fence)


@pytest.mark.parametrize("case", [*KIP["interval_cases"], *KIP["verdict_cases"]], ids=str)
def test_the_vectors(case: dict[str, Any]) -> None:
    """R003-01: the verdicts of the worked series of observations, and those where the position is known at the moment
    when the destination is begun."""
    looks = case.get("snapshots") or [(case["pos_src"], False), (case["pos_src"], case["dest_consumed"])]
    found = judged(looks, case["fence_low"], case["fence_high"])

    assert (found.reason or found.verdict) is MEANT[case["verdict"]]


BELOW, DONE = Marks(below_at=4, below=50), Marks(finished_at=2)


@pytest.mark.parametrize(
    ("source", "fence", "expected", "of_shares"),
    [
        (BELOW, (60, 60, 59), V.BROKEN, N.NOT_RECORDED),
        (BELOW, (60, None, 59), V.BROKEN, N.NOT_RECORDED),
        (BELOW, (60, 60, 49), N.NO_RECORD_KNOWN, N.NOT_RECORDED),
        (Marks(restarted_at=3, below_at=4, below=50), (60, 60, 59), N.RESET, N.NOT_RECORDED),
        (DONE, (60, 60, 59), V.SAFE, N.NOT_RECORDED),
        (DONE, (60, None, 59), N.NO_FENCE, N.NOT_RECORDED),
        (Marks(finished_at=1), (60, 60, 59), V.SAFE, V.SAFE),
        (Marks(), (0, 0, -1), V.SAFE, V.SAFE),
    ],
)
def test_what_takes_a_proof_away(
    source: Marks, fence: tuple[int, int | None, int], expected: Any, of_shares: Any
) -> None:
    """A restart of the source after what would prove it, no record below the fence that is known, a fence without a
    high end; of a share group a look of the same moment, and what is below the fence, which its start offset never
    shows. Where no record is from before all is safe."""
    low, high, last = fence
    own = SourceFence(partition=0, low=low, high=high, last_record=last)
    for is_share, verdict in ((False, expected), (True, of_shares)):
        found = judge_by_looks(Marks(idle_until=2, begun_at=4), source, own, is_share=is_share)
        assert (found.reason or found.verdict) is verdict


SAFE, NO_FENCE = Judged(verdict=V.SAFE, source_partition=0), Judged(reason=N.NO_FENCE, source_partition=3)
BROKEN = [Judged(verdict=V.BROKEN, source_partition=each, open_records=each) for each in (1, 2)]


@pytest.mark.parametrize(
    ("direct", "earlier", "how", "expected"),
    [
        ([SAFE, *BROKEN, NO_FENCE], [], (True, True), (V.BROKEN, 2)),
        ([SAFE, Judged(reason=N.BETWEEN_LOOKS), NO_FENCE], [SAFE], (True, True), (N.NO_FENCE, 3)),
        ([SAFE], BROKEN, (True, True), (N.BETWEEN_LOOKS, 2)),
        ([SAFE], [], (False, True), (N.SEVERAL_EXPANSIONS, 0)),
        (BROKEN, [], (False, True), (V.BROKEN, 2)),
        (BROKEN, [], (False, False), (N.SEVERAL_EXPANSIONS, 2)),
    ],
)
def test_the_worst_source_counts(
    direct: list[Judged], earlier: list[Judged], how: tuple[bool, bool], expected: tuple[Any, int]
) -> None:
    """BROKEN before a reason, the first reason that applies, and of an earlier count only that it is not safe. Where
    another count may have lain in between nothing is safe, and broken only what is so by each count."""
    found = worst(direct, earlier, is_single=how[0], is_moved=how[1])

    assert (found.reason or found.verdict, found.source_partition) == expected
