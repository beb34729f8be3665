"""Takes the snapshot that a plan is made from, by asking the brokers, and again before a request is sent. Changes
nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from acktrail.change.audit.plan_life import PLAN_AGAIN
from acktrail.change.cluster import Cluster
from acktrail.change.plan.reset_plan import ResetPlan
from acktrail.change.plan.snapshot_facts import (
    ClusterFacts,
    GroupFacts,
    PartitionFacts,
    PartitionState,
    Snapshot,
    StateFacts,
    TargetOffset,
    TargetOffsets,
    TopicFacts,
)
from acktrail.change.request.reset_request import OWN_SCOPE, ResetRequest, StrategyKind, groups_among, is_in
from acktrail.errors import NotAuthorized, PlanStale, near_names
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.error_codes import GROUP_ID_NOT_FOUND, NONE, UNKNOWN_TOPIC_OR_PARTITION
from acktrail.kafka.descriptions import ShareOffset, TopicPartition
from acktrail.kafka.log_reader import StateTopic
from acktrail.kafka.state_lookup import PartitionReading, StateLookup
from acktrail.model.records import ShareSnapshot
from acktrail.model.share_partition import STATE_TOPIC, GroupId, SharePartition, TopicId, state_partition_of

_OTHER_TYPES: Final = ("classic", "consumer", "streams")
_MOST_COMPARED: Final = 20
"""Unknown names that are compared with all others: each comparison takes milliseconds."""
_AT_A_MOMENT: Final = frozenset({StrategyKind.TO_DATETIME, StrategyKind.BY_DURATION})

Part = tuple[str, int]
"""Topic and partition."""
Offsets = Mapping[Part, ShareOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsCollection:
    """Reads the facts about the share partitions `parts` of groups. `described`: what each group has initialized."""

    cluster: Cluster
    groups: tuple[GroupFacts, ...]
    described: Mapping[str, Offsets]
    topics: Mapping[str, TopicFacts]
    parts: Mapping[str, Sequence[Part]]
    given: TargetOffsets = field(default_factory=dict)
    all_topics: bool = False

    def states(self) -> StateFacts:
        """Return what the state topic holds now of every share partition; with `all_topics` of all share partitions of
        the groups."""
        groups = frozenset(group.group_id for group in self.groups) if self.all_topics else ()
        return read_states(self.cluster, self.keys(), groups)

    def keys(self) -> list[SharePartition]:
        """Return the keys in the state topic of the share partitions whose topic exists."""
        return [self._key(group, part) for group, own in self.parts.items() for part in own if self._exists(part)]

    def found(
        self, states: StateFacts, *, now_ms: int, moment_ms: int | None = None, unmatched: tuple[str, ...] = ()
    ) -> Snapshot:
        """Return the snapshot: ends of logs, offsets at a moment, described offsets of every share partition, with
        `states` for what the state topic holds."""
        admin = self.cluster.admin
        there = sorted({part for own in self.parts.values() for part in own if self._exists(part)})
        partitions = [TopicPartition(topic=topic, partition=index) for topic, index in there]
        logs = {(log.topic, log.partition): log for log in admin.list_offsets(partitions)}
        at = [] if moment_ms is None else admin.offsets_at(partitions, moment_ms)
        at_moment = {(found.topic, found.partition): found.offset for found in at}
        named = self._named_offsets()
        missing = {group.group_id for group in self.groups if group.is_missing}

        def facts(group: str, part: Part) -> PartitionFacts:
            topic, log, key = self.topics[part[0]], logs.get(part), self._key(group, part)
            described = self.described.get(group, {}).get(part)
            offset = described or named.get(group, {}).get(part)
            given = self.given.get(group, {}).get(part, TargetOffset())
            return PartitionFacts(
                group_id=group,
                topic=part[0],
                topic_id=topic.topic_id,
                partition=part[1],
                partition_count=topic.partition_count,
                log_start_offset=None if log is None else log.log_start_offset,
                log_end_offset=None if log is None else log.high_watermark,
                log_error="it is not there" if log is None else log.error,
                is_described=described is not None,
                is_new_group=group in missing,
                deleted_at=states.deleted.get(key),
                start_offset=None if offset is None else offset.start_offset,
                state=states.states.get(key),
                state_reason=states.reason or states.reasons.get(key),
                offset_at=at_moment.get(part),
                given=given,
            )

        return Snapshot(
            taken_at_ms=now_ms,
            cluster=cluster_facts(admin, states),
            groups=self.groups,
            topics=tuple(self.topics[name] for name in sorted(self.topics)),
            partitions=tuple(facts(group, part) for group in sorted(self.parts) for part in sorted(self.parts[group])),
            unmatched=unmatched,
            states=states,
            hidden=self._hidden(states),
        )

    def _hidden(self, states: StateFacts) -> tuple[SharePartition, ...]:
        """Return the share partitions that the state topic holds of topics that exist and may not be described. Brokers
        leave them out of a group's description without an error."""
        own = frozenset(self.keys())
        others = [key for key in states.held if key not in own]
        hidden = self.cluster.admin.hidden_topics({key.topic_id for key in others}) if others else ()
        return tuple(sorted(key for key in others if key.topic_id in hidden))

    def _exists(self, part: Part) -> bool:
        topic = self.topics[part[0]]
        return not topic.error_code and part[1] < topic.partition_count

    def _key(self, group: str, part: Part) -> SharePartition:
        topic_id = TopicId(self.topics[part[0]].topic_id or "")
        return SharePartition(group_id=GroupId(group), topic_id=topic_id, partition=part[1])

    def _named_offsets(self) -> dict[str, Offsets]:
        """Return the offsets of share partitions that a group has, but not among the initialized ones: an interrupted
        reset leaves such."""
        there = {group.group_id for group in self.groups if not group.error_code}
        found: dict[str, Offsets] = {}
        for group, parts in self.parts.items():
            left = [part for part in parts if part not in self.described.get(group, {}) and self._exists(part)]
            if group in there and left:
                found[group] = _by_part(self.cluster.admin.describe_offsets(group, _by_topic(left)))
        return found


def select_groups(admin: ShareGroupAdmin, request: ResetRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the groups that a request names, by id, and the globs that match none. A named group need not exist."""
    is_listed = request.group_globs or request.all_groups
    return groups_among(request, [each.group_id for each in admin.list_groups()] if is_listed else ())


def take_snapshot(
    cluster: Cluster, request: ResetRequest, *, now_ms: int, given: TargetOffsets | None = None
) -> Snapshot:
    """Return everything about the groups and share partitions of a request. `given`: the offsets of a file, the history
    or an earlier plan; those of a file and of an earlier plan are the scope as well. Raises Unreachable,
    RetryableError: a broker did not answer. ConfigurationError: the cluster does not serve share groups, or refused the
    login."""
    admin, strategy, given = cluster.admin, request.strategy, given or {}
    ids, unmatched = select_groups(admin, request)
    described = described_offsets(admin, ids)
    parts: dict[str, list[Part]] = {}
    names = {scope.topic for scope in request.topics}
    if strategy.kind in OWN_SCOPE or request.all_topics:
        known = given if strategy.kind in OWN_SCOPE else described
        parts = {group: [p for p in known.get(group, ()) if not names or is_in(request.topics, *p)] for group in ids}
        names = {topic for some in parts.values() for topic, _ in some}
    groups, topics = describe_groups(admin, ids, names)
    if not parts:
        every = {name: range(topic.partition_count) for name, topic in topics.items()}
        named = [(s.topic, every[s.topic] if s.partitions is None else s.partitions) for s in request.topics]
        parts = {group: [(topic, index) for topic, indices in named for index in indices] for group in ids}
    inquiry = FactsCollection(
        cluster=cluster,
        groups=groups,
        described=described,
        topics=topics,
        parts=parts,
        given=given,
        all_topics=request.all_topics,
    )
    moment_ms = strategy.moment_ms if strategy.kind in _AT_A_MOMENT else None
    return inquiry.found(inquiry.states(), now_ms=now_ms, moment_ms=moment_ms, unmatched=unmatched)


def collect_again(cluster: Cluster, plan: ResetPlan, *, now_ms: int) -> Snapshot:
    """Return the facts about every share partition of a plan as they are now. Raises as `take_snapshot`."""
    inquiry = replace(_inquiry(cluster, plan, plan.group_ids, plan.group_ids), all_topics=plan.request.all_topics)
    strategy = plan.request.strategy
    moment_ms = strategy.moment_ms if strategy.kind in _AT_A_MOMENT else None
    return inquiry.found(inquiry.states(), now_ms=now_ms, moment_ms=moment_ms)


def collect_group_again(cluster: Cluster, plan: ResetPlan, group_id: str, before: Snapshot, *, now_ms: int) -> Snapshot:
    """Return the facts about one group of a plan right before its request is sent.

    The state topic is read again only where it grew since `before`; start offsets are described last. That costs some
    requests on an open connection, so that another client has little time to come between. Raises PlanStale: another
    client reset the group since `before`, even to where it was. Otherwise as `collect_again`.
    """
    inquiry = _inquiry(cluster, plan, (group_id,), ())
    return inquiry.found(_states_since(inquiry, before.states), now_ms=now_ms)


def _states_since(inquiry: FactsCollection, before: StateFacts) -> StateFacts:
    """Return `before` if no record of the share partitions came since, else what the state topic holds now."""
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
        records = StateLookup(topic).read_from(keys, grown)[0] if grown else []
    except NotAuthorized as error:
        return StateFacts(reason=error.message)
    for _, addressed in records:
        record = addressed.record
        if isinstance(record, ShareSnapshot) and record.is_initialization:
            text = f"another client reset group {record.key.group_id!r} a moment ago"
            raise PlanStale("state_moved", f"the plan is stale: {text}", hint=PLAN_AGAIN)
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


def read_states(cluster: Cluster, keys: Collection[SharePartition], groups: Collection[str] = ()) -> StateFacts:
    """Return what the state topic holds now of `keys`, and of all share partitions of `groups`. A missing right is a
    reason; an absent topic holds nothing. Raises Unreachable, RetryableError: the cluster does not answer.
    ForeignCluster: the topic was recreated while it was read."""
    try:
        topic = StateTopic(cluster.admin)
        if not topic.is_present:
            return StateFacts(states=dict.fromkeys(keys))
        readings, ends = StateLookup(topic).read(keys, groups)
    except NotAuthorized as error:
        return StateFacts(reason=error.message)
    return StateFacts(
        topic_id=topic.topic_id,
        states={key: _state(reading) for key, reading in readings.items()},
        reasons={key: f"{STATE_TOPIC} {r.unreadable}" for key, r in readings.items() if r.unreadable is not None},
        ends=ends,
        deleted={key: r.deleted_offset for key, r in readings.items() if r.deleted_offset is not None},
    )


def _state(reading: PartitionReading) -> PartitionState | None:
    state = reading.state
    if state is None or reading.offset is None:
        return None
    return PartitionState(
        state_partition=reading.state_partition,
        record_offset=reading.offset,
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        first_unfinished_offset=state.first_unfinished_offset,
        delivery_complete_count=state.delivery_complete_count,
        batches=tuple(
            (b.first_offset, b.last_offset, int(b.delivery_state), int(b.delivery_count)) for b in state.batches
        ),
    )


def describe_groups(
    admin: ShareGroupAdmin, group_ids: Sequence[str], topic_names: Iterable[str] = ()
) -> tuple[tuple[GroupFacts, ...], dict[str, TopicFacts]]:
    """Return groups with their members, topics with their partitions, and what this principal may do with both."""
    names = sorted(topic_names)
    rights = admin.rights(group_ids, names)
    descriptions = admin.describe_groups(group_ids)
    missing = [group.group_id for group in descriptions if group.error_code == GROUP_ID_NOT_FOUND]
    others = {listing.group_id for listing in admin.list_groups(_OTHER_TYPES)} if missing else set()
    groups = tuple(
        GroupFacts(
            group_id=group.group_id,
            state=group.state,
            group_epoch=group.group_epoch,
            members=tuple(sorted(member.client_id for member in group.members)),
            rights=_sorted(rights.groups.get(group.group_id)),
            error_code=group.error_code,
            error=group.error,
            is_other_type=group.group_id in others,
        )
        for group in descriptions
    )
    return groups, _topics(admin, names, rights.topics)


def described_offsets(admin: ShareGroupAdmin, group_ids: Iterable[str]) -> dict[str, Offsets]:
    """Return what each group has initialized, as its coordinator describes it."""
    return {answer.group_id: _by_part(answer.offsets) for answer in admin.describe_group_offsets(group_ids)}


def _by_part(offsets: Iterable[ShareOffset]) -> Offsets:
    return {(offset.topic, offset.partition): offset for offset in offsets}


def _topics(
    admin: ShareGroupAdmin, names: Sequence[str], rights: Mapping[str, frozenset[str] | None]
) -> dict[str, TopicFacts]:
    described = admin.topics(names)
    unknown = any(topic.error_code == UNKNOWN_TOPIC_OR_PARTITION for topic in described)
    known = [topic.name for topic in admin.topics()] if unknown else []
    odd = [topic.name for topic in described if topic.error_code][:_MOST_COMPARED]
    return {
        topic.name: TopicFacts(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition_count=topic.partition_count if topic.error_code == NONE else 0,
            is_internal=topic.is_internal,
            rights=_sorted(rights.get(topic.name)),
            error_code=topic.error_code,
            error=topic.error,
            nearest=tuple(near_names(topic.name, known)) if topic.name in odd else (),
        )
        for topic in described
    }


def _by_topic(parts: Iterable[Part]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for topic, index in parts:
        found[topic].append(index)
    return found


def cluster_facts(admin: ShareGroupAdmin, states: StateFacts) -> ClusterFacts:
    """Return the facts about the cluster, with what `states` say about its state topic."""
    capabilities = admin.capabilities()
    return ClusterFacts(
        cluster_id=admin.cluster_id,
        release=capabilities.release,
        resets_share_groups=capabilities.resets_share_groups,
        state_topic_id=states.topic_id,
        state_reason=states.reason,
    )


def _sorted(rights: frozenset[str] | None) -> tuple[str, ...] | None:
    return None if rights is None else tuple(sorted(rights))
