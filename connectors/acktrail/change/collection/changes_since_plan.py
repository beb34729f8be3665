"""Whether the cluster is still what a plan was made from. Pure: compares the plan with what is found now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acktrail.change.collection.facts import GroupFacts, PartitionFacts, PartitionState, Snapshot, TopicFacts
from acktrail.change.planning.change_plan import PartitionPlan
from acktrail.change.planning.notices import Notice, Severity
from acktrail.change.planning.reset_plan import ResetPlan
from acktrail.model.batches import StateBatch, combine_state_batches

_Change = Iterator[tuple[str, str]]
"""Rule and text of refusals."""


def changes_since_plan(plan: ResetPlan, rows: Sequence[PartitionPlan], now: Snapshot) -> tuple[Notice, ...]:
    """Refusals for everything that is not as `plan` has it and matters to `rows`; none: it may be carried out.

    What may change: the log's end, a snapshot of the same state (a quiet shard writes some), a leader epoch, the
    group's epoch. Everything else makes the plan's numbers wrong. Rights are those of who asks now: READ on every group
    and topic of `rows`.
    """
    other = next(_on_cluster(plan, now), None)
    if other is not None:
        return (Notice(Severity.REFUSAL, *other),)
    groups = {group.group_id: group for group in now.groups}
    topics = {topic.topic: topic for topic in now.topics}
    current = {facts.key: facts for facts in now.partitions}
    wanted = {row.group_id for row in rows}
    found = [
        Notice(Severity.REFUSAL, *one, group_id=group.group_id)
        for group in plan.groups
        if group.group_id in wanted
        for one in _on_group(group, groups[group.group_id])
    ]
    for topic, row in {row.topic: row for row in rows}.items():
        found += [Notice(Severity.REFUSAL, *one, topic=topic) for one in _on_topic(row, topics[topic])]
    for row in rows:
        changes = _on_partition(row, current[row.key])
        found += [Notice(Severity.REFUSAL, rule, text, *row.key) for rule, text in changes]
    return tuple(found)


def _on_cluster(plan: ResetPlan, now: Snapshot) -> _Change:
    if now.cluster.cluster_id != plan.cluster_id:
        yield "other_cluster", f"the plan is of cluster {plan.cluster_id}, this is cluster {now.cluster.cluster_id}"
    if now.cluster.state_topic_id != plan.cluster.state_topic_id and plan.cluster.state_topic_id is not None:
        yield "state_topic_changed", now.cluster.state_reason or "the state topic was recreated"
    if plan.cluster.resets_share_groups and not now.cluster.resets_share_groups:
        release = now.cluster.release
        yield "unsupported_release", f"the brokers are of release {release} now, which cannot reset share groups"


def _on_group(before: GroupFacts, now: GroupFacts) -> _Change:
    if now.members:
        yield "group_not_empty", f"a member joined the group: {', '.join(map(repr, now.members))}"
    if now.rights is not None and "READ" not in now.rights:
        yield "unauthorized_group", "READ is missing: grant it to this principal"
    elif not now.error_code and (now.group_epoch or 0) < (before.group_epoch or 0):
        yield "group_recreated", "the group was deleted since the plan was made, and made again"
    elif (now.error_code, now.is_other_type) != (before.error_code, before.is_other_type):
        yield "group_changed", f"the group {'is gone' if now.is_missing else (now.error or 'is there now')}"


def _on_topic(row: PartitionPlan, now: TopicFacts) -> _Change:
    if now.rights is not None and "READ" not in now.rights:
        yield "unauthorized_topic", "READ is missing: grant it to this principal"
    elif now.topic_id != row.topic_id:
        yield "topic_recreated", f"the topic {'is gone' if now.topic_id is None else 'was deleted and recreated'}"
    elif now.partition_count != row.partition_count:
        text = f"the topic had {row.partition_count} partitions and has {now.partition_count}"
        yield "partition_count_changed", text


def _on_partition(row: PartitionPlan, now: PartitionFacts) -> _Change:
    target = row.target_offset or 0
    if now.log_start_offset is None or now.log_end_offset is None:
        yield "log_unknown", f"the ends of the log are not known: {now.log_error}"
    elif now.log_start_offset > target:
        yield "log_start_moved", f"the log starts at {now.log_start_offset} now, after the target {target}"
    elif now.log_end_offset < target:
        yield "log_truncated", f"the log ends at {now.log_end_offset} now, before the target {target}"
    before = row.state
    if before is not None and now.deleted_at is not None and now.deleted_at > before.record_offset:
        yield "state_recreated", "its state was deleted since the plan was made, and may have been made again"
    elif now.start_offset != row.start_offset:
        yield "start_offset_moved", f"the start offset was {row.start_offset} and is {now.start_offset}"
    elif (now.state_reason is None) != (row.state_reason is None):
        yield "state_moved", now.state_reason or "the state topic can be read now"
    elif now.state_reason is None and _content(now.state) != _content(row.state):
        yield "state_moved", "records were acknowledged, released or archived since the plan was made"


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
