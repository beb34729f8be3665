"""Plans to delete groups or their offsets, or to change configurations, from the cluster as it is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acktrail.errors import ConfigurationError
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.collect import describe_groups
from acktrail.group_changes.lifecycle.plan_status import account
from acktrail.group_changes.planning.group_change_plan import (
    GROUP_CHANGE_FORMAT,
    ConfigStep,
    GroupChange,
    GroupChangeKind,
    GroupChangePlan,
    KeptOffset,
    change_notices,
    config_notices,
    with_hashes,
)
from acktrail.group_changes.planning.notices import Notice, by_severity
from acktrail.times import new_run_id, now_ms


def plan_deletion(
    cluster: Cluster, groups: Sequence[str], topics: Sequence[str] = (), *, reason: str = "", requested_by: str = ""
) -> GroupChangePlan:
    """The plan to delete groups, or (`topics`) their offsets of topics."""
    ids = sorted(set(groups))
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
        for answer in cluster.admin.describe_group_offsets(ids)
    ]
    kind = GroupChangeKind.DELETE_OFFSETS if topics else GroupChangeKind.DELETE_GROUPS
    return _change_plan(cluster, kind, parts, reason, requested_by)


def plan_configs(
    cluster: Cluster,
    groups: Sequence[str],
    wanted: Mapping[str, str | None],
    *,
    reason: str = "",
    requested_by: str = "",
) -> GroupChangePlan:
    """The plan to set configurations of groups (None: unset). Raises ConfigurationError: a group's configuration may
    not be read."""
    parts: list[GroupChange] = []
    notices: list[Notice] = []
    for answer in cluster.admin.group_configs(sorted(set(groups))):
        if answer.configs is None:
            text = f"the configuration of group {answer.group_id!r} cannot be read: {answer.error}"
            raise ConfigurationError(text, hint="grant DESCRIBE_CONFIGS on the group")
        notices += config_notices(answer.group_id, wanted, answer.configs)
        steps = tuple(
            ConfigStep(name=name, before=answer.configs.get(name), is_own=name in answer.own, after=value)
            for name, value in sorted(wanted.items())
        )
        parts.append(GroupChange(group_id=answer.group_id, configs=steps))
    return _change_plan(cluster, GroupChangeKind.ALTER_CONFIGS, parts, reason, requested_by, notices)


def _change_plan(
    cluster: Cluster,
    kind: GroupChangeKind,
    parts: Sequence[GroupChange],
    reason: str,
    requested_by: str,
    notices: Sequence[Notice] = (),
) -> GroupChangePlan:
    groups, _ = describe_groups(cluster.admin, [part.group_id for part in parts])
    at_ms = now_ms()
    plan = GroupChangePlan(
        format=GROUP_CHANGE_FORMAT,
        version=1,
        plan_id=new_run_id(at_ms),
        kind=kind,
        created_at_ms=at_ms,
        created_by=account(),
        cluster_id=cluster.admin.cluster_id,
        release=cluster.admin.capabilities().release,
        reason=reason,
        requested_by=requested_by,
        groups=groups,
        parts=tuple(parts),
        notices=by_severity([*change_notices(kind, parts, groups), *notices]),
        preview_hash="",
        plan_hash="",
    )
    return with_hashes(plan)


def planned_again(cluster: Cluster, plan: GroupChangePlan) -> GroupChangePlan:
    """The same plan, made now."""
    if plan.kind is GroupChangeKind.ALTER_CONFIGS:
        wanted = {step.name: step.after for part in plan.parts for step in part.configs}
        return plan_configs(cluster, plan.group_ids, wanted)
    return plan_deletion(cluster, plan.group_ids, plan.parts[0].topics if plan.parts else ())
