"""Executes a plan to delete groups or their offsets, or to change configurations, and verifies it."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.broker.changes import ChangeResult, ConfigsChange, Outcome, raise_unless_done
from acktrail.broker.client.error_codes import GROUP_ID_NOT_FOUND, NONE
from acktrail.errors import AcktrailError, OutcomeUnknown, PlanStale
from acktrail.group_changes.audit.journal import Journal
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.collect import read_states
from acktrail.group_changes.collection.collect_group_change import planned_again
from acktrail.group_changes.collection.facts import StateFacts
from acktrail.group_changes.execution.attempt import Attempt, OpenRequests
from acktrail.group_changes.lifecycle.plan_life import OPEN, ChangeStatus, GroupStatus, Status
from acktrail.group_changes.planning.group_change_plan import GroupChange, GroupChangeKind, GroupChangePlan
from acktrail.group_changes.planning.notices import refusal_error
from acktrail.group_changes.planning.plan import PartitionPlan
from acktrail.group_changes.verification.verify import check_free, closing, group_outcome, until

if TYPE_CHECKING:
    from acktrail.group_changes.api import ChangeOutcome

_WAIT_S: Final = 5.0
"""How long a change may take to show: brokers learn of it one after the other."""


def execute_group_change(
    cluster: Cluster, journal: Journal, plan: GroupChangePlan, *, check: Callable[[], object] | None = None
) -> tuple[ChangeResult, ...]:
    """Send what `plan` holds, unless the same plan, made now, has another preview. Then verify and give the
    leases back. One result for each group or topic. `check` and errors as `execute_reset`."""
    _check_refusals(plan)
    attempt = Attempt(journal, plan, plan.group_ids)
    results: list[ChangeResult] = []
    requests = OpenRequests(plan.plan_id)
    with requests:
        with attempt.take_leases(check, requests):
            check_preview(cluster, plan)
            for part in plan.parts:
                request = {"request": plan.kind.value, "topics": part.topics, "configs": _values(part)}
                send = partial(_send, cluster.admin, plan.kind, part)
                answer = attempt.call(part.group_id, request, send, detail_of=_answer_detail)
                if isinstance(answer, AcktrailError):
                    raise answer
                results += answer
        settle_group_change(cluster, journal, plan)
        requests.out = 0
    return tuple(results)


def check_preview(cluster: Cluster, plan: GroupChangePlan) -> None:
    """Raise ChangeRefused when a rule forbids `plan`, PlanStale when the same plan, made now, has another preview."""
    _check_refusals(plan)
    if planned_again(cluster, plan).preview_hash != plan.preview_hash:
        raise PlanStale("preview_changed", "what would be changed is not what was shown", hint="look at it again")


def _check_refusals(plan: GroupChangePlan) -> None:
    if plan.refusals:
        raise refusal_error(plan.refusals, plan.groups, operation=plan.operation)


def settle_group_change(cluster: Cluster, journal: Journal, plan: GroupChangePlan) -> dict[str, str]:
    """Look at every group of `plan` that is not settled, note what is found, and give its lease back: `done`,
    `not_done` or (without an answer, where it does not show: it may still arrive) `unknown` by group. Raises as
    `verify_reset`."""
    found = journal.standings({"plan_id": plan.plan_id})
    unsettled = [one for one in found if one.lease is not None or one.standing in OPEN]
    check_free(unsettled, plan.plan_id, journal.now_ms)
    open_groups = {one.group_id: one for one in unsettled if one.standing in OPEN}
    outcomes: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for part in plan.parts:
        if part.group_id in open_groups:
            outcomes[part.group_id] = _outcome(cluster, journal, plan, part, open_groups[part.group_id])
    entries = closing(plan, unsettled, outcomes)
    if entries:
        journal.note(entries)
    return {group_id: outcome for group_id, (outcome, _) in outcomes.items()}


def _outcome(
    cluster: Cluster, journal: Journal, plan: GroupChangePlan, part: GroupChange, one: GroupStatus
) -> tuple[str, Mapping[str, Any]]:
    """What became of a group, with the detail of the row about it; of a deletion, each share partition is stored."""
    is_answered = one.standing is ChangeStatus.UNVERIFIED
    shows = until(_WAIT_S, partial(_is_done, cluster.admin, plan.kind, part), is_late=operator.not_)
    rows = _settled(cluster, plan, part.group_id, is_answered=is_answered)
    if not rows:
        return "done" if shows else "not_done" if is_answered else "unknown", {}
    verified_at = dt.datetime.fromtimestamp(journal.now_ms / 1000, dt.UTC)
    at = {"plan_id": plan.plan_id, "attempt": one.attempt, "verified_at": verified_at}
    journal.write_executions({**row, **at} for row in rows)
    return group_outcome(one, [Status(row["status"]) for row in rows])


def _settled(cluster: Cluster, plan: GroupChangePlan, group_id: str, *, is_answered: bool) -> list[dict[str, Any]]:
    """What became of each share partition that was to be deleted, as rows of ``reset_executions`` without attempt and
    time: by the group's description, and by the state topic where it can be read."""
    rows = [row for row in plan.partitions if row.group_id == group_id]
    if not rows:
        return []
    (answer,) = cluster.admin.describe_group_offsets([group_id])
    is_told = answer.error_code in (NONE, GROUP_ID_NOT_FOUND)
    left = {(each.topic, each.partition) for each in answer.offsets} if is_told else None
    keys = [row.share_partition for row in rows if row.topic_id is not None]
    states = until(_WAIT_S, partial(read_states, cluster, keys), lambda found: any(found.states.values()))
    names = ("group_id", "topic", "topic_id", "partition")
    found = []
    for row in rows:
        status, error = _status(row, left, states, is_answered=is_answered)
        about = {name: getattr(row, name) for name in names}
        found.append({**about, "target_offset": None, "status": status.value, "error": error, "error_code": None})
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


def raise_unless_changed(change: ChangeOutcome) -> None:
    """Pass when everything was done and shows. Raises as `raise_unless_done`; OutcomeUnknown also where the broker
    answered done and it does not show."""
    answered = {result.group_id for result in change.results if result.outcome is Outcome.DONE}
    hidden = [group for group in answered if change.outcomes.get(group) == ChangeStatus.FAILED]
    if hidden:
        text = f"the broker said that group {min(hidden)!r} was changed, and it does not show"
        hint = f"acktrail reset verify {change.plan_id} looks again"
        raise OutcomeUnknown(text, hint=hint, data={"plan": change.plan_id})
    try:
        raise_unless_done(change.results, operation="DELETE")
    except OutcomeUnknown as error:
        hint = f"acktrail reset show {change.plan_id} lists what was found; {error.hint}".removesuffix("; ")
        raise OutcomeUnknown(error.message, hint=hint, data={**error.data, "plan": change.plan_id}) from error


def _answer_detail(results: Sequence[ChangeResult]) -> dict[str, Any]:
    failed = [r for r in results if r.outcome is not Outcome.DONE]
    return {"failed": [[r.topic, r.outcome.value, r.error_code, r.error, r.advice] for r in failed]}


def _send(admin: ShareGroupAdmin, kind: GroupChangeKind, part: GroupChange) -> Sequence[ChangeResult]:
    match kind:
        case GroupChangeKind.DELETE_GROUPS:
            return (admin.delete_group(part.group_id),)
        case GroupChangeKind.DELETE_OFFSETS:
            return admin.delete_offsets(part.group_id, part.topics)
        case GroupChangeKind.ALTER_CONFIGS:
            change = ConfigsChange(group_id=part.group_id, configs=tuple(_values(part).items()))
            return (admin.alter_group_configs(change),)


def _values(part: GroupChange) -> dict[str, str | None]:
    return {step.name: step.after for step in part.configs}


def _is_done(admin: ShareGroupAdmin, kind: GroupChangeKind, part: GroupChange) -> bool:
    """Whether the cluster is as the change would have it."""
    if kind is GroupChangeKind.DELETE_GROUPS:
        (group,) = admin.describe_groups([part.group_id])
        return group.error_code == GROUP_ID_NOT_FOUND
    if kind is GroupChangeKind.DELETE_OFFSETS:
        (answer,) = admin.describe_group_offsets([part.group_id])
        return not {offset.topic for offset in answer.offsets} & set(part.topics)
    (configs,) = admin.group_configs([part.group_id])
    return all(
        step.name not in configs.own
        if step.after is None
        else step.name in configs.own and (configs.configs or {}).get(step.name) == step.after
        for step in part.configs
    )
