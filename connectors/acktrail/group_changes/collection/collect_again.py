"""Asks about the share partitions of a plan once more before they are changed. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from acktrail.broker.state.state_topic import StateTopic
from acktrail.errors import NotAuthorized, PlanStale
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.collect import (
    Collected,
    FactsCollection,
    Part,
    describe_groups,
    described_offsets,
)
from acktrail.group_changes.collection.facts import Snapshot
from acktrail.group_changes.collection.partition_states import StateFacts
from acktrail.group_changes.planning.plan import ResetPlan
from acktrail.model.records import ShareSnapshot
from acktrail.model.share_partition import state_partition_of


def collect_again(cluster: Cluster, plan: ResetPlan, *, now_ms: int) -> Collected:
    """The facts about every share partition of a plan as they are now. Raises as `collect.take_snapshot`."""
    inquiry = _inquiry(cluster, plan, plan.group_ids, plan.group_ids)
    return inquiry.found(inquiry.states(), now_ms=now_ms)


def collect_group_again(
    cluster: Cluster, plan: ResetPlan, group_id: str, before: Collected, *, now_ms: int
) -> Snapshot:
    """The facts about one group of a plan right before its request is sent.

    The state topic is read again only where it grew since `before`; start offsets are described last. Costs some
    requests on a connection that is open, so that another client has little time to come between.

    Raises:
        PlanStale: another client reset the group since `before`, even to where it was. Else as `collect_again`.
    """
    inquiry = _inquiry(cluster, plan, (group_id,), ())
    return inquiry.found(_states_since(inquiry, before.states), now_ms=now_ms).snapshot


def _states_since(inquiry: FactsCollection, before: StateFacts) -> StateFacts:
    """`before`, when no record of the share partitions came since; else what the state topic holds now."""
    if before.reason is not None:
        return before
    keys = inquiry.keys()
    try:
        topic = StateTopic(inquiry.cluster.admin)
        if before.topic_id is None or not topic.is_present or topic.topic_id != before.topic_id:
            return inquiry.states()
        own = {state_partition_of(key, topic.partition_count) for key in keys}
        ends = {p: log.last_stable_offset or 0 for p, log in topic.log_offsets(own).items()}
        grown = {p: before.ends.get(p, 0) for p in own if ends[p] > before.ends.get(p, 0)}
        records = inquiry.cluster.state_lookup(topic).read_from(keys, grown)[0] if grown else []
    except NotAuthorized as error:
        return StateFacts(reason=error.message)
    for _, addressed in records:
        record = addressed.record
        if isinstance(record, ShareSnapshot) and record.is_initialization:
            text = f"another client reset group {record.key.group_id!r} a moment ago"
            raise PlanStale("state_moved", f"the plan is stale: {text}", hint="make a new plan: acktrail reset plan")
    return inquiry.states() if records else before


def _inquiry(cluster: Cluster, plan: ResetPlan, group_ids: Sequence[str], described: Iterable[str]) -> FactsCollection:
    """The questions about groups of a plan; those in `described` are described at once, the others later."""
    parts: dict[str, list[Part]] = {group_id: [] for group_id in group_ids}
    for row in plan.partitions:
        if row.group_id in parts:
            parts[row.group_id].append((row.topic, row.partition))
    offsets = described_offsets(cluster.admin, described)
    groups, topics = describe_groups(cluster.admin, group_ids, {topic for some in parts.values() for topic, _ in some})
    return FactsCollection(cluster=cluster, groups=groups, described=offsets, topics=topics, parts=parts)
