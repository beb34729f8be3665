"""Deletion of groups and of their offsets, and changes of configurations: for the command line and scripts.

::

    plan_deletion, plan_configs -> execute_change (-> settle_change, after an unknown outcome)

Connection, journal and errors as in `api`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError, OutcomeUnknown, PlanStale
from acktrail.group_changes.api import admission_of, is_open, open_journal
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.execution.attempt import OpenRequests
from acktrail.group_changes.lifecycle.admission import account
from acktrail.group_changes.lifecycle.change_status import ChangeStatus
from acktrail.group_changes.planning.group_change_plan import (
    ConfigStep,
    GroupChange,
    GroupChangeKind,
    GroupChangePlan,
    KeptOffset,
    build_group_change_plan,
    config_notices,
)
from acktrail.times import new_run_id, now_ms

if TYPE_CHECKING:
    from acktrail.broker.changes import ChangeResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOutcome:
    """The broker's answers, and how each group stands after verification."""

    plan_id: str
    results: tuple[ChangeResult, ...]
    outcomes: Mapping[str, str]


def plan_deletion(
    cluster: Cluster, groups: Sequence[str], topics: Sequence[str] = (), *, reason: str = "", requested_by: str = ""
) -> GroupChangePlan:
    """The plan to delete groups, or (`topics`) their offsets of topics.

    Raises:
        Unreachable, RetryableError, ConfigurationError: the cluster does not answer.
    """
    from acktrail.group_changes.collection.collect import describe_groups

    admin = cluster.admin
    ids = tuple(sorted(set(groups)))
    facts, _ = describe_groups(admin, ids)
    parts = [
        GroupChange(
            group_id=answer.group_id,
            topics=tuple(dict.fromkeys(topics)),
            offsets=tuple(
                KeptOffset(topic=o.topic, partition=o.partition, start_offset=o.start_offset, lag=o.lag)
                for o in answer.offsets
                if not topics or o.topic in topics
            ),
        )
        for answer in admin.describe_group_offsets(ids)
    ]
    kind = GroupChangeKind.DELETE_OFFSETS if topics else GroupChangeKind.DELETE_GROUPS
    return build_group_change_plan(kind, parts, facts, about=_about(cluster, reason, requested_by))


def plan_configs(
    cluster: Cluster,
    groups: Sequence[str],
    wanted: Mapping[str, str | None],
    *,
    reason: str = "",
    requested_by: str = "",
) -> GroupChangePlan:
    """The plan to set configurations of groups (None: unset).

    Raises:
        ConfigurationError: a group's configuration may not be read.
        Unreachable, RetryableError: the cluster does not answer.
    """
    from acktrail.group_changes.collection.collect import describe_groups

    admin = cluster.admin
    ids = tuple(sorted(set(groups)))
    facts, _ = describe_groups(admin, ids)
    parts, notices = [], []
    for answer in admin.group_configs(ids):
        if answer.configs is None:
            raise ConfigurationError(
                f"the configuration of group {answer.group_id!r} cannot be read: {answer.error}",
                hint="grant DESCRIBE_CONFIGS on the group",
            )
        notices += list(config_notices(answer.group_id, wanted, answer.configs))
        steps = tuple(
            ConfigStep(name=name, before=answer.configs.get(name), is_own=name in answer.own, after=value)
            for name, value in sorted(wanted.items())
        )
        parts.append(GroupChange(group_id=answer.group_id, configs=steps))
    about = _about(cluster, reason, requested_by)
    return build_group_change_plan(GroupChangeKind.ALTER_CONFIGS, parts, facts, about=about, more=notices)


def execute_change(
    cluster: Cluster, tables: TablesConfig, plan: GroupChangePlan, *, expect: str | None = None
) -> ChangeOutcome:
    """Execute a deletion or a change of configurations, verified and audited. The plan is stored first. A plan that was
    done is not sent again.

    `expect` is the preview's hash that a person saw: with another one nothing is sent.

    Raises:
        ChangeRefused (PlanStale when the preview is another), ChangeInProgress: nothing was sent.
        RetryableError, ConfigurationError: cluster or tables do not answer; nothing was sent.
        OutcomeUnknown: a request left, and its outcome is not known.
    """
    from acktrail.group_changes.execution.execute_group_change import execute_group_change

    if expect is not None and expect != plan.preview_hash:
        raise PlanStale("preview_changed", "what would be changed is not what was shown", hint="look at it again")
    journal = open_journal(tables, plan)
    admission = admission_of(journal, plan)
    journal.write_plan(plan)
    results: Sequence[ChangeResult] = ()
    if admission.check_apply().standing is not ChangeStatus.DONE:
        results = execute_group_change(
            cluster, journal, plan, lambda: _planned_again(cluster, plan), check=admission.check_apply
        )
    standings = {found.group_id: found.standing.value for found in journal.standings({"plan_id": plan.plan_id})}
    return ChangeOutcome(plan_id=plan.plan_id, results=tuple(results), outcomes=standings)


def recheck_change(cluster: Cluster, tables: TablesConfig, plan: GroupChangePlan) -> None:
    """Pass when `execute_change` would send the plan now, or has nothing left to send. Raises as it would."""
    from acktrail.group_changes.execution.execute_group_change import check_preview

    if admission_of(open_journal(tables, plan), plan).check_apply().standing is not ChangeStatus.DONE:
        check_preview(plan, lambda: _planned_again(cluster, plan))


def settle_change(cluster: Cluster, tables: TablesConfig, plan: GroupChangePlan) -> dict[str, str]:
    """Settle a change whose outcome was not noted: outcome by group.

    Raises:
        ChangeInProgress: another living process executes it.
        OutcomeUnknown: a request was sent, and cluster or tables do not answer: it is not settled.
    """
    from acktrail.group_changes.execution.execute_group_change import settle_group_change

    journal = open_journal(tables, plan)
    with OpenRequests(plan.plan_id) as sent:
        if is_open(journal, plan):
            sent.add()
        found = settle_group_change(cluster, journal, plan)
        sent.settled()
    return found


def raise_unless_changed(change: ChangeOutcome) -> None:
    """Pass when everything was done and shows.

    Raises:
        OutcomeUnknown: the outcome is not known, or the broker answered done and it does not show.
        PartlyDone, NotAuthorized, GroupNotEmpty, UnknownName ...: the broker's answer.
    """
    from acktrail.broker.changes import Outcome, raise_unless_done

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


def _about(cluster: Cluster, reason: str, requested_by: str) -> dict[str, Any]:
    at_ms = now_ms()
    return {
        "plan_id": new_run_id(at_ms),
        "created_at_ms": at_ms,
        "created_by": account(),
        "cluster_id": cluster.admin.cluster_id,
        "release": cluster.admin.capabilities().release,
        "reason": reason,
        "requested_by": requested_by,
    }


def _planned_again(cluster: Cluster, plan: GroupChangePlan) -> GroupChangePlan:
    """The same plan, made now."""
    if plan.kind is GroupChangeKind.ALTER_CONFIGS:
        wanted = {step.name: step.after for part in plan.parts for step in part.configs}
        return plan_configs(cluster, plan.group_ids, wanted)
    return plan_deletion(cluster, plan.group_ids, plan.parts[0].topics if plan.parts else ())
