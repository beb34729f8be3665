"""Asks about the share partitions of a plan once more before they are changed. Nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

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
from acktrail.model.records import ShareSnapshot, StateRecord
from acktrail.model.share_partition import SharePartition, state_partition_of


def collect_again(cluster: Cluster, plan: ResetPlan, *, now_ms: int) -> Collected:
    """The facts about every share partition of a plan as they are now. Raises as `gather.take_snapshot`."""
    parts = _parts(plan)
    described = described_offsets(cluster.admin, parts)
    groups, topics = describe_groups(cluster.admin, tuple(parts), {row.topic for row in plan.partitions})
    inquiry = FactsCollection(cluster=cluster, groups=groups, described=described, topics=topics, parts=parts)
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
    parts = {group_id: _parts(plan)[group_id]}
    groups, topics = describe_groups(cluster.admin, (group_id,), {topic for topic, _ in parts[group_id]})
    inquiry = FactsCollection(cluster=cluster, groups=groups, described={}, topics=topics, parts=parts)
    return inquiry.found(_states_since(inquiry, before.states), now_ms=now_ms).snapshot


def _states_since(inquiry: FactsCollection, before: StateFacts) -> StateFacts:
    """`before`, when no record of the share partitions came since; else what the state topic holds now."""
    if before.reason is not None:
        return before
    if before.topic_id is None:
        return inquiry.states()
    try:
        topic = StateTopic(inquiry.cluster.admin)
        if not topic.is_present or topic.topic_id != before.topic_id:
            return inquiry.states()
        records = _records_since(inquiry.cluster, topic, [key for _, _, key in inquiry.state_keys()], before.ends)
    except NotAuthorized as error:
        return StateFacts(reason=error.message)
    for record in records:
        if isinstance(record, ShareSnapshot) and record.is_initialization:
            text = f"another client reset group {record.key.group_id!r} a moment ago"
            raise PlanStale("state_moved", f"the plan is stale: {text}", hint="make a new plan: acktrail reset plan")
    return inquiry.states() if records else before


def _records_since(
    cluster: Cluster, topic: StateTopic, keys: Collection[SharePartition], ends: Mapping[int, int]
) -> list[StateRecord | None]:
    """The records of `keys` from `ends` (by state partition) on; None: one that cannot be decoded."""
    own = {state_partition_of(key, topic.partition_count) for key in keys}
    logs = topic.log_offsets(own)
    grown = {p: ends.get(p, 0) for p in own if (logs[p].last_stable_offset or 0) > ends.get(p, 0)}
    if not grown:
        return []
    records, _ = cluster.state_lookup(topic).read_from(keys, grown)
    return [addressed.record for _, addressed in records]


def _parts(plan: ResetPlan) -> dict[str, list[Part]]:
    found: dict[str, list[Part]] = {group.group_id: [] for group in plan.groups}
    for row in plan.partitions:
        found[row.group_id].append((row.topic, row.partition))
    return found
