"""What an undo takes back, by what is stored; and when a request counts as sent. Without a broker."""

from __future__ import annotations

import pytest
from change.scenes import a_plan, a_request, a_snapshot, partition_facts
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.change_kind import parse_plan
from acktrail.change.collection.facts import TargetOffset
from acktrail.change.lifecycle.plan_life import Status
from acktrail.change.lifecycle.plan_status import UndoLedger
from acktrail.change.planning.change_plan import plan_json
from acktrail.change.request.reset_request import Strategy, StrategyKind
from acktrail.model.batches import DeliveryState, StateBatch

A, B = ("g", "orders", 0), ("g", "orders", 1)
OK = (Status.OK, 5)
BATCH = StateBatch(first_offset=41, last_offset=41, delivery_state=DeliveryState.ACKNOWLEDGED, delivery_count=1)


def test_what_was_taken_back_and_done_again_may_be_taken_back_again() -> None:
    """An undo counts for the share partitions that it brought to their targets, until it was undone itself."""
    done = {
        "plan": {A: OK, B: OK},
        "u1": {A: OK, B: (Status.FAILED, 5)},
        "u2": {B: OK},
        "u3": {A: (Status.UNKNOWN, 5)},
    }
    ledger = UndoLedger(outcomes=done, undos={"plan": ["u1", "u2", "u3"]})
    assert ledger.taken_back("plan") == {A: "u1", B: "u2"}
    assert ledger.undone("plan") == (("u1", "u2"), True)
    assert ledger.taken_back("plan", but="u2") == {A: "u1"}
    again = UndoLedger(outcomes={**done, "redo": {A: OK}}, undos={"plan": ["u1", "u2"], "u1": ["redo"]})
    assert again.taken_back("plan") == {B: "u2"}
    assert not again.undone("plan").is_all


@given(st.lists(st.sampled_from([A, B]), max_size=6))
def test_undo_and_redo_alternate(steps: list[tuple[str, str, int]]) -> None:
    """A chain of undos, each of the one before: the plan is taken back where an odd number of them follow without a
    break."""
    outcomes = {"p0": {A: OK, B: OK}} | {f"p{n}": {key: OK} for n, key in enumerate(steps, start=1)}
    ledger = UndoLedger(outcomes=outcomes, undos={f"p{n}": [f"p{n + 1}"] for n in range(len(steps))})
    run = next((n for n, key in enumerate(steps) if key != steps[0]), len(steps))
    assert set(ledger.taken_back("p0")) == ({steps[0]} if run % 2 else set())


@pytest.mark.parametrize(
    ("start", "batches", "left_at", "moved"),
    [
        (40, (), 40, False),
        (40, (BATCH,), 40, True),
        (44, (), 40, True),
        (40, (), None, False),
        (None, (), 40, True),
    ],
)
def test_what_moved_on_is_refused_unless_allowed(
    start: int | None, batches: tuple[StateBatch, ...], left_at: int | None, moved: bool
) -> None:
    """Another start offset, or records with a state of their own, where the plan left none."""
    facts = partition_facts(start, found=batches, given=TargetOffset(offset=12, left_at=left_at))
    strategy = Strategy(kind=StrategyKind.TO_SNAPSHOT, source="p0")
    for allowed, severity in ((False, "refusal"), (True, "serious")):
        plan = a_plan(a_request(strategy=strategy, allow_moved_on=allowed), a_snapshot(facts))
        assert [n.severity for n in plan.notices if n.rule == "moved_on"] == ([severity] if moved else [])
        assert parse_plan(plan_json(plan), "here") == plan
