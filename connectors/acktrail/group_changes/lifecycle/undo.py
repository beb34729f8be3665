"""What an undo takes back: the share partitions that a plan sent and that were verified as done, and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from acktrail.config import TablesConfig
from acktrail.errors import ChangeInProgress, ChangeRefused
from acktrail.group_changes.audit.journal import read_audit, read_plan_rows
from acktrail.group_changes.lifecycle.change_status import ChangeStatus, Status
from acktrail.group_changes.lifecycle.plan_life import Step, life_of
from acktrail.group_changes.planning.plan import ChangeKind, PartitionPlan, ResetPlan
from acktrail.group_changes.request.reset_request import ResetRequest, StrategyKind, TopicScope, parse_request
from acktrail.group_changes.request.target_offsets import TargetOffset, TargetOffsets

Key = tuple[str, str, int]

_OPEN: Final = frozenset({ChangeStatus.RUNNING, ChangeStatus.UNKNOWN, ChangeStatus.UNVERIFIED})
_NEVER_STARTED: Final = (
    "it had no start offset before, and Kafka cannot remove one alone: `acktrail offsets delete` takes all of it away"
)
_NEVER_SENT: Final = frozenset({None, Status.LEFT_OUT, Status.NOT_ATTEMPTED, Status.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoLedger:
    """What plans did to share partitions, and which plans were made to take which back. Pure.

    `outcomes`: by plan, the newest status of every share partition and its target. `undos`: by plan, the ids of the
    plans that undo it.
    """

    outcomes: Mapping[str, Mapping[Key, tuple[Status, int | None]]] = field(default_factory=dict)
    undos: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def done(self, plan_id: str) -> dict[Key, int | None]:
        """The share partitions that the plan brought to their targets."""
        return {key: target for key, (status, target) in self.outcomes.get(plan_id, {}).items() if status.is_ok}

    def taken_back(self, plan_id: str, *, but: str | None = None) -> dict[Key, str]:
        """The share partitions of the plan that were taken back and are not done again, each with the plan that did so;
        `but` is a plan that does not count."""
        return self._taken_back(plan_id, but, frozenset())

    def undone_by(self, plan_id: str) -> tuple[str, ...]:
        """The plans that took some of the plan back."""
        return tuple(sorted(set(self.taken_back(plan_id).values())))

    def is_undone(self, plan_id: str) -> bool:
        """Whether everything that the plan did was taken back."""
        done = self.done(plan_id)
        return bool(done) and done.keys() <= self.taken_back(plan_id).keys()

    def _taken_back(self, plan_id: str, but: str | None, above: frozenset[str]) -> dict[Key, str]:
        found: dict[Key, str] = {}
        for undo in self.undos.get(plan_id, ()):
            if undo != but and undo not in above:
                again = self._taken_back(undo, but, above | {plan_id})
                found |= {key: undo for key in self.done(undo) if key not in again}
        return found


def read_ledger(tables: TablesConfig, plan_ids: Iterable[str]) -> UndoLedger:
    """What is stored of these plans and of those that take them back."""
    rows = read_plan_rows(tables, {"kind": ChangeKind.UNDO.value}, columns=["plan_id", "undoes"])
    undos = _undos_of(rows)
    return _ledger(tables, _with_undos(plan_ids, undos), undos)


def read_whole_ledger(tables: TablesConfig, plans: Iterable[Mapping[str, Any]]) -> UndoLedger:
    """The same of every plan that was ever to be taken back; `plans` are the rows of ``reset_plans``."""
    undos = _undos_of(row for row in plans if row["kind"] == ChangeKind.UNDO)
    return _ledger(tables, _with_undos(undos, undos), undos)


def _undos_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """By plan, the ids of the plans in `rows` that undo it."""
    undos: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        undos[row["undoes"]].append(row["plan_id"])
    return undos


def _ledger(tables: TablesConfig, plan_ids: Collection[str], undos: Mapping[str, Sequence[str]]) -> UndoLedger:
    from acktrail.tables.delta.row_values import read_rows
    from acktrail.tables.delta.store import Tables

    if not plan_ids:
        return UndoLedger()
    columns = ["plan_id", "attempt", "group_id", "topic", "partition", "target_offset", "status", "verified_at"]
    rows = read_rows(Tables(tables), "reset_executions", {"plan_id": sorted(plan_ids)}, columns=columns)
    return UndoLedger(outcomes=_outcomes(rows), undos=undos)


def undo_request(
    plan: ResetPlan,
    *,
    topics: Sequence[str] = (),
    reason: str = "",
    requested_by: str = "",
    allow_moved_on: bool = False,
    allow_skip: bool = False,
) -> ResetRequest:
    """The reset that undoes a plan: start offsets only, of what it did. Delivery states cannot come back: Kafka has no
    request for them. `allow_moved_on`: also where the group moved on since."""
    return parse_request(
        {
            "groups": plan.group_ids,
            "topics": topics,
            "strategies": {StrategyKind.TO_SNAPSHOT.value: plan.plan_id},
            "allow_moved_on": allow_moved_on,
            "allow_skip": allow_skip,
            "reason": reason,
            "requested_by": requested_by,
        }
    )


def undo_offsets(
    tables: TablesConfig, plan: ResetPlan, topics: Sequence[TopicScope] = (), *, now_ms: int
) -> TargetOffsets:
    """Where each share partition of `plan` goes back to: where its group would have begun before, past the finished
    records at the start of its state. One that the plan did not change, or that was taken back before, has no offset,
    and a reason. The delivery states of single records cannot come back.

    Raises:
        ChangeRefused: the plan changed nothing, was taken back, or does not hold what `topics` names.
        ChangeInProgress: it, or a plan that takes it back, is being carried out or was not verified.
    """
    _check_named(plan, topics)
    ledger = read_ledger(tables, [plan.plan_id])
    audit = read_audit(tables, {"plan_id": [plan.plan_id, *ledger.undos.get(plan.plan_id, ())]})
    life = life_of(
        plan.plan_id,
        audit,
        now_ms=now_ms,
        is_refused=bool(plan.refusals),
        undone_by=ledger.undone_by(plan.plan_id),
        is_undone=ledger.is_undone(plan.plan_id),
    )
    life.after(Step.UNDO)
    if not ledger.done(plan.plan_id):
        text = f"plan {plan.plan_id} has no share partition that was verified as done"
        raise ChangeRefused("nothing_to_undo", text, hint=f"see acktrail reset show {plan.plan_id}")
    for undo in ledger.undos.get(plan.plan_id, ()):
        other = life_of(undo, audit, now_ms=now_ms)
        if other.standing in _OPEN:
            group = next(one for one in other.groups if one.standing is other.standing)
            raise ChangeInProgress(group.group_id, plan_id=undo, hint=f"settle it first: acktrail reset verify {undo}")
    return _offsets(plan, ledger)


def check_not_undone(tables: TablesConfig, plan: ResetPlan) -> None:
    """Pass when no other plan took back what the undo `plan` is to take back; any other plan passes.

    Raises:
        ChangeRefused: `already_undone`: it names share partition and plan.
    """
    if plan.undoes is None:
        return
    ledger = read_ledger(tables, [plan.undoes])
    before = ledger.taken_back(plan.undoes, but=plan.plan_id)
    mine = ledger.done(plan.plan_id)
    for row in plan.executable(partial=True):
        if row.key in before and row.key not in mine:
            text = f"{row.group_id} {row.name}: plan {before[row.key]} took it back already"
            raise ChangeRefused("already_undone", text, hint="nothing was sent")


def _offsets(plan: ResetPlan, ledger: UndoLedger) -> TargetOffsets:
    outcomes, before = ledger.outcomes[plan.plan_id], ledger.taken_back(plan.plan_id)
    found: dict[str, dict[tuple[str, int], TargetOffset]] = defaultdict(dict)
    for row in plan.partitions:
        status, target = outcomes.get(row.key, (None, None))
        found[row.group_id][row.topic, row.partition] = _given(row, status, target, before.get(row.key))
    return found


def _given(row: PartitionPlan, status: Status | None, target: int | None, undo: str | None) -> TargetOffset:
    start = row.start_offset if row.state is None else row.state.effective_start_offset
    reason = None if start is not None else _NEVER_STARTED
    if undo is not None:
        reason = f"plan {undo} took it back already"
    elif status in _NEVER_SENT:
        reason = f"the plan did not change it ({'not sent' if status is None else status.value})"
    elif not status.is_ok:  # type: ignore[union-attr]  # None is in `_NEVER_SENT`
        reason = f"the plan is not known to have done it ({status.value})"  # type: ignore[union-attr]  # as above
    return TargetOffset(offset=None if reason else start, reason=reason, topic_id=row.topic_id, left_at=target)


def _check_named(plan: ResetPlan, topics: Sequence[TopicScope]) -> None:
    known: dict[str, set[int]] = defaultdict(set)
    for row in plan.partitions:
        known[row.topic].add(row.partition)
    for scope in topics:
        odd = [index for index in scope.partitions or () if index not in known[scope.topic]]
        if odd or not known[scope.topic]:
            name = f"{scope.topic}:{odd[0]}" if odd else scope.topic
            raise ChangeRefused(
                "not_in_plan", f"plan {plan.plan_id} has no {name}", hint="acktrail reset show lists it"
            )


def _outcomes(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[Key, tuple[Status, int | None]]]:
    found: dict[str, dict[Key, tuple[Status, int | None]]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: (row["verified_at"], row["attempt"])):
        key = (row["group_id"], row["topic"], row["partition"])
        found[row["plan_id"]][key] = (Status(row["status"]), row["target_offset"])
    return found


def _with_undos(plan_ids: Iterable[str], undos: Mapping[str, Sequence[str]]) -> set[str]:
    wanted: set[str] = set()
    waiting = list(plan_ids)
    while waiting:
        plan_id = waiting.pop()
        if plan_id not in wanted:
            wanted.add(plan_id)
            waiting += undos.get(plan_id, ())
    return wanted
