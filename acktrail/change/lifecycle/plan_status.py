"""The status of plans and their results, read from the tables, and whether it allows a step: every entry point asks.

What an undo takes back: the share partitions that a plan sent and that were verified as done, and nothing else."""

from __future__ import annotations

import os
import pwd
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from acktrail.change.audit.audit_chain import AuditRow, Event, audit_entry
from acktrail.change.audit.journal import Journal, read_audit, read_executions, read_plan_row, read_plan_rows
from acktrail.change.change_kind import kind_of, new_plan
from acktrail.change.cluster import Cluster
from acktrail.change.collection.facts import TargetOffset, TargetOffsets
from acktrail.change.lifecycle.plan_life import (
    DECIDES,
    PlanLife,
    Status,
    Step,
    Undone,
    life_of,
    note_of,
)
from acktrail.change.planning.change_plan import DAY_MS, ChangePlan, PartitionPlan, check_age
from acktrail.change.planning.reset_plan import UNDO, ResetPlan
from acktrail.change.request.reset_request import ResetRequest, StrategyKind, TopicScope, parse_request
from acktrail.config import ApprovalRule, TablesConfig, approval_rule
from acktrail.errors import ChangeInProgress, ChangeRefused, MalformedFile
from acktrail.times import now_ms, utc_text

_Row = Mapping[str, Any]
_LISTED: Final = ("plan_id", "created_by", "kind", "strategy", "undoes", "partitions", "refusals")
Key = tuple[str, str, int]
_NEVER_STARTED: Final = (
    "it had no start offset before, and Kafka cannot remove one alone: `acktrail groups delete-offsets` takes all of it"
)
_NEVER_SENT: Final = frozenset({Status.LEFT_OUT, Status.NOT_ATTEMPTED, Status.FAILED})


def done_before(cluster: Cluster, journal: Journal, plan: ChangePlan) -> frozenset[Key]:
    """The share partitions that an earlier attempt at `plan` brought to their targets, and that are there still."""
    from acktrail.change.collection.collect import described_offsets

    rows = _newest(row for row in journal.executions(plan.plan_id) if Status(row["status"]).is_ok)
    now = described_offsets(cluster.admin, {group_id for group_id, _, _ in rows}) if rows else {}
    offsets = {(group, topic, part): now[group].get((topic, part)) for group, topic, part in rows}
    return frozenset(key for key, at in offsets.items() if at and at.start_offset == rows[key]["target_offset"])


def outcomes(journal: Journal, plan: ChangePlan, found: Iterable[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """The outcome of every share partition of `plan` as JSON: what a verification `found` just now, else its newest row
    of ``reset_executions``, else NOT_ATTEMPTED. Nothing when nothing was ever attempted."""
    verified, newest = _newest(found), _newest(journal.executions(plan.plan_id))
    rows = plan.partitions if newest else ()
    return [verified.get(row.key) or _outcome(row, newest.get(row.key)) for row in rows]


def list_plans(tables: TablesConfig, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Every plan with its status and the standing of each group, newest first, as JSON."""
    at_ms = now_ms()
    plans = read_plan_rows(tables, columns=[*_LISTED, "group_ids"])
    by_plan: dict[str, list[AuditRow]] = defaultdict(list)
    for row in read_audit(tables):
        by_plan[row.plan_id].append(row)
    undos = [row for row in plans if row["kind"] == UNDO and row["undoes"]]
    ledger = read_ledger(tables, [row["undoes"] for row in undos], undos)
    return [_line(row, by_plan[row["plan_id"]], ledger, at_ms) for row in plans[::-1][:limit]]


def plan_status(tables: TablesConfig, plan_id: str) -> dict[str, Any]:
    """The status of one plan as JSON: its standing, who decided what, its groups, and the newest `executions`. Raises
    UnknownName: the tables know nothing of it, so that what became of it is not known; as ``Tables``."""
    rows = read_audit(tables, {"plan_id": plan_id})
    stored = read_plan_rows(tables, {"plan_id": plan_id}, columns=["plan_id", "kind", "refusals"])
    if not rows and not stored:
        read_plan_row(tables, plan_id)
    about: _Row = stored[0] if stored else {"plan_id": plan_id, "kind": "", "refusals": 0, "created_at": None}
    life = _life(about, rows, read_ledger(tables, [plan_id]), now_ms())
    groups = [{"group_id": one.group_id, "attempt": one.attempt, "standing": one.standing.value} for one in life.groups]
    executions = [_execution(row) for row in _newest(read_executions(tables, [plan_id])).values()]
    return {**_of_life(life, about["kind"]), "groups": groups, "executions": executions}


def _life(row: _Row, rows: Iterable[AuditRow], ledger: UndoLedger, at_ms: int) -> PlanLife:
    plan_id, created_at, is_refused = row["plan_id"], row["created_at"], bool(row["refusals"])
    is_expired = created_at is not None and at_ms - created_at.timestamp() * 1000 > DAY_MS
    undone = ledger.undone(plan_id)
    return life_of(plan_id, rows, now_ms=at_ms, is_refused=is_refused, is_expired=is_expired, undone=undone)


def _newest(rows: Iterable[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    """The newest of these ``reset_executions`` by share partition."""
    return {_key(row): row for row in rows}


def _key(row: _Row) -> Key:
    return row["group_id"], row["topic"], row["partition"]


def _execution(row: _Row) -> dict[str, Any]:
    at = row["verified_at"]
    return {**row, "verified_at": None if at is None else at.isoformat(), "advice": ""}


def _outcome(row: PartitionPlan, newest: _Row | None) -> dict[str, Any]:
    """The newest outcome of a share partition; None: no attempt came to it."""
    from acktrail.change.verification.partition_outcome import verified_partition

    never_sent = verified_partition(row, Status.NOT_ATTEMPTED, "it was not sent", verified_at=None)
    return never_sent if newest is None else _execution(newest)


def _of_life(life: PlanLife, kind: str) -> dict[str, Any]:
    decisions = [
        {"decision": DECIDES[row.event].value, "by": row.actor, "at": utc_text(row.audited_at), "why": note_of(row)}
        for row in life.decisions
    ]
    about = {"standing": life.standing.value, "verified": life.verified, "next": life.next(new_plan(kind)).command}
    return {**about, "decisions": decisions, "undone_by": list(life.undone_by)}


def _line(row: _Row, rows: Sequence[AuditRow], ledger: UndoLedger, at_ms: int) -> dict[str, Any]:
    """The line of a plan; one that was damaged is UNREADABLE and takes no other with it."""
    line = {**{name: row[name] for name in _LISTED}, "created_at": None, "groups": row["group_ids"] or []}
    try:
        life = _life(row, rows, ledger, at_ms)
        return {
            **line,
            "created_by": _maker(row, rows),
            "created_at": utc_text(row["created_at"]),
            **_of_life(life, row["kind"]),
            "attempts": max((one.attempt for one in life.groups), default=0),
            "group_standings": {one.group_id: one.standing.value for one in life.groups},
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        damaged = {"standing": "UNREADABLE", "verified": None, "next": "acktrail change audit says what was altered"}
        return {**line, **damaged, "decisions": [], "undone_by": [], "attempts": 0, "group_standings": {}}


def _maker(row: _Row, rows: Iterable[AuditRow]) -> str:
    """Who made a plan: who stored it, and the name in its file where that is another."""
    stored_by = next((one.actor for one in rows if one.event == Event.PLANNED), row["created_by"])
    return stored_by if stored_by == row["created_by"] else f"{stored_by}, from a file that names {row['created_by']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The questions that one plan is asked before a step; `rule` says which approval it needs, `longest_ms` how old it
    may be."""

    journal: Journal
    plan: ChangePlan
    rule: ApprovalRule = field(default_factory=approval_rule)
    longest_ms: int = DAY_MS

    def _asked(self, person: str) -> bool:
        """Whether a person made the plan or brought its file, or it was made for them: they may not approve it as the
        second one."""
        rows = self.journal.audit({"plan_id": self.plan.plan_id, "event": Event.PLANNED.value})
        people = (self.plan.created_by, self.plan.requested_by, *(row.actor for row in rows))
        return _name(person) in {_name(one) for one in people} - {""}

    def life(self) -> PlanLife:
        """How the plan stands now."""
        plan_id, rows = self.plan.plan_id, self.journal.audit({"plan_id": self.plan.plan_id})
        may_be_undone = any(row.event == Event.VERIFIED for row in rows)
        ledger = read_ledger(self.journal.tables, [plan_id]) if may_be_undone else UndoLedger()
        is_refused, undone = bool(self.plan.refusals), ledger.undone(plan_id)
        return life_of(plan_id, rows, now_ms=self.journal.now_ms, is_refused=is_refused, undone=undone)

    def check_apply(self) -> PlanLife:
        """How the plan stood, which may be carried out now. Raises as `PlanLife.after`; also when it needs an approval
        or (PlanStale) is too old."""
        life = self.life()
        life.after(Step.APPLY)
        self._check_age()
        self.check_approvals(self._decided_by(life, Step.APPROVE))
        return life

    def check_approvals(self, approved_by: Iterable[str]) -> None:
        """Raise ChangeRefused (`approval_missing`) unless the plan, which these people approved, may be carried out."""
        needs_other = self.rule is ApprovalRule.SECOND_PERSON
        if self.rule is ApprovalRule.OPTIONAL or any(not (needs_other and self._asked(one)) for one in approved_by):
            return
        text = f"plan {self.plan.plan_id} needs an approval{' by a second person' if needs_other else ''}"
        hint = f"acktrail change approve {self.plan.plan_id} (ACKTRAIL_RESET_APPROVAL={self.rule.value})"
        raise ChangeRefused("approval_missing", text, hint=hint)

    def decide(self, step: Step, *, actor: str, why: str = "") -> PlanLife:
        """Note that `actor`, for whom the journal writes, approved or rejected the plan, or that the time to answer is
        over (EXPIRE); the plan's status then. The same decision by the same person is noted once. Raises as
        `PlanLife.after`; PlanStale: too old to be approved; ChangeRefused: `own_approval`."""
        before = self.life()
        before.after(step)
        if step is Step.APPROVE:
            self._check_age()
            if self.rule is ApprovalRule.SECOND_PERSON and self._asked(actor):
                hint = "somebody else approves it (ACKTRAIL_RESET_APPROVAL=second-person)"
                raise ChangeRefused("own_approval", f"{actor} asked for the plan and may not approve it", hint=hint)
        if actor not in self._decided_by(before, step):
            event = next(event for event, decided in DECIDES.items() if decided is step)
            entry = audit_entry(self.plan, 0, Event(event), detail={"note": why} if why else {})
            # The life is read again: the rows that `check` is given may be those of open changes alone.
            self.journal.note([entry], check=lambda _: self.life().after(step))
        return self.life()

    def _decided_by(self, life: PlanLife, step: Step) -> list[str]:
        """Who took this decision about the very plan that has the plan's hash."""
        mine = [row for row in life.decisions if row.plan_hash == self.plan.plan_hash]
        return [row.actor for row in mine if DECIDES[row.event] is step]

    def _check_age(self) -> None:
        check_age(self.plan.created_at_ms, now_ms=self.journal.now_ms, longest_ms=self.longest_ms)


def account() -> str:
    """The account that this process runs under, by the system and not by the environment, which anybody may set."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def _name(person: str) -> str:
    return person.strip().casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoLedger:
    """By plan, the newest status of every share partition with its target, and the plans made to take it back."""

    outcomes: Mapping[str, Mapping[Key, tuple[Status, int | None]]] = field(default_factory=dict)
    undos: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def without(self, undo: str | None) -> UndoLedger:
        """As if the plan `undo` had not been made."""
        undos = {plan_id: [one for one in every if one != undo] for plan_id, every in self.undos.items()}
        return replace(self, undos=undos)

    def done(self, plan_id: str) -> dict[Key, int | None]:
        """The share partitions that the plan brought to their targets."""
        return {key: target for key, (status, target) in self.outcomes.get(plan_id, {}).items() if status.is_ok}

    def taken_back(self, plan_id: str, above: frozenset[str] = frozenset()) -> dict[Key, str]:
        """The share partitions of the plan that were taken back and are not done again, each with the plan that did so;
        those `above`, which led here, do not count."""
        found: dict[Key, str] = {}
        for undo in self.undos.get(plan_id, ()):
            if undo not in above:
                again = self.taken_back(undo, above | {plan_id})
                found |= {key: undo for key in self.done(undo) if key not in again}
        return found

    def undone(self, plan_id: str) -> Undone:
        """Which plans took some of the plan back, and whether they took back everything that it did."""
        done, back = self.done(plan_id), self.taken_back(plan_id)
        return Undone(tuple(sorted(set(back.values()))), bool(done) and done.keys() <= back.keys())


def read_ledger(tables: TablesConfig, plan_ids: Iterable[str], rows: Iterable[_Row] | None = None) -> UndoLedger:
    """What is stored of these plans, of those that take them back, and of those that take these back. `rows`: all plans
    that take others back, where they were read already."""
    undos: dict[str, list[str]] = defaultdict(list)
    if rows is None:
        rows = read_plan_rows(tables, {"kind": UNDO}, columns=["plan_id", "undoes"])
    for row in rows:
        undos[row["undoes"]].append(row["plan_id"])
    wanted: set[str] = set()
    waiting = list(plan_ids)
    while waiting:
        plan_id = waiting.pop()
        if plan_id not in wanted:
            wanted.add(plan_id)
            waiting += undos.get(plan_id, ())
    if not wanted:
        return UndoLedger()
    columns = ["plan_id", "group_id", "topic", "partition", "target_offset", "status"]
    outcomes: dict[str, dict[Key, tuple[Status, int | None]]] = defaultdict(dict)
    for row in read_executions(tables, sorted(wanted), columns=columns):
        outcomes[row["plan_id"]][_key(row)] = (Status(row["status"]), row["target_offset"])
    return UndoLedger(outcomes=outcomes, undos=undos)


def undoable(plan: ChangePlan) -> ChangePlan:
    """`plan`, which must have start offsets. Raises MalformedFile: it changes something else."""
    if not kind_of(plan).is_undoable:
        hint = f"it is of kind {plan.kind}: acktrail change show {plan.plan_id} says what was before"
        raise MalformedFile("has no start offsets", file=f"plan {plan.plan_id}", hint=hint)
    return plan


def undo_request(plan: ChangePlan, **asked: Any) -> ResetRequest:
    """The reset that undoes a plan: start offsets only, Kafka has no request that brings delivery states back. `asked`:
    `topics`, `reason`, `requested_by`, `without_state`, and `allow_moved_on`: also where the group moved on since. A
    group that the plan deleted is made again."""
    undone = {"groups": plan.group_ids, "allow_create": kind_of(plan).is_deletion}
    return parse_request({**undone, "strategies": {StrategyKind.TO_SNAPSHOT.value: plan.plan_id}, **asked})


def undo_offsets(
    tables: TablesConfig, plan: ChangePlan, topics: Sequence[TopicScope] = (), *, now_ms: int, but: str | None = None
) -> TargetOffsets:
    """Where each share partition of `plan` goes back to: where its group would have begun before, past the finished
    records at the start of its state. One that the plan did not change, or that was taken back before, has a reason
    instead. What the plan `but` took back does not count.

    Raises:
        ChangeRefused: the plan changed nothing, was taken back, or does not hold what `topics` names.
        ChangeInProgress: it, or a plan that takes it back, is being carried out or was not verified.
    """
    _check_named(plan, topics)
    ledger = read_ledger(tables, [plan.plan_id]).without(but)
    audit = read_audit(tables, {"plan_id": [plan.plan_id, *ledger.undos.get(plan.plan_id, ())]})
    life = life_of(
        plan.plan_id, audit, now_ms=now_ms, is_refused=bool(plan.refusals), undone=ledger.undone(plan.plan_id)
    )
    life.after(Step.UNDO)
    if not ledger.done(plan.plan_id):
        text = f"plan {plan.plan_id} has no share partition that was verified as done"
        raise ChangeRefused("nothing_to_undo", text, hint=f"see acktrail change show {plan.plan_id}")
    for undo in ledger.undos.get(plan.plan_id, ()):
        other = life_of(undo, audit, now_ms=now_ms)
        if other.next().is_open:
            group = next(one for one in other.groups if one.standing is other.standing)
            raise ChangeInProgress(group.group_id, plan_id=undo, hint=other.next().command)
    is_deletion = kind_of(plan).is_deletion
    outcomes, before = ledger.outcomes[plan.plan_id], ledger.taken_back(plan.plan_id)
    found: dict[str, dict[tuple[str, int], TargetOffset]] = defaultdict(dict)
    for row in plan.partitions:
        status, target = outcomes.get(row.key, (None, None))
        reason = _why_not(status, before.get(row.key)) or (_NEVER_STARTED if row.resume_offset is None else None)
        offset = None if reason else row.resume_offset
        given = TargetOffset(
            offset=offset,
            reason=reason,
            topic_id=row.topic_id,
            left_at=target,
            is_left=is_deletion,
            deleted=row.state if is_deletion else None,
        )
        found[row.group_id][row.topic, row.partition] = given
    return found


def check_not_undone(tables: TablesConfig, plan: ResetPlan) -> None:
    """Raise ChangeRefused (`already_undone`) when another plan took back what the undo `plan` is to take back."""
    if plan.undoes is None:
        return
    ledger = read_ledger(tables, [plan.undoes])
    before = ledger.without(plan.plan_id).taken_back(plan.undoes)
    mine = ledger.done(plan.plan_id)
    for row in plan.executable(partial=True):
        if row.key in before and row.key not in mine:
            text = f"{row.group_id} {row.name}: plan {before[row.key]} took it back already"
            raise ChangeRefused("already_undone", text, hint="nothing was sent")


def _why_not(status: Status | None, undo: str | None) -> str | None:
    """Why a share partition with this outcome, taken back by `undo`, has no offset to go back to."""
    if undo is not None:
        return f"plan {undo} took it back already"
    if status is None or status in _NEVER_SENT:
        return f"the plan did not change it ({'not sent' if status is None else status.value})"
    return None if status.is_ok else f"the plan is not known to have done it ({status.value})"


def _check_named(plan: ChangePlan, topics: Sequence[TopicScope]) -> None:
    known: dict[str, set[int]] = defaultdict(set)
    for row in plan.partitions:
        known[row.topic].add(row.partition)
    for scope in topics:
        odd = [index for index in scope.partitions or () if index not in known[scope.topic]]
        if odd or not known[scope.topic]:
            name = f"{scope.topic}:{odd[0]}" if odd else scope.topic
            text = f"plan {plan.plan_id} has no {name}"
            raise ChangeRefused("not_in_plan", text, hint="acktrail change show lists it")
