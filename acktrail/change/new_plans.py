"""Plans made from the cluster as it is: once for a person, and again before they are approved or executed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from acktrail.change.audit.journal import read_audit
from acktrail.change.change_kind import kind_of, load_plan
from acktrail.change.cluster import Cluster
from acktrail.change.collection.collect import FactsCollection, described_offsets, select_groups, take_snapshot
from acktrail.change.collection.delivered_records import from_history, with_hidden, with_passed
from acktrail.change.collection.facts import Snapshot, TargetOffset, TargetOffsets
from acktrail.change.execution.other_requests import unanswered, unanswered_notices
from acktrail.change.lifecycle.plan_status import account, undo_offsets, undo_request, undoable
from acktrail.change.planning import reset_plan
from acktrail.change.planning.change_plan import ChangePlan, PartitionPlan, with_hash
from acktrail.change.planning.notices import Notice
from acktrail.change.planning.reset_rules import PlanCheck, plan_checks
from acktrail.change.request.offsets_csv import check_rows, offset_rows, with_named_groups
from acktrail.change.request.reset_request import ResetRequest, StrategyKind
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.times import new_run_id, now_ms


def make_plan(
    cluster: Cluster,
    request: ResetRequest,
    *,
    tables: TablesConfig | None = None,
    created_by: str | None = None,
    given: TargetOffsets | None = None,
    notices: Sequence[Notice] = (),
) -> reset_plan.ResetPlan:
    """The plan for a request and the cluster as it is now. `tables` are needed where offsets come from them (history,
    earlier plans), and for what branches know. A branch that has the offsets itself gives them (`given`), and
    `notices` about them. Raises ChangeRefused, MalformedFile: a file of offsets cannot be used. UnknownName: there is
    no such earlier plan."""
    request = with_named_groups(request)
    targets = _targets(cluster, tables, request) if given is None else given
    snapshot = take_snapshot(cluster, request, now_ms=now_ms(), given=targets)
    snapshot, checks = _counted(cluster, tables, request, snapshot)
    plan_id = new_run_id(snapshot.taken_at_ms)
    plan = reset_plan.build_plan(request, snapshot, checks, plan_id=plan_id, created_by=created_by or account())
    return with_hash(reset_plan.with_notices(plan, [*notices, *unanswered_now(tables, plan)]))


def plan_undo(cluster: Cluster, tables: TablesConfig, plan: ChangePlan, **asked: Any) -> ChangePlan:
    """The plan that takes back what `plan` did, as `asked` (the names of `undo_request`). Raises as `undo_offsets`;
    MalformedFile: no plan takes it back."""
    own = kind_of(plan).plan_undo(cluster, tables, plan, **asked)
    return own or make_plan(cluster, undo_request(undoable(plan), **asked), tables=tables)


def judged_again(
    cluster: Cluster, tables: TablesConfig, plan: reset_plan.ResetPlan, now: Snapshot, rows: Sequence[PartitionPlan]
) -> tuple[Notice, ...]:
    """Refusals where `plan`, made again from what is there now, is another for `rows`."""
    request = plan.request
    if request.strategy.kind in reset_plan.OWN_OFFSETS:
        given: TargetOffsets = reset_plan.own_offsets(plan)
    else:
        given = _targets(cluster, tables, request, but=plan.plan_id, groups=plan.group_ids) or {}
    found = _counted(cluster, tables, request, reset_plan.as_planned(plan, now, given))
    return reset_plan.differences(plan, rows, *found)


def _counted(
    cluster: Cluster, tables: TablesConfig | None, request: ResetRequest, snapshot: Snapshot
) -> tuple[Snapshot, tuple[PlanCheck, ...]]:
    """The checks of branches, and `snapshot` with what they and the numbers of a plan need besides."""
    topics = {topic.topic: topic for topic in snapshot.topics}
    checks = plan_checks(tables, snapshot.cluster.cluster_id, topics)
    snapshot = with_staying(cluster, snapshot, {name for check in checks for name in check.whole_topics})
    return with_passed(cluster, tables, request, with_hidden(cluster.admin, request, snapshot)), checks


def unanswered_now(tables: TablesConfig | None, plan: reset_plan.ResetPlan) -> list[Notice]:
    """The notices about other plans' requests for the share partitions of `plan` that may still arrive."""
    if tables is None or not plan.group_ids:
        return []
    from acktrail.tables.delta.store import Tables

    Tables(tables).begin()  # a plan may be the first thing that the tables have
    rows = read_audit(tables, {"group_id": list(plan.group_ids)})
    return list(unanswered_notices([row.key for row in plan.partitions], unanswered(rows, but=plan.plan_id)))


def _targets(
    cluster: Cluster,
    tables: TablesConfig | None,
    request: ResetRequest,
    *,
    but: str | None = None,
    groups: Sequence[str] | None = None,
) -> TargetOffsets | None:
    """The offsets that a file, the history or an earlier plan names; None: another strategy. `groups`: those that the
    request names. What the plan `but` took back is there still."""
    strategy = request.strategy
    if strategy.kind is StrategyKind.FROM_FILE:
        rows, groups = offset_rows(Path(strategy.source or "")), select_groups(cluster.admin, request)[0]
        counts = {topic.name: topic.partition_count for topic in cluster.admin.topics()}
        found = check_rows(rows, groups, counts)
        return {group: {part: TargetOffset(offset=at) for part, at in parts.items()} for group, parts in found.items()}
    if strategy.kind not in (StrategyKind.TO_SNAPSHOT, StrategyKind.TO_HISTORY):
        return None
    if tables is None:
        raise ConfigurationError("the tables are needed for this", hint="give --tables or set ACKTRAIL_TABLES")
    if strategy.kind is StrategyKind.TO_SNAPSHOT:
        undone = undoable(load_plan(tables, strategy.source or ""))
        return undo_offsets(tables, undone, request.topics, now_ms=now_ms(), but=but)
    named = select_groups(cluster.admin, request)[0] if groups is None else groups
    return from_history(cluster.admin, tables, named, strategy.moment_ms or 0)


def with_staying(cluster: Cluster, snapshot: Snapshot, wanted: Collection[str]) -> Snapshot:
    """`snapshot` with the other share partitions of its groups in the topics that are `wanted` whole. Raises as
    `take_snapshot`."""
    topics = {topic.topic: topic for topic in snapshot.topics}
    named = {facts.key for facts in snapshot.partitions}
    parts = {
        group: [
            (topic, index)
            for topic in sorted({name for own, name, _ in named if own == group}.intersection(wanted))
            for index in range(topics[topic].partition_count)
            if (group, topic, index) not in named
        ]
        for group in dict.fromkeys(group for group, _, _ in sorted(named))
    }
    if not any(parts.values()):
        return snapshot
    described = described_offsets(cluster.admin, parts)
    others = FactsCollection(cluster=cluster, groups=snapshot.groups, described=described, topics=topics, parts=parts)
    found = others.found(others.states(), now_ms=snapshot.taken_at_ms)
    return replace(snapshot, staying=found.partitions)
