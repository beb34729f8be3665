"""Whether the cluster is still what a plan was made from. Pure: compares the plan with what is found now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from acktrail.group_changes.collection.facts import GroupFacts, PartitionFacts, PartitionState, Snapshot, TopicFacts
from acktrail.group_changes.planning.notices import Notice, Severity
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan
from acktrail.model.batches import combine_state_batches
from acktrail.model.delivery import StateBatch

_READ_IS_MISSING: Final = "READ is missing: grant it to this principal"


def changes_since_plan(plan: ResetPlan, rows: Sequence[PartitionPlan], now: Snapshot) -> tuple[Notice, ...]:
    """Refusals for everything that is not as `plan` has it and matters to `rows`; none: it may be carried out.

    What may change: the log's end, a snapshot of the same state (a quiet shard writes some), a leader epoch, the
    group's epoch. Everything else makes the plan's numbers wrong. Rights are those of who asks now: READ on every group
    and topic of `rows`.
    """
    other = other_cluster(plan, now.cluster.cluster_id)
    if other is not None:
        return (other,)
    if now.cluster.state_topic_id != plan.cluster.state_topic_id and plan.cluster.state_topic_id is not None:
        return (_refusal("state_topic_changed", now.cluster.state_reason or "the state topic was recreated"),)
    if plan.cluster.resets_share_groups and not now.cluster.resets_share_groups:
        text = f"the brokers are of release {now.cluster.release} now, which cannot reset share groups"
        return (_refusal("unsupported_release", text),)
    groups = {group.group_id: group for group in now.groups}
    topics = {topic.topic: topic for topic in now.topics}
    wanted = {row.group_id for row in rows}
    found = [n for group in plan.groups if group.group_id in wanted for n in _group(group, groups[group.group_id])]
    found += _topics(rows, topics)
    current = {(facts.group_id, facts.topic, facts.partition): facts for facts in now.partitions}
    found += [notice for row in rows for notice in _partition(row, current[row.key])]
    return tuple(found)


def other_cluster(plan: ResetPlan, cluster_id: str) -> Notice | None:
    """The refusal of a plan that is not of the cluster `cluster_id`."""
    if cluster_id == plan.cluster.cluster_id:
        return None
    return _refusal("other_cluster", f"the plan is of cluster {plan.cluster.cluster_id}, this is cluster {cluster_id}")


def _refusal(rule: str, text: str, **about: object) -> Notice:
    return Notice(severity=Severity.REFUSAL, rule=rule, text=text, **about)  # type: ignore[arg-type]  # a notice's own fields


def _group(before: GroupFacts, now: GroupFacts) -> Iterator[Notice]:
    if now.members:
        who = ", ".join(repr(member) for member in now.members)
        yield _refusal("group_not_empty", f"a member joined the group: {who}", group_id=before.group_id)
    if now.rights is not None and "READ" not in now.rights:
        yield _refusal("unauthorized_group", _READ_IS_MISSING, group_id=before.group_id)
    elif (now.error_code, now.is_other_type) != (before.error_code, before.is_other_type):
        state = "is gone" if now.is_missing else (now.error or "is there now")
        yield _refusal("group_changed", f"the group {state}", group_id=before.group_id)


def _topics(rows: Iterable[PartitionPlan], topics: Mapping[str, TopicFacts]) -> Iterator[Notice]:
    for topic, (topic_id, count) in {row.topic: (row.topic_id, row.partition_count) for row in rows}.items():
        now = topics[topic]
        if now.rights is not None and "READ" not in now.rights:
            yield _refusal("unauthorized_topic", _READ_IS_MISSING, topic=topic)
        elif now.topic_id != topic_id:
            text = "the topic is gone" if now.topic_id is None else "the topic was deleted and recreated"
            yield _refusal("topic_recreated", text, topic=topic)
        elif now.partition_count != count:
            text = f"the topic had {count} partitions and has {now.partition_count}"
            yield _refusal("partition_count_changed", text, topic=topic)


def _partition(row: PartitionPlan, now: PartitionFacts) -> Iterator[Notice]:
    def moved(rule: str, text: str) -> Notice:
        return _refusal(rule, text, group_id=row.group_id, topic=row.topic, partition=row.partition)

    target = row.target_offset or 0
    if now.log_start_offset is None or now.log_end_offset is None:
        yield moved("log_unknown", f"the ends of the log are not known: {now.log_error}")
    elif now.log_start_offset > target:
        yield moved("log_start_moved", f"the log starts at {now.log_start_offset} now, after the target {target}")
    elif now.log_end_offset < target:
        yield moved("log_truncated", f"the log ends at {now.log_end_offset} now, before the target {target}")
    if now.start_offset != row.start_offset:
        yield moved("start_offset_moved", f"the start offset was {row.start_offset} and is {now.start_offset}")
    elif now.state_reason is None and row.state_reason is None and _content(now.state) != _content(row.state):
        yield moved("state_moved", "records were acknowledged, released or archived since the plan was made")
    elif (now.state_reason is None) != (row.state_reason is None):
        yield moved("state_moved", now.state_reason or "the state topic can be read now")


def _content(state: PartitionState | None) -> tuple[object, ...] | None:
    """The content of a state, without how often and by which leader it was written."""
    if state is None:
        return None
    batches = [
        StateBatch(first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count)
        for first, last, kind, count in state.batches
    ]
    combined = combine_state_batches(batches, (), state.start_offset)
    return state.start_offset, state.state_epoch, state.delivery_complete_count, combined
