"""The audit is a chain, and how a change stands follows from it alone."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from change.scenes import (
    CASES,
    NOW,
    NOW_MS,
    STAMP,
    a_journal,
    a_plan,
    a_request,
    a_snapshot,
    entry,
    lease,
    partition_facts,
    planned,
)
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.apply.approval import Admission
from acktrail.change.apply.leased_attempt import Attempt, take_leases
from acktrail.change.audit import journal as journal_module
from acktrail.change.audit.audit_chain import AuditEntry, AuditRow, Event, chained, check_chain, first_link
from acktrail.change.audit.journal import Journal
from acktrail.change.audit.plan_life import (
    _WORDS,
    LIFE,
    OPEN,
    ChangeStatus,
    Lease,
    PlanLife,
    Refusal,
    Status,
    Step,
    blocking,
    life_at,
    life_of,
    next_step,
    standings,
    status_found,
    worst_status,
)
from acktrail.change.change_kind import parse_plan
from acktrail.change.plan.change_plan import plan_json, with_hash
from acktrail.change.plan.snapshot_facts import TargetOffset
from acktrail.change.plan_status import list_plans, plan_status
from acktrail.change.request.reset_request import Strategy, StrategyKind
from acktrail.change.undo import UndoLedger
from acktrail.change.verify.partition_outcome import verified_partition
from acktrail.config import ApprovalRule
from acktrail.errors import ChangeInProgress, ChangeRefused, OutcomeUnknown
from acktrail.kafka.changes import ChangeResult, Outcome
from acktrail.model.batches import DeliveryState, StateBatch
from acktrail.tables.delta.store import Tables
from acktrail_expectations.reset_gate import reset_result_frame


def rows_of(*entries: AuditEntry) -> list[AuditRow]:
    return chained(entries, STAMP, sequence=0, previous_hash=first_link("c1"))


def broken_at(rows: list[AuditRow], cluster_id: str = "c1") -> int | None:
    flaw = check_chain(rows, cluster_id)
    assert flaw is not None
    return flaw.sequence


texts = st.text(max_size=4)


@given(st.lists(st.tuples(st.sampled_from(Event), st.none() | texts, texts, texts), min_size=2, max_size=6), st.data())
def test_a_row_that_is_touched_breaks_the_chain(
    made: list[tuple[Event, str | None, str, str]], data: st.DataObject
) -> None:
    """Whole it is whole; any field changed, a row left out, doubled or swapped: broken at or before that row."""
    rows = rows_of(*(entry(e, o, group_id=g, detail={"text": t}) for e, o, g, t in made))
    assert check_chain(rows, "c1") is None
    assert check_chain(reversed(rows), "c1") is None
    at = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(sorted(asdict(rows[0]).keys() - {"keyed_hash"})))
    old = getattr(rows[at], name)
    new = old + 1 if isinstance(old, int) else old + dt.timedelta(0, 1) if isinstance(old, dt.datetime) else f"{old}x"
    touched = [*rows[:at], replace(rows[at], **{name: new}), *rows[at + 1 :]]
    assert check_chain(touched, "c1") is not None
    if at < len(rows) - 1:
        assert broken_at([*rows[:at], *rows[at + 1 :]]) == at
    assert broken_at([*rows, rows[at]]) == at + 1
    assert broken_at(rows, "another") == 0


def decision(event: Event) -> AuditEntry:
    return entry(event, attempt=0, group_id=None, detail={"note": "ticket 7"})


TOLD = {
    "lease": lease(),
    "before": entry(Event.BEFORE_CALL),
    "after": entry(Event.AFTER_CALL),
    "verified": entry(Event.VERIFIED),
    "refused": entry(Event.REFUSED),
    "released": entry(Event.LEASE_RELEASED),
    **{event.value: decision(event) for event in (Event.APPROVED, Event.REJECTED, Event.EXPIRED)},
}


def told(text: str) -> tuple[AuditEntry, ...]:
    """Entries by their names, each with its outcome; what follows ``again`` is a second attempt."""
    found: list[AuditEntry] = []
    first, _, second = text.partition("again")
    for number, words in enumerate((first, second), start=1):
        for word in words.split():
            name, _, outcome = word.partition(":")
            one = replace(TOLD[name], outcome=outcome or None)
            found.append(one if one.attempt == 0 else replace(one, attempt=number))
    return tuple(found)


@pytest.mark.parametrize(("text", "standing"), CASES["standings of a group"])
@pytest.mark.parametrize("group_id", ["g", None])
def test_where_a_change_stands(text: str, standing: str, group_id: str | None) -> None:
    """After every sequence of rows, also one that a killed process broke off; the newest attempt counts. A change that
    is about no group stands as that of a group."""
    (found,) = standings(rows_of(*(replace(one, group_id=group_id) for one in told(text))))
    assert found.standing == found.at(NOW_MS + 3_600_000).standing == standing
    if found.lease is not None and standing in (ChangeStatus.UNKNOWN, ChangeStatus.STARTED, ChangeStatus.UNVERIFIED):
        assert found.at(NOW_MS).standing is ChangeStatus.RUNNING


def test_what_keeps_others_away() -> None:
    """A lease in force, or an outcome that nobody looked for, whoever holds it; nothing else does: not an outcome that
    verification could not find out, nor what others tried meanwhile."""
    for entries, blocks in (
        (told("lease"), True),
        ((lease(-1),), False),
        ((lease(-1), *told("before")), True),
        ((lease(-1), *told("before after:done")), False),
        (told("lease released"), False),
        (told("lease before verified:unknown released"), False),
        ((*told("lease before"), entry(Event.LEASE_REFUSED, group_id=None, plan_id="p2")), True),
    ):
        found = standings(rows_of(*entries))
        assert (blocking(found, "g", plan_id="p2", now_ms=NOW_MS) is not None) is blocks, entries
        assert blocking(found, "other", plan_id="p2", now_ms=NOW_MS) is None


def test_a_plan_that_is_about_no_group_keeps_itself_away() -> None:
    """Its lease keeps a second process from the same plan, and nobody from another one."""
    found = standings(rows_of(replace(lease(), group_id=None)))
    assert blocking(found, "", plan_id=found[0].plan_id, now_ms=NOW_MS) is not None
    assert blocking(found, "", plan_id="another", now_ms=NOW_MS) is None


def journal(root: Path, cluster_id: str = "c1", clock: Callable[[], dt.datetime] = lambda: NOW) -> Journal:
    return a_journal(root, cluster_id=cluster_id, clock=clock)


def test_files_are_put_together_while_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers that compact the table at every end of a change, side by side: every row lands once, in one chain."""
    monkeypatch.setattr(journal_module, "_SMALL_FILES", 1)
    journal(tmp_path).note([entry(Event.PLANNED)])

    def write(plan_id: str) -> None:
        mine = journal(tmp_path)
        for _ in range(4):
            mine.note([entry(Event.LEASE_RELEASED, plan_id=plan_id)])

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(write, f"p{number}") for number in range(3)]:
            done.result()
    rows = journal(tmp_path).audit()
    assert (len(rows), check_chain(rows, "c1")) == (13, None)


def test_plans_and_results_have_the_order_of_their_commits(tmp_path: Path) -> None:
    """Who wrote first had a clock two hours ahead: the list begins with the plan that was made last, and what was found
    last of a share partition counts."""
    for number, at in enumerate((NOW + dt.timedelta(hours=2), NOW)):
        mine = journal(tmp_path, clock=lambda at=at: at)
        plan = with_hash(replace(planned(f"p{number}"), created_at_ms=int(at.timestamp() * 1000)))
        mine.write_plan(plan)
        mine.write_executions([{**verified_partition(plan.partitions[0], [*Status][number], None), **RESULT}])
        mine.note([entry(Event.RECORDED)])
    assert [line["plan_id"] for line in list_plans(mine.tables)] == ["p1", "p0"]
    assert [row["status"] for row in mine.executions("p0")] == [*Status][:2]
    assert plan_status(mine.tables, "p0")["executions"][0]["status"] == [*Status][1]
    frame = reset_result_frame(Tables(mine.tables).read("reset_executions"))
    assert frame["status"].to_list() == [[*Status][1]]


def test_one_change_of_a_group_at_a_time(tmp_path: Path) -> None:
    """Who comes second is told who has it; all groups of a plan are taken, or none."""
    first, second = journal(tmp_path), journal(tmp_path)
    take_leases(first, [lease(group_id="a"), lease(group_id="b")])
    with pytest.raises(ChangeInProgress, match="'b'") as caught:
        take_leases(second, [lease(plan_id="p2", group_id="c"), lease(plan_id="p2", group_id="b")])
    assert "process 7" in caught.value.hint
    *leases, kept_out = first.audit()
    assert {row.group_id for row in leases} == {"a", "b"}
    assert (kept_out.event, kept_out.plan_id, kept_out.actor) == (Event.LEASE_REFUSED, "p2", "ann")
    assert json.loads(kept_out.detail)["kept_by"] == "p1"
    assert {found.plan_id for found in first.standings()} == {"p1"}
    first.note([entry(Event.LEASE_RELEASED, group_id="b")])
    take_leases(second, [lease(plan_id="p2", group_id="b")])
    late = journal(tmp_path, clock=lambda: NOW + dt.timedelta(hours=1))
    take_leases(late, [lease(plan_id="p3", group_id="a")])
    first.note([entry(Event.BEFORE_CALL, plan_id="p2", group_id="b")])
    with pytest.raises(ChangeInProgress) as unknown:
        take_leases(late, [lease(plan_id="p3", group_id="b")])
    assert "acktrail change verify p2" in unknown.value.hint


def test_a_lease_of_another_machine_is_held_until_it_ends() -> None:
    """Whether a process lives can only be seen where it runs: elsewhere the clock alone ends its lease."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    there, here = (Lease(expires_at_ms=NOW_MS, host=host, pid=gone.pid) for host in ("elsewhere", socket.gethostname()))
    assert [there.is_held(NOW_MS - 1), there.is_held(NOW_MS)] == [True, False]
    assert not here.is_held(NOW_MS - 1)
    assert replace(here, pid=os.getpid()).is_held(NOW_MS - 1)


def test_a_group_that_is_not_reached_says_why(tmp_path: Path) -> None:
    """A process that slept longer than its leases last sends nothing more; else a group that failed keeps those after
    it from being sent."""
    plan, now = planned("2026-lease"), [dt.datetime(2026, 1, 31, tzinfo=dt.UTC)]
    for groups, naps, wanted in ((["a", "b"], 300, "its lease was over"), (["c", "d"], 0, "a group before it")):
        attempt = Attempt(journal(tmp_path, clock=lambda: now[0]), plan, groups)

        def call(group_id: str, naps: int = naps) -> list[ChangeResult]:
            now[0] += dt.timedelta(seconds=naps)
            outcome = Outcome.DONE if naps else Outcome.REFUSED
            return [ChangeResult(group_id=group_id, topic=None, partition=None, outcome=outcome)]

        with attempt.take_leases():
            done = attempt.send(groups, call, 1_000, goes_on=False)
        assert [*done.not_sent] == groups[1:]
        assert wanted in done.not_sent[groups[1]]


DONE, UNKNOWN = told("lease before after:done verified:done released"), (lease(-1), *told("before after:unknown"))
LOOKED_FOR = told("lease before after:unknown verified:unknown released")
FAILED = told("lease before after:refused verified:not_done released")


def life(*entries: AuditEntry, **about: Any) -> PlanLife:
    return life_of("p1", rows_of(*entries), now_ms=NOW_MS, **about)


def test_renewed_lease_keeps_an_unknown_outcome() -> None:
    """A lease that is renewed while requests are out does not make the plan look as if nothing was sent."""
    (found,) = standings(rows_of(lease(), entry(Event.BEFORE_CALL), lease(120)))
    assert (found.standing, found.lease is not None) == (ChangeStatus.UNKNOWN, True)
    assert life(*UNKNOWN, lease(-1), *told("verified:partly released")).standing is ChangeStatus.PARTLY


def test_every_step_of_every_standing_has_an_answer() -> None:
    """No pair is left to chance. From REJECTED, EXPIRED, STOPPED, UNDONE and OVERWRITTEN no sequence of decisions leads
    to one that may be carried out. UNDO is refused wherever nothing was changed, and wherever nobody knows."""
    assert {standing for standing, _ in LIFE} == set(ChangeStatus)
    closed = {
        ChangeStatus.REJECTED,
        ChangeStatus.EXPIRED,
        ChangeStatus.STOPPED,
        ChangeStatus.UNDONE,
        ChangeStatus.OVERWRITTEN,
    }
    for standing in closed:
        answers = life_at(standing)
        assert isinstance(answers[Step.APPLY], Refusal)
        assert all(isinstance(answer, Refusal) or answer in closed for answer in answers.values()), standing
    changed = {ChangeStatus.DONE, ChangeStatus.PARTLY, ChangeStatus.STOPPED, ChangeStatus.OVERWRITTEN}
    assert {standing for standing, _ in LIFE if not isinstance(life_at(standing)[Step.UNDO], Refusal)} == changed


COMMANDS = {"apply": Step.APPLY, "reject": Step.REJECT}


KNOWN = {
    (ChangeStatus(name), known)
    for name, words in _WORDS.items()
    for known in (None, *(each for each, found in words.items() if isinstance(found, dict)))
}


@pytest.mark.parametrize(("standing", "verified"), sorted(KNOWN, key=str))
def test_every_status_names_a_step_that_is_not_refused(standing: ChangeStatus, verified: str | None) -> None:
    """What `list`, `show`, `apply` and `verify` print: the commands in it are those that the same row of the table
    allows, and `verify` is named only while nobody looked. Whatever verification finds, it does not lead back to it."""
    after, said = life_at(standing, verified), next_step(standing, verified)
    is_refused = {name: isinstance(after[step], Refusal) for name, step in COMMANDS.items()}
    text = said.on("P7", "NEW").command
    assert {name for name in is_refused if f"change {name} P7" in text} <= {n for n, no in is_refused.items() if not no}
    assert set(LIFE) <= KNOWN
    assert not (verified == "refused" and "change apply" in text)
    assert ("change verify P7" in text) is (verified is None and standing in {*OPEN, ChangeStatus.RUNNING})
    assert not any("change verify" in next_step(status_found(found), found).command for found in FOUND)
    assert all(is_refused.values()) <= ("NEW" in text or "verify" in text or standing is ChangeStatus.DONE)
    assert said.is_open is (standing in {*OPEN, ChangeStatus.RUNNING})
    assert said.form
    assert "{" not in text + said.on("P7").form


FOUND = ("done", "partly", "not_done", "overwritten", "unknown", "forgotten")


def followed(standing: ChangeStatus, verified: str | None) -> list[tuple[ChangeStatus, str | None]]:
    """Where the commands that are named for such a plan lead, whatever the cluster answers."""
    text, answer = next_step(standing, verified).command, life_at(standing, verified)[Step.REJECT]
    found: list[tuple[ChangeStatus, str | None]] = []
    if "change apply" in text:
        found += [(ChangeStatus(name), None) for name in ("REFUSED", "FAILED", "UNKNOWN", "UNVERIFIED")]
    if "change verify" in text:
        found += [(status_found(outcome), outcome) for outcome in FOUND]
    if "change reject" in text:
        found += [(ChangeStatus(answer), None)]
    return found


def test_every_status_has_a_way_out() -> None:
    """Whoever does what is printed gets every plan to an end, where no command is left to call, and never from a
    verification to another one: no two commands send a person round."""
    ended = {at for at in KNOWN if not followed(*at)}
    assert {standing for standing, _ in ended}.isdisjoint(OPEN)
    for _ in LIFE:
        ended |= {at for at in KNOWN if any((one, None) in ended or (one, it) in ended for one, it in followed(*at))}
    assert ended == KNOWN


@pytest.mark.parametrize(("text", "standing"), CASES["standings of a plan"])
def test_where_a_plan_stands(text: str, standing: str) -> None:
    """After decisions and attempts in any order: what was done is never forgotten, a closed plan stays closed."""
    assert life(*told(text)).standing == standing


def test_a_plan_with_a_changed_and_an_unchanged_group_is_partly_done() -> None:
    """One group refused beside one that is done is neither REFUSED nor DONE; one at work comes first."""
    assert worst_status([ChangeStatus.DONE, ChangeStatus.REFUSED]) is ChangeStatus.PARTLY
    assert worst_status([ChangeStatus.DONE, ChangeStatus.UNKNOWN, ChangeStatus.FAILED]) is ChangeStatus.UNKNOWN
    assert worst_status([ChangeStatus.FAILED, ChangeStatus.RUNNING]) is ChangeStatus.RUNNING


def test_time_and_refusals_count_while_nothing_was_attempted() -> None:
    """An old plan is EXPIRED, one that a rule forbids is REFUSED; what was attempted says so still."""
    assert life(is_expired=True).standing is ChangeStatus.EXPIRED
    assert life(is_refused=True).standing is ChangeStatus.REFUSED
    assert "make a new plan" in life(is_refused=True).next().command
    assert life(*FAILED, is_expired=True, is_refused=True).standing is ChangeStatus.FAILED
    done = {("g", "orders", 0): (Status.OK, 5)}
    undone = life(*DONE, undone=UndoLedger(outcomes={"p1": done, "p2": done}, undos={"p1": ["p2"]}).undone("p1"))
    assert (undone.standing, undone.undone_by) == (ChangeStatus.UNDONE, ("p2",))


@pytest.mark.parametrize("step", [Step.APPROVE, Step.REJECT, Step.APPLY, Step.UNDO])
def test_what_nobody_knows_is_verified_first(step: Step) -> None:
    """Whatever is asked of a plan whose outcome is open: verify. Once verification could not find it out, it may be
    applied again or rejected, and not be undone."""
    with pytest.raises(OutcomeUnknown) as caught:
        life(*UNKNOWN).after(step)
    assert "acktrail change verify p1" in caught.value.hint
    looked_for = life(*LOOKED_FOR)
    with nullcontext() if step in (Step.APPLY, Step.REJECT) else pytest.raises(OutcomeUnknown, match="is unknown"):
        looked_for.after(step)
    text = looked_for.next().command
    assert "change apply p1 --execute" in text
    assert "change reject p1" in text


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
def test_who_may_approve(tmp_path: Path, rule: ApprovalRule, approved_by: list[str], passes: bool) -> None:
    """Neither who made the plan nor for whom, however the name is written; and no rule is no obstacle."""
    plan = replace(a_plan(), created_by="ann", requested_by="bob")
    admission = Admission(journal=journal(tmp_path), plan=plan, rule=rule)
    with nullcontext() if passes else pytest.raises(ChangeRefused, match="needs an approval") as refused:
        admission.check_approvals(approved_by)
    assert passes or f"acktrail change approve {plan.plan_id}" in refused.value.hint


A, B = ("g", "orders", 0), ("g", "orders", 1)
OK = (Status.OK, 5)
RESULT = {"plan_id": "p0", "attempt": 1}
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
    assert ledger.without("u2").taken_back("plan") == {A: "u1"}
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
