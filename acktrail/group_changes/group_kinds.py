"""Kinds of changes of groups, whose outcome only the cluster shows: one request a group."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from acktrail.change.apply.leased_attempt import Attempt
from acktrail.change.audit.plan_life import OPEN, PLAN_AGAIN, ChangeStatus, GroupStatus, Status
from acktrail.change.change_kind import (
    ChangeKind,
    ChangeOutcome,
    ChangeRun,
    Execution,
    Row,
    Settled,
    kind_of,
    load_plan,
)
from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import PartitionPlan
from acktrail.change.plan.notices import refusal_error, unsaid
from acktrail.change.plan.snapshot_facts import StateFacts
from acktrail.change.plan.snapshot_reader import read_states
from acktrail.change.verify.partition_outcome import VerifiedPartition, verified_partition
from acktrail.change.verify.reset_verification import group_outcome, note_found, unsettled, until
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, OutcomeUnknown, PartlyDone, PlanStale
from acktrail.group_changes.group_change_plan import (
    GroupChange,
    GroupChangePlan,
    former_values,
    plan_former_configs,
    planned_again,
)
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import ChangeResult, ConfigsChange, Outcome, raise_unless_done
from acktrail.kafka.client.error_codes import GROUP_ID_NOT_FOUND, NONE
from acktrail.text_tables import table

_WAIT_S: Final = 5.0
"""How long a change may take to show: brokers learn of it one after the other."""


class _GroupKind(ChangeKind[GroupChangePlan]):
    """One request a group. Nothing is sent when the same plan, made now, has another preview."""

    plan_type = GroupChangePlan

    @abstractmethod
    def send(self, admin: ShareGroupAdmin, part: GroupChange) -> Sequence[ChangeResult]:
        """The request of one group."""

    @abstractmethod
    def shows(self, admin: ShareGroupAdmin, part: GroupChange) -> bool:
        """Whether the cluster is as the change would have it."""

    def text(self, plan: GroupChangePlan) -> str:
        rows = [
            (part.group_id, step.name, step.before, "group" if step.is_own else "default", step.after or "(default)")
            for part in plan.parts
            for step in part.configs
        ]
        return table(("GROUP", "NAME", "VALUE", "FROM", "NEW VALUE"), rows) if rows else ""

    def would_send(self, run: ChangeRun[GroupChangePlan]) -> Sequence[Row]:
        if run.is_done:
            return ()
        _check_preview(run)
        request = run.plan.strategy
        return [{"group": part.group_id, "request": request, **self.asked(part)} for part in run.plan.parts]

    def asked(self, part: GroupChange) -> Row:
        """What the request of one group names besides the group."""
        return {"topics": ", ".join(part.topics) or "all"}

    def execute(self, run: ChangeRun[GroupChangePlan]) -> Execution:
        plan, admin = run.plan, run.cluster.admin
        if run.is_done:
            return Execution(plan_id=plan.plan_id, attempt=0, results=())
        _check_refusals(plan)
        attempt, parts = Attempt(run.journal, plan, plan.group_ids), {part.group_id: part for part in plan.parts}

        def call(group_id: str) -> Sequence[ChangeResult] | AcktrailError:
            part = parts[group_id]
            request = {"request": plan.kind, "topics": part.topics, "configs": part.values}
            return attempt.call(group_id, request, partial(self.send, admin, part))

        with attempt.take_leases(run.check, run.requests):
            _check_preview(run)
            return attempt.send(plan.group_ids, call, run.cluster.kafka.request_timeout_ms, goes_on=True)

    def settle(self, run: ChangeRun[GroupChangePlan]) -> Settled:
        """Look at every group that is not settled: `done`, `not_done` or (without an answer, where it does not show: it
        may still arrive) `unknown`."""
        found, rows = unsettled(run), list[VerifiedPartition]()
        parts = {part.group_id: part for part in run.plan.parts}
        outcomes: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for one in found:
            if one.standing in OPEN:
                outcomes[one.group_id], mine = self._outcome(run.cluster, run.plan, parts[one.group_id], one)
                rows += mine
        return note_found(run, found, rows, outcomes)

    def _outcome(
        self, cluster: Cluster, plan: GroupChangePlan, part: GroupChange, one: GroupStatus
    ) -> tuple[tuple[str, Mapping[str, Any]], list[VerifiedPartition]]:
        """What became of a group, with the detail of the row about it, and of each share partition of a deletion."""
        is_answered = one.standing is ChangeStatus.UNVERIFIED
        shows = until(_WAIT_S, partial(self.shows, cluster.admin, part), is_late=operator.not_)
        rows = _settled(cluster, plan, part.group_id, is_answered=is_answered)
        if rows:
            return group_outcome(one, [Status(row["status"]) for row in rows]), rows
        return ("done" if shows else "not_done" if is_answered else "unknown", {}), rows

    def raise_unless_done(self, outcome: ChangeOutcome) -> None:
        """Also OutcomeUnknown where the broker answered done and it does not show."""
        execution = outcome.execution
        if execution is None:
            return
        answered = {result.group_id for result in execution.results if result.outcome is Outcome.DONE}
        hidden = [group for group in answered if outcome.groups.get(group) == ChangeStatus.FAILED]
        if hidden:
            text = f"the broker said that group {min(hidden)!r} was changed, and it does not show"
            raise OutcomeUnknown(text, data={"plan": outcome.plan_id})
        raise_unless_done(execution.results, operation="DELETE")
        if execution.not_sent:
            group, why = next(iter(execution.not_sent.items()))
            raise PartlyDone(f"group {group!r} was not changed: {why}")


class _GroupDeletion(_GroupKind):
    command = "acktrail groups delete"
    operation = "DELETE"
    is_undoable = True
    is_deletion = True

    def send(self, admin: ShareGroupAdmin, part: GroupChange) -> Sequence[ChangeResult]:
        return (admin.delete_group(part.group_id),)

    def shows(self, admin: ShareGroupAdmin, part: GroupChange) -> bool:
        (group,) = admin.describe_groups([part.group_id])
        return group.error_code == GROUP_ID_NOT_FOUND


class _OffsetDeletion(_GroupDeletion):
    command = "acktrail groups delete-offsets"

    def send(self, admin: ShareGroupAdmin, part: GroupChange) -> Sequence[ChangeResult]:
        return admin.delete_offsets(part.group_id, part.topics)

    def shows(self, admin: ShareGroupAdmin, part: GroupChange) -> bool:
        (answer,) = admin.describe_group_offsets([part.group_id])
        return not {offset.topic for offset in answer.offsets} & set(part.topics)


class _ConfigChange(_GroupKind):
    command = "acktrail groups config set"
    operation = "ALTER_CONFIGS"

    def plan_undo(self, cluster: Cluster, tables: TablesConfig, plan: GroupChangePlan, **asked: Any) -> GroupChangePlan:
        return plan_former_configs(cluster, tables, plan, **asked)

    def asked(self, part: GroupChange) -> Row:
        values = part.values.items()
        return {"configs": ", ".join(f"{name} unset" if value is None else f"{name}={value}" for name, value in values)}

    def send(self, admin: ShareGroupAdmin, part: GroupChange) -> Sequence[ChangeResult]:
        change = ConfigsChange(group_id=part.group_id, configs=tuple(part.values.items()))
        return (admin.alter_group_configs(change),)

    def shows(self, admin: ShareGroupAdmin, part: GroupChange) -> bool:
        (configs,) = admin.group_configs([part.group_id])
        return all(
            step.name not in configs.own
            if step.after is None
            else step.name in configs.own and (configs.configs or {}).get(step.name) == step.after
            for step in part.configs
        )


DELETE_GROUPS: Final[ChangeKind[Any]] = _GroupDeletion()
DELETE_OFFSETS: Final[ChangeKind[Any]] = _OffsetDeletion()
ALTER_CONFIGS: Final[ChangeKind[Any]] = _ConfigChange()


def _check_preview(run: ChangeRun[GroupChangePlan]) -> None:
    """Raise ChangeRefused when a rule forbids the plan, PlanStale when the same plan, made now, has another preview."""
    _check_refusals(run.plan)
    if run.plan.undoes is not None:
        undone = load_plan(run.journal.tables, run.plan.undoes)
        if former_values(undone) != {part.group_id: part.values for part in run.plan.parts}:
            raise PlanStale("edited_plan", f"it does not undo plan {run.plan.undoes}", hint=PLAN_AGAIN)
    now = planned_again(run.cluster, run.plan)
    if now.preview != run.plan.preview or unsaid(run.plan.notices, now.notices):
        raise PlanStale("preview_changed", "the changes differ from those that were shown", hint=PLAN_AGAIN)


def _check_refusals(plan: GroupChangePlan) -> None:
    if plan.refusals:
        raise refusal_error(plan.refusals, plan.groups, rights=kind_of(plan).rights(plan))


def _settled(cluster: Cluster, plan: GroupChangePlan, group_id: str, *, is_answered: bool) -> list[VerifiedPartition]:
    """What became of each share partition that was to be deleted: by the group's description, and by the state topic
    where it can be read."""
    rows = [row for row in plan.partitions if row.group_id == group_id]
    if not rows:
        return []
    (answer,) = cluster.admin.describe_group_offsets([group_id])
    is_told = answer.error_code in (NONE, GROUP_ID_NOT_FOUND)
    left = {(each.topic, each.partition) for each in answer.offsets} if is_told else None
    keys = [row.share_partition for row in rows if row.topic_id is not None]
    states = until(_WAIT_S, partial(read_states, cluster, keys), lambda found: any(found.states.values()))
    found = []
    for row in rows:
        status, error = _status(row, left, states, is_answered=is_answered)
        found.append(verified_partition(row, status, error, target_offset=None))
    return found


def _status(
    row: PartitionPlan, left: Collection[tuple[str, int]] | None, states: StateFacts, *, is_answered: bool
) -> tuple[Status, str | None]:
    if left is None:
        return Status.UNKNOWN, "the group cannot be described"
    if (row.topic, row.partition) in left:
        return (Status.FAILED, "the group still has it") if is_answered else (Status.UNKNOWN, "no answer came")
    if row.topic_id is None or states.reason is not None or row.share_partition in states.reasons:
        return Status.OK_BY_DESCRIPTION, None
    if states.states.get(row.share_partition) is not None:
        return Status.NOT_PERSISTED, "the state topic still has its state"
    return Status.OK, None
