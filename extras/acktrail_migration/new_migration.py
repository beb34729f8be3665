"""A new plan of a migration: where groups stood at a moment, by the tables of their cluster, which may be gone itself;
and where they are to start on another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from acktrail.change.cluster import Cluster
from acktrail.change.plan.change_plan import PartitionPlan, with_hash
from acktrail.change.plan.impact import Clamp
from acktrail.change.plan.notices import Found, Notice, Severity
from acktrail.change.plan.reset_plan import ResetPlan, with_notices
from acktrail.change.plan.snapshot_facts import TargetOffset
from acktrail.change.request.reset_request import ResetRequest, groups_among, is_in
from acktrail.change.reset_planner import NOT_INITIALIZED, make_plan, replayed_start, topics_by_id
from acktrail.config import TablesConfig
from acktrail.errors import ChangeRefused, ConfigurationError, near_names
from acktrail.group_changes.group_change_plan import AUTO_RESET, auto_resets, beginnings
from acktrail.kafka.descriptions import TopicPartition
from acktrail.model.batches import DeliveryState, StateBatch, combine_state_batches
from acktrail.times import instant_text, now_ms, utc_text
from acktrail_migration.migration_kind import CarriedState, Migration, MigrationPlan
from acktrail_migration.mirror_evidence import (
    SourceOffset,
    TranslatedOffset,
    Translations,
    check_source,
    find_translations,
)

if TYPE_CHECKING:
    from acktrail.history.replay_resume import TopicAtTime

Carried = dict[str, dict[tuple[str, int], tuple[TargetOffset, CarriedState]]]
"""By group, then topic and partition of the target: where it is to start, and what the source had."""
_FINISHED: Final[Mapping[int, str]] = {DeliveryState.ACKNOWLEDGED: "acknowledged", DeliveryState.ARCHIVED: "archived"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """A share partition of the source. `recorded_start` is the start offset in its state; `carried` what it had, and
    where its first unfinished record is."""

    group_id: str
    partition: int
    recorded_start: int | None
    carried: CarriedState

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition on the source."""
        return self.carried.topic, self.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStates:
    """The share partitions that were asked for, in the order of group, topic and partition. `partition_counts` by topic
    as the tables have them; `notices` about what the export lacks."""

    cluster_id: str
    partitions: tuple[SourcePartition, ...]
    partition_counts: Mapping[str, int]
    notices: tuple[Notice, ...]

    @property
    def group_ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.group_id for part in self.partitions))


def plan_migration(
    target: Cluster,
    request: ResetRequest,
    migration: Migration,
    *,
    source_tables: TablesConfig,
    source: Cluster | None = None,
    tables: TablesConfig | None = None,
) -> MigrationPlan:
    """The plan that carries start offsets to the cluster `target` as it is now; it is stored, approved, executed and
    verified as any reset plan there. `source_tables` are the source's, `tables` the target's own; `source`: the source
    cluster, where it is still there.

    Raises as `read_source`, `find_translations` and `make_plan`; ForeignCluster: `source` is not the cluster of
    `source_tables`. ChangeRefused: `same_cluster`, `nothing_to_migrate`, `two_topics_one_name`.
    """
    states = read_source(source_tables, request, migration.at_ms)
    if states.cluster_id == target.admin.cluster_id:
        hint = "acktrail change plan reset --to-history takes a group back on its own cluster"
        raise ChangeRefused("same_cluster", f"source and target are the same cluster, {states.cluster_id}", hint=hint)
    if source is not None:
        check_source(source, states.cluster_id)
    migration = replace(migration, source_cluster_id=states.cluster_id)
    wanted = [offset for part in states.partitions if (offset := _offset_of(part)) is not None]
    begun = {} if source is None else _begun(states, migration, source, target)
    carried = carry(states, find_translations(migration, wanted, source=source, target=target), migration, begun)
    made = make_plan(
        target,
        _as_read(request, states, migration),
        tables=tables,
        given={group: {place: offset for place, (offset, _) in parts.items()} for group, parts in carried.items()},
        notices=[
            *states.notices,
            *_on_source(states, source, is_newest=migration.at_ms is None),
            *_on_topics(states, target, migration),
        ],
    )
    return with_carried(with_notices(made, [*_not_carried_at_all(made, target)]), migration, carried)


def _begun(
    states: SourceStates, migration: Migration, source: Cluster, target: Cluster
) -> dict[tuple[str, str, int], TargetOffset]:
    """Where share partitions that were never initialized begin on the target: where the source's
    ``share.auto.offset.reset`` of their groups says. By group, and topic and partition of the target."""
    found: dict[tuple[str, str, int], TargetOffset] = {}
    for group_id, setting in auto_resets(source.admin, states.group_ids).items():
        own = [part for part in states.partitions if part.group_id == group_id]
        own = [part for part in own if setting is not None and part.carried.reason == NOT_INITIALIZED]
        places = [TopicPartition(topic=migration.target_topic(p.carried.topic), partition=p.partition) for p in own]
        offsets = beginnings(target.admin, places, setting, now_ms()) if places else []
        found |= {(group_id, at.topic, at.partition): one for at, one in zip(places, offsets, strict=True)}
    return found


def _not_carried_at_all(made: ResetPlan, target: Cluster) -> Iterator[Notice]:
    """What groups lose of share partitions that are not carried and begin where their setting here says."""
    settings = auto_resets(target.admin, made.group_ids)
    counts = {row.topic: row.partition_count or 0 for row in made.partitions}
    for group_id, setting in settings.items():
        own = [row for row in made.partitions if row.group_id == group_id]
        begun = {row.name for row in own if row.target_offset is not None or row.start_offset is not None}
        topics = sorted({row.topic for row in own})
        places = [TopicPartition(topic=topic, partition=n) for topic in topics for n in range(counts[topic])]
        left = [place for place in places if f"{place.topic}:{place.partition}" not in begun]
        logs = target.admin.list_offsets(left) if left and setting != "earliest" else []
        lost = sum((log.high_watermark or 0) - (log.log_start_offset or 0) for log in logs)
        if lost:
            text = (
                f"{len(left)} share partition(s) are not carried and begin where {AUTO_RESET}={setting or 'unknown'} "
                f"says: up to {lost} offsets in their logs are never delivered; to get them, before members join: "
                f"acktrail groups config set --group {group_id} {AUTO_RESET}=earliest --execute"
            )
            yield Notice(Severity.SERIOUS, "begins_past_records", text, group_id)


def _as_read(request: ResetRequest, states: SourceStates, migration: Migration) -> ResetRequest:
    """`request` with the source's cluster and the groups that it chose, as the plan keeps it."""
    strategy = replace(request.strategy, moment_ms=migration.at_ms, source=migration.text)
    return replace(request, strategy=strategy, groups=states.group_ids, group_globs=(), all_groups=False, topics=())


def with_carried(made: ResetPlan, migration: Migration, carried: Carried) -> MigrationPlan:
    """The plan of the target, with what the source had of each of its share partitions."""
    rows = [(row, _there(row, carried[row.group_id][row.topic, row.partition][1])) for row in made.partitions]
    lost = [(row.key, found) for row, state in rows if row.target_offset is not None for found in _not_carried(state)]
    made = with_notices(made, [Notice(*found, *key) for key, found in lost])
    values = {each.name: getattr(made, each.name) for each in fields(made)}
    return with_hash(MigrationPlan(**values, migration=migration, carried=tuple(state for _, state in rows)))


def _there(row: PartitionPlan, carried: CarriedState) -> CarriedState:
    """What the source has of a row; where the log here begins after the translated offset, some of it is not here."""
    if row.clamp is not Clamp.BELOW_LOG_START:
        return carried
    text = f"the log here begins at {row.target_offset} only: some of those records are not in it"
    return replace(carried, passed=None, reason=carried.reason or text)


def _not_carried(carried: CarriedState) -> Iterator[Found]:
    """What the source has and no request can set here."""
    if carried.archived:
        text = f"{carried.archived} offsets that the source archived (possibly poison records) are delivered again"
        yield Severity.WARNING, "archived_not_carried", text
    if carried.acknowledged:
        text = (
            f"{carried.acknowledged} acknowledgements of the source are not carried: those offsets are delivered again"
        )
        yield Severity.WARNING, "acknowledgements_not_carried", text
    if carried.passed is None:
        most = "an unknown number of" if carried.passed_most is None else f"at most {carried.passed_most}"
        text = f"{most} records that the source finished below its start offset are delivered again: {carried.reason}"
        yield Severity.WARNING, "passed_not_known", text


def carry(
    states: SourceStates,
    translations: Translations,
    migration: Migration,
    begun: Mapping[tuple[str, str, int], TargetOffset] = MappingProxyType({}),
) -> Carried:
    """The offset on the target of every share partition of the source, with what cannot be carried. `begun`: those that
    the source never initialized, by group and the target's topic and partition. Raises ChangeRefused
    (`two_topics_one_name`): two topics of the source would become one."""
    found: Carried = defaultdict(dict)
    for part in states.partitions:
        place = (migration.target_topic(part.carried.topic), part.partition)
        if place in found[part.group_id]:
            text = f"two topics of the source would become {place[0]!r}"
            raise ChangeRefused(
                "two_topics_one_name", text, hint="rename one with --topic-map, or leave one out with --topic"
            )
        begins = begun.get((part.group_id, *place))
        if begins is None:
            found[part.group_id][place] = _translated(part, translations)
        else:
            done = replace(part.carried, acknowledged=0, archived=0, in_flight=0, passed=0, passed_most=0)
            found[part.group_id][place] = begins, done
    return found


def _translated(part: SourcePartition, translations: Translations) -> tuple[TargetOffset, CarriedState]:
    offset, carried = _offset_of(part), part.carried
    if offset is None:
        return TargetOffset(reason=carried.reason), carried
    translated = translations[offset]
    if not isinstance(translated, TranslatedOffset):
        return TargetOffset(reason=translated), replace(carried, reason=translated)
    most = translated.passed_most
    reason = None if most == 0 else "where exactly the start offset is on the target is not known"
    carried = replace(carried, passed=0 if most == 0 else None, passed_most=most, reason=reason)
    return TargetOffset(offset=translated.offset), carried


def _offset_of(part: SourcePartition) -> SourceOffset | None:
    start = part.carried.start_offset
    topic, partition = part.place
    return None if start is None else SourceOffset(topic=topic, partition=partition, offset=start)


def _on_source(states: SourceStates, source: Cluster | None, *, is_newest: bool) -> Iterator[Notice]:
    """What the groups on the living source did, or may do, since the moment."""
    if source is None or not is_newest:
        return
    recorded = {(part.group_id, *part.place): part.recorded_start for part in states.partitions}
    for group in source.admin.describe_groups(states.group_ids):
        if group.members:
            text = (
                f"it has {len(group.members)} members on the source: what they finish from now on is delivered again "
                "here; stop them, export again and make a new plan"
            )
            yield Notice(Severity.WARNING, "source_has_members", text, group.group_id)
    for answer in source.admin.describe_group_offsets(states.group_ids):
        for now in answer.offsets:
            before = recorded.get((answer.group_id, now.topic, now.partition))
            if before is not None and now.start_offset not in (None, before):
                text = (
                    f"{now.topic}:{now.partition} of the source starts at {now.start_offset} now; exported was {before}"
                )
                yield Notice(Severity.WARNING, "source_moved_on", text, answer.group_id)


def _on_topics(states: SourceStates, target: Cluster, migration: Migration) -> Iterator[Notice]:
    """Topics with other partition counts on the target."""
    names = {part.carried.topic: migration.target_topic(part.carried.topic) for part in states.partitions}
    found = {topic.name: topic for topic in target.admin.topics(sorted(set(names.values())))}
    for old, new in names.items():
        before, now = states.partition_counts.get(old), found[new].partition_count
        if before is not None and now and before != now:
            text = f"the source's {old!r} had {before} partitions, this topic has {now}: the others are not carried"
            yield Notice(Severity.WARNING, "other_partition_count", text, topic=new)


def read_source(config: TablesConfig, request: ResetRequest, at_ms: int | None) -> SourceStates:
    """The share partitions of the groups and topics of `request` at a moment (None: the newest), from the tables.

    Raises ChangeRefused: `no_such_group`, `nothing_to_migrate`. ConfigurationError: nothing was exported, or by no
    known cluster. RetryableError: the storage failed.
    """
    from acktrail.history.replay_resume import states_of_topic, topic_at_time
    from acktrail.tables.cluster_check import cluster_of
    from acktrail.tables.delta.store import Tables

    tables = Tables(config)
    moment = topic_at_time(tables, at_ms)
    records = tables.snapshot("state_records")
    cluster_id = None if records is None else cluster_of(records)
    if cluster_id is None:
        raise ConfigurationError(f"tables at {tables.root} name no cluster", hint="are they an export's?")
    alone = request.groups[0] if len(request.groups) == 1 and not request.group_globs else None
    rows = states_of_topic(tables, moment, alone).to_pylist()
    wanted = _selected(request, sorted({row["group_id"] for row in rows}), instant_text(at_ms))
    names, counts = topics_by_id(tables)
    mine = [row for row in rows if row["group_id"] in wanted]
    mine.sort(key=lambda row: row["last_record_timestamp_ms"] or 0)  # of incarnations of a topic the last written one
    newest = {(row["group_id"], names.get(row["topic_id"]), row["partition"]): row for row in mine}
    parts = [
        source_partition(row, topic)
        for (_, topic, index), row in newest.items()
        if topic is not None and (not request.topics or is_in(request.topics, topic, index))
    ]
    if not parts:
        text = "the tables have no share partition of these groups and topics"
        raise ChangeRefused("nothing_to_migrate", text, hint="acktrail record state shows what there is")
    nameless = sorted({row["topic_id"] for row in mine if row["topic_id"] not in names})
    return SourceStates(
        cluster_id=cluster_id,
        partitions=tuple(sorted(parts, key=lambda part: (part.group_id, part.place))),
        partition_counts=counts,
        notices=tuple(_notices(moment, nameless)),
    )


def source_partition(row: Mapping[str, Any], topic: str) -> SourcePartition:
    """The share partition in a row of a replay (``acktrail.history.partition_replay.REPLAYED``)."""
    start, reason = replayed_start(row)
    counts: dict[str, Any] = {}
    if start is not None:
        counts = dict.fromkeys(("acknowledged", "archived", "in_flight"), 0)
        for batch in combine_state_batches([StateBatch(**each) for each in row["batches"] or ()], (), start):
            kind = _FINISHED.get(batch.delivery_state, "in_flight")
            counts[kind] += batch.last_offset - batch.first_offset + 1
    return SourcePartition(
        group_id=row["group_id"],
        partition=row["partition"],
        recorded_start=None if start is None else row["start_offset"],
        carried=CarriedState(topic=topic, start_offset=start, reason=reason, **counts),
    )


def _selected(request: ResetRequest, known: Collection[str], at: str | None) -> frozenset[str]:
    """The groups that are asked for, among those `known`."""
    when = "" if at is None else f" at {at}"
    if request.all_groups and not known:
        hint = "acktrail run export adds what was written since" if at is None else "give a later --at, or none"
        raise ChangeRefused("nothing_to_migrate", f"the tables have no share group{when}", hint=hint)
    groups, unmatched = groups_among(request, known)
    if unmatched:
        raise ChangeRefused("no_such_group", f"no share group in the tables matches {unmatched[0]!r}{when}")
    wanted = frozenset(groups)
    for group in sorted(wanted.difference(known)):
        near = near_names(group, known)
        hint = f"did you mean {', '.join(map(repr, near))}?" if near else "acktrail record state lists all"
        raise ChangeRefused("no_such_group", f"the tables have no share group {group!r}{when}", hint=hint)
    return wanted


def _notices(moment: TopicAtTime, nameless: Collection[str]) -> Iterator[Notice]:
    """What the export lacks for the moment."""
    until, asked = moment.exported_at, moment.at_ms
    if until is not None and (asked is None or moment.observation.observed_at > until):
        text = (
            f"the last state records were exported at {utc_text(until)}: what the groups did since is delivered again"
        )
        yield Notice(Severity.INFO if asked is None else Severity.WARNING, "exported_until", text)
    if moment.began_later:
        numbers = ", ".join(map(str, moment.began_later))
        text = (
            f"the export of state partitions {numbers} began after {instant_text(asked)}: share partitions that had a "
            "state then may be missing"
        )
        yield Notice(Severity.SERIOUS, "export_began_later", text)
    for topic_id in nameless:
        text = f"the name of the topic with id {topic_id} was never seen: nothing of it is carried"
        yield Notice(Severity.SERIOUS, "unnamed_topic", text)
