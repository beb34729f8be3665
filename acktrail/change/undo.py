"""Undo: which share partitions of a plan can be taken back, where they go back to, and what was taken back already.

An undo takes back what a plan sent and what was verified as done, and nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from acktrail.change.audit.journal import read_audit, read_executions, read_plan_rows
from acktrail.change.audit.plan_life import Status, Step, Undone, life_of
from acktrail.change.audit.sent_requests import Key
from acktrail.change.change_kind import Row, kind_of
from acktrail.change.plan.change_plan import ChangePlan
from acktrail.change.plan.reset_plan import UNDO, ResetPlan
from acktrail.change.plan.snapshot_facts import TargetOffset, TargetOffsets
from acktrail.change.request.reset_request import ResetRequest, StrategyKind, TopicScope, parse_request
from acktrail.config import TablesConfig
from acktrail.errors import ChangeInProgress, ChangeRefused, MalformedFile

_NEVER_STARTED: Final = (
    "it had no start offset before, and Kafka cannot remove one alone: `acktrail groups delete-offsets` takes all of it"
)
_NEVER_SENT: Final = frozenset({Status.LEFT_OUT, Status.NOT_ATTEMPTED, Status.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoLedger:
    """By plan, the newest status of every share partition with its target, and the plans made to take it back."""

    outcomes: Mapping[str, Mapping[Key, tuple[Status, int | None]]] = field(default_factory=dict)
    undos: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def without(self, undo: str | None) -> UndoLedger:
        """Return the ledger as if the plan `undo` had not been made."""
        undos = {plan_id: [one for one in every if one != undo] for plan_id, every in self.undos.items()}
        return replace(self, undos=undos)

    def done(self, plan_id: str) -> dict[Key, int | None]:
        """Return the share partitions that the plan brought to their targets."""
        return {key: target for key, (status, target) in self.outcomes.get(plan_id, {}).items() if status.is_ok}

    def taken_back(self, plan_id: str, above: frozenset[str] = frozenset()) -> dict[Key, str]:
        """Return the share partitions of the plan that were taken back and are not done again, each with the plan that
        did so. Plans `above`, which led here, do not count."""
        found: dict[Key, str] = {}
        for undo in self.undos.get(plan_id, ()):
            if undo not in above:
                again = self.taken_back(undo, above | {plan_id})
                found |= {key: undo for key in self.done(undo) if key not in again}
        return found

    def undone(self, plan_id: str) -> Undone:
        """Return which plans took some of the plan back, and whether they took back everything that it did."""
        done, back = self.done(plan_id), self.taken_back(plan_id)
        return Undone(tuple(sorted(set(back.values()))), bool(done) and done.keys() <= back.keys())


def read_ledger(tables: TablesConfig, plan_ids: Iterable[str], rows: Iterable[Row] | None = None) -> UndoLedger:
    """Read the ledger of these plans, of those that take them back, and of those that take these back. `rows`: all
    plans that take others back, if they were read already."""
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
        key = row["group_id"], row["topic"], row["partition"]
        outcomes[row["plan_id"]][key] = (Status(row["status"]), row["target_offset"])
    return UndoLedger(outcomes=outcomes, undos=undos)


def undoable(plan: ChangePlan) -> ChangePlan:
    """Return `plan`. Raises MalformedFile: it has no start offsets to go back to. ChangeRefused (`no_undo`): nothing
    takes back a change of its kind."""
    kind = kind_of(plan)
    if kind.no_undo:
        raise ChangeRefused("no_undo", f"nothing takes back plan {plan.plan_id}", hint=kind.no_undo)
    if not kind.is_undoable:
        hint = f"it is of kind {plan.kind}: acktrail change show {plan.plan_id} says what was before"
        raise MalformedFile("has no start offsets", file=f"plan {plan.plan_id}", hint=hint)
    return plan


def undo_request(plan: ChangePlan, **asked: Any) -> ResetRequest:
    """Return the reset that undoes a plan: start offsets only, Kafka has no request that restores delivery states.
    `asked`: `topics`, `reason`, `requested_by`, `without_state`, and `allow_moved_on`: also where the group moved on
    since. A group that the plan deleted is created again."""
    undone = {"groups": plan.group_ids, "allow_create": kind_of(plan).is_deletion}
    return parse_request({**undone, "strategies": {StrategyKind.TO_SNAPSHOT.value: plan.plan_id}, **asked})


def undo_offsets(
    tables: TablesConfig, plan: ChangePlan, topics: Sequence[TopicScope] = (), *, now_ms: int, but: str | None = None
) -> TargetOffsets:
    """Return where each share partition of `plan` goes back to: where its group would have begun before, past the
    finished records at the start of its state. One that the plan did not change, or that was taken back before, has a
    reason instead. What the plan `but` took back does not count.

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
    """Return why a share partition with this outcome, taken back by `undo`, has no offset to go back to."""
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
