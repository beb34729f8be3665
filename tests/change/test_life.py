"""The life of a plan is one table, and how a plan stands follows from its audit rows alone; what an undo takes back."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest
from change.change_tables import NOW_MS, STAMP, entry, lease
from change.scenes import a_plan, a_request, a_snapshot, partition_facts
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.audit.audit_chain import AuditEntry, AuditRow, Event, chained, first_link
from acktrail.change.audit.journal import Journal
from acktrail.change.change_kind import parse_plan
from acktrail.change.collection.facts import TargetOffset
from acktrail.change.lifecycle.plan_life import (
    LIFE,
    ChangeStatus,
    PlanLife,
    Refusal,
    Status,
    Step,
    life_of,
    worst_status,
)
from acktrail.change.lifecycle.plan_status import Admission, UndoLedger
from acktrail.change.planning.change_plan import plan_json
from acktrail.change.request.reset_request import Strategy, StrategyKind
from acktrail.config import ApprovalRule
from acktrail.errors import ChangeInProgress, ChangeRefused
from acktrail.model.batches import DeliveryState, StateBatch

CHANGED = {ChangeStatus.DONE, ChangeStatus.PARTLY, ChangeStatus.STOPPED, ChangeStatus.OVERWRITTEN}


def decision(event: Event) -> AuditEntry:
    return entry(event, attempt=0, group_id=None, detail={"note": "ticket 7"})


RELEASED = entry(Event.LEASE_RELEASED)
APPROVED, REJECTED, EXPIRED = (decision(event) for event in (Event.APPROVED, Event.REJECTED, Event.EXPIRED))
SENT = (lease(), entry(Event.BEFORE_CALL))
DONE = (*SENT, entry(Event.AFTER_CALL, "done"), entry(Event.VERIFIED, "done"), RELEASED)
PARTLY = (*SENT, entry(Event.AFTER_CALL, "partly"), entry(Event.VERIFIED, "partly"), RELEASED)
LEFT_OUT = (lease(), entry(Event.BEFORE_CALL, "partial"), *DONE[2:])
FAILED = (*SENT, entry(Event.AFTER_CALL, "refused"), entry(Event.VERIFIED, "not_done"), RELEASED)
REFUSED = (lease(), entry(Event.REFUSED), RELEASED)
UNKNOWN = (*SENT, entry(Event.AFTER_CALL, "unknown"), RELEASED)


def again(entries: tuple[AuditEntry, ...]) -> tuple[AuditEntry, ...]:
    return tuple(replace(one, attempt=2) for one in entries)


def rows_of(entries: tuple[AuditEntry, ...]) -> list[AuditRow]:
    return chained(entries, STAMP, sequence=0, previous_hash=first_link("c1"))


def life(*entries: AuditEntry, **about: Any) -> PlanLife:
    return life_of("p1", rows_of(entries), now_ms=NOW_MS, **about)


def test_every_step_of_every_standing_has_an_answer() -> None:
    """No pair is left to chance."""
    assert set(LIFE) == {(standing, step) for standing in ChangeStatus for step in Step}


def test_nothing_opens_a_closed_plan() -> None:
    """From REJECTED, EXPIRED, STOPPED, UNDONE and OVERWRITTEN no sequence of decisions leads to one that may be carried
    out."""
    closed = {
        ChangeStatus.REJECTED,
        ChangeStatus.EXPIRED,
        ChangeStatus.STOPPED,
        ChangeStatus.UNDONE,
        ChangeStatus.OVERWRITTEN,
    }
    for standing in closed:
        assert isinstance(LIFE[standing, Step.APPLY], Refusal)
        for step in Step:
            answer = LIFE[standing, step]
            assert isinstance(answer, Refusal) or answer in closed, (standing, step)


def test_only_what_was_changed_is_taken_back() -> None:
    """UNDO is refused wherever nothing was changed, and wherever nobody knows."""
    assert {standing for standing in ChangeStatus if not isinstance(LIFE[standing, Step.UNDO], Refusal)} == CHANGED


@pytest.mark.parametrize(
    ("entries", "standing"),
    [
        ((), ChangeStatus.PLANNED),
        ((APPROVED,), ChangeStatus.APPROVED),
        ((APPROVED, REJECTED), ChangeStatus.REJECTED),
        ((REJECTED, APPROVED), ChangeStatus.REJECTED),
        ((EXPIRED,), ChangeStatus.EXPIRED),
        ((EXPIRED, REJECTED), ChangeStatus.REJECTED),
        ((APPROVED, *DONE), ChangeStatus.DONE),
        ((REJECTED, *DONE), ChangeStatus.DONE),
        ((*FAILED, REJECTED), ChangeStatus.REJECTED),
        ((*REFUSED, EXPIRED), ChangeStatus.EXPIRED),
        ((*PARTLY, REJECTED), ChangeStatus.STOPPED),
        (UNKNOWN, ChangeStatus.UNKNOWN),
        ((*UNKNOWN, REJECTED), ChangeStatus.UNKNOWN),
        ((*UNKNOWN, REJECTED, entry(Event.VERIFIED, "not_done")), ChangeStatus.REJECTED),
        (LEFT_OUT, ChangeStatus.PARTLY),
        ((*PARTLY, *again(FAILED)), ChangeStatus.PARTLY),
        ((*PARTLY, *again(REFUSED)), ChangeStatus.PARTLY),
        ((*PARTLY, *again(DONE)), ChangeStatus.DONE),
        ((*LEFT_OUT, *again(DONE)), ChangeStatus.DONE),
        (SENT, ChangeStatus.RUNNING),
    ],
)
def test_where_a_plan_stands(entries: tuple[AuditEntry, ...], standing: ChangeStatus) -> None:
    """After decisions and attempts in any order: what was done is never forgotten, a closed plan stays closed."""
    assert life(*entries).standing is standing


def test_a_plan_with_a_changed_and_an_unchanged_group_is_partly_done() -> None:
    """One group refused beside one that is done is neither REFUSED nor DONE; one at work comes first."""
    assert worst_status([ChangeStatus.DONE, ChangeStatus.REFUSED]) is ChangeStatus.PARTLY
    assert worst_status([ChangeStatus.DONE, ChangeStatus.UNKNOWN, ChangeStatus.FAILED]) is ChangeStatus.UNKNOWN
    assert worst_status([ChangeStatus.FAILED, ChangeStatus.RUNNING]) is ChangeStatus.RUNNING


def test_time_and_refusals_count_while_nothing_was_attempted() -> None:
    """An old plan is EXPIRED, one that a rule forbids is REFUSED; what was attempted says so still."""
    assert life(is_expired=True).standing is ChangeStatus.EXPIRED
    assert life(is_refused=True).standing is ChangeStatus.REFUSED
    assert life(*FAILED, is_expired=True, is_refused=True).standing is ChangeStatus.FAILED
    done = {("g", "orders", 0): (Status.OK, 5)}
    undone = life(*DONE, undone=UndoLedger(outcomes={"p1": done, "p2": done}, undos={"p1": ["p2"]}).undone("p1"))
    assert (undone.standing, undone.undone_by) == (ChangeStatus.UNDONE, ("p2",))


@given(st.lists(st.sampled_from([APPROVED, REJECTED, EXPIRED]), max_size=5), st.sampled_from([FAILED, REFUSED, ()]))
def test_a_rejection_forbids_the_plan_whatever_else_is_noted(
    decisions: list[AuditEntry], attempt: tuple[AuditEntry, ...]
) -> None:
    """Before or after approvals and failed attempts; the refusal names who, when and why."""
    found = life(*decisions, *attempt)
    if any(one.event is Event.REJECTED for one in decisions):
        with pytest.raises(ChangeRefused, match=r"was rejected by ann at 2026-01-02T03:04:05Z: ticket 7"):
            found.after(Step.APPLY)
    elif any(one.event is Event.EXPIRED for one in decisions):
        with pytest.raises(ChangeRefused, match="plan_expired"):
            found.after(Step.APPLY)
    else:
        assert found.after(Step.APPLY) is ChangeStatus.RUNNING


@pytest.mark.parametrize("step", [Step.APPROVE, Step.REJECT, Step.APPLY, Step.UNDO])
def test_what_nobody_knows_is_verified_first(step: Step) -> None:
    """Whatever is asked of a plan whose outcome is open: verify."""
    with pytest.raises(ChangeInProgress) as caught:
        life(*UNKNOWN).after(step)
    assert "acktrail change verify p1" in caught.value.hint
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("rule", "approved_by", "passes"),
    [
        (ApprovalRule.OPTIONAL, [], True),
        (ApprovalRule.REQUIRED, [], False),
        (ApprovalRule.REQUIRED, ["ann"], True),
        (ApprovalRule.SECOND_PERSON, ["ann"], False),
        (ApprovalRule.SECOND_PERSON, ["Ann ", "BOB"], False),
        (ApprovalRule.SECOND_PERSON, ["ann", "eve"], True),
    ],
)
def test_who_may_approve(rule: ApprovalRule, approved_by: list[str], passes: bool) -> None:
    """Neither who made the plan nor for whom, however the name is written; and no rule is no obstacle."""
    plan = replace(a_plan(), created_by="ann", requested_by="bob")
    admission = Admission(journal=cast("Journal", None), plan=plan, rule=rule)
    with nullcontext() if passes else pytest.raises(ChangeRefused, match="needs an approval") as refused:
        admission.check_approvals(approved_by)
    assert passes or f"acktrail change approve {plan.plan_id}" in refused.value.hint


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
