"""Plans to delete groups or their offsets, or to change configurations, from the cluster as it is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from acktrail.change.cluster import Cluster
from acktrail.change.collection.collect import cluster_facts, describe_groups, described_offsets
from acktrail.change.collection.facts import StateFacts, TargetOffset, TargetOffsets
from acktrail.change.groups.group_change_plan import (
    ConfigStep,
    GroupChange,
    GroupChangeKind,
    GroupChangePlan,
    change_notices,
    config_notices,
)
from acktrail.change.lifecycle.plan_status import account
from acktrail.change.new_plans import plan_with_facts
from acktrail.change.planning.notices import Notice, Severity, by_severity
from acktrail.change.planning.plan_file import with_hash
from acktrail.change.request.reset_request import ResetRequest, Strategy, StrategyKind, parse_duration
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.descriptions import TopicPartition
from acktrail.times import new_run_id, now_ms

_AUTO_RESET: Final = "share.auto.offset.reset"
_BY_DURATION: Final = "by_duration:"
_OF_RECORDS: Final = frozenset(
    {"archived_again", "delivered_again", "skips", "passed_unknown"}
    | {"offsets_not_records", "without_state", "unanswered_request", "hidden_topic", "topics_unseen"}
)
"""Rules about a reset to where the group would begin that hold for a deletion, too."""


def plan_deletion(
    cluster: Cluster,
    groups: Sequence[str],
    topics: Sequence[str] = (),
    *,
    reason: str = "",
    requested_by: str = "",
    tables: TablesConfig | None = None,
) -> GroupChangePlan:
    """The plan to delete groups, or (`topics`) their offsets of topics. To the records it does what a reset does to
    where ``share.auto.offset.reset`` lets the groups begin now. `tables`: for what lies below the start offsets."""
    ids, names = sorted(set(groups)), tuple(dict.fromkeys(topics))
    at_ms = now_ms()
    given, notices = _beginnings(cluster.admin, ids, names, at_ms)
    request = ResetRequest(
        strategy=Strategy(kind=StrategyKind.AFTER_DELETION),
        groups=tuple(ids),
        all_topics=not topics,
        allow_skip=True,
        without_state=True,
    )
    reset, snapshot = plan_with_facts(cluster, request, tables=tables, given=given)
    kind = GroupChangeKind.DELETE_OFFSETS if topics else GroupChangeKind.DELETE_GROUPS
    parts = [GroupChange(group_id=group_id, topics=names) for group_id in ids]
    notices += [each for each in reset.notices if each.rule in _OF_RECORDS]
    notices += change_notices(kind, parts, snapshot.groups, snapshot.partitions)
    about = {"reason": reason, "requested_by": requested_by, "groups": snapshot.groups, "cluster": snapshot.cluster}
    records = {"partitions": reset.partitions, "totals": reset.totals}
    return _plan(kind, at_ms, parts=tuple(parts), notices=by_severity(notices), **about, **records)


def _plan(kind: GroupChangeKind, at_ms: int, **more: Any) -> GroupChangePlan:
    strategy, plan_id = kind.value.replace("_", "-"), new_run_id(at_ms)
    plan = GroupChangePlan(
        kind=kind, strategy=strategy, plan_id=plan_id, created_at_ms=at_ms, created_by=account(), **more
    )
    return with_hash(plan)


def _beginnings(
    admin: ShareGroupAdmin, ids: Sequence[str], topics: Sequence[str], at_ms: int
) -> tuple[TargetOffsets, list[Notice]]:
    """Where each share partition that a group has, of `topics` alone, would begin now without a state; and notices."""
    settings = {one.group_id: (one.configs or {}).get(_AUTO_RESET) for one in admin.group_configs(ids)}
    found: dict[str, dict[tuple[str, int], TargetOffset]] = {}
    notices = []
    for group_id, offsets in described_offsets(admin, ids).items():
        setting = settings[group_id]
        parts = [part for part in offsets if not topics or part[0] in topics]
        places = [TopicPartition(topic=topic, partition=number) for topic, number in parts]
        found[group_id] = dict(zip(parts, _places(admin, places, setting, at_ms), strict=True))
        if parts:
            text = f"should it come back, {_AUTO_RESET}={setting} decides where it begins: now at the new start offsets"
            if setting is None:
                text = f"where it begins should it come back is not known: {_AUTO_RESET} may not be read"
            notices.append(Notice(Severity.WARNING, "begins_again", text, group_id=group_id))
    return found, notices


def _places(
    admin: ShareGroupAdmin, places: Sequence[TopicPartition], setting: str | None, at_ms: int
) -> list[TargetOffset]:
    """The offset that a setting names in each of `places`."""
    logs = admin.list_offsets(places)
    if setting is not None and setting.startswith(_BY_DURATION):
        moment_ms = max(0, at_ms - parse_duration(setting.removeprefix(_BY_DURATION)))
        times = admin.offsets_at(places, moment_ms)
        found = [log.high_watermark if at.offset is None else at.offset for at, log in zip(times, logs, strict=True)]
    elif setting is None:
        return [TargetOffset(reason=f"{_AUTO_RESET} of the group may not be read")] * len(places)
    else:
        found = [log.log_start_offset if setting == "earliest" else log.high_watermark for log in logs]
    return [TargetOffset(offset=offset) for offset in found]


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
    groups_found, _ = describe_groups(cluster.admin, [part.group_id for part in parts])
    notices += change_notices(GroupChangeKind.ALTER_CONFIGS, parts, groups_found)
    about = {"reason": reason, "requested_by": requested_by, "groups": groups_found}
    return _plan(
        GroupChangeKind.ALTER_CONFIGS,
        now_ms(),
        cluster=cluster_facts(cluster.admin, StateFacts()),
        parts=tuple(parts),
        notices=by_severity(notices),
        **about,
    )


def planned_again(cluster: Cluster, plan: GroupChangePlan) -> GroupChangePlan:
    """The same plan, made now."""
    if plan.kind == GroupChangeKind.ALTER_CONFIGS:
        return plan_configs(cluster, plan.group_ids, plan.parts[0].values if plan.parts else {})
    return plan_deletion(cluster, plan.group_ids, plan.parts[0].topics if plan.parts else ())
