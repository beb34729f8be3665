"""The plan of a migration: a reset plan of the target cluster whose start offsets another cluster had, and what the
clusters show of how a topic's offsets on the source lie on the target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from acktrail.change import api
from acktrail.change.cluster import Cluster
from acktrail.change.collection.facts import TargetOffset, TargetOffsets
from acktrail.change.migration.source_states import (
    SourcePartition,
    SourceStates,
    as_read,
    counted_in_log,
    read_source,
)
from acktrail.change.planning.notices import Notice, Severity
from acktrail.change.planning.reset_plan import ResetPlan
from acktrail.change.request.reset_request import (
    Migration,
    OutOfRange,
    ResetRequest,
    TranslationWay,
    parse_migration,
    parse_request,
)
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ChangeRefused, ConfigurationError, ForeignCluster
from acktrail.kafka.descriptions import TopicPartition
from acktrail.kafka.logs import LogStretch
from acktrail.model.mirrored_offsets import (
    OffsetSync,
    TranslatedOffset,
    checkpoints_by_part,
    translate,
    valid_syncs,
)

_LOOK_BACK: Final = 100
"""Offsets before one that is translated, whose records are compared as well."""
RecordT = TypeVar("RecordT")


def parse_migration_request(params: Mapping[str, Any], *, asks_source: bool) -> ResetRequest:
    """A request from a person's input: that of `parse_migration`, `topics` of the source as ``topic[:0,1]``, and the
    fields of `ResetRequest`. Missing groups are created unless `allow_create` is false, offsets outside of the target's
    log refused unless `out_of_range` is ``clamp``. Raises ChangeRefused: with the rule's name."""
    own = {"allow_create": True, "out_of_range": OutOfRange.REJECT.value}
    return parse_request({**own, **params}, parse_migration(params, asks_source=asks_source))


def plan_migration(
    target: Cluster,
    request: ResetRequest,
    *,
    source_tables: TablesConfig,
    source: Cluster | None = None,
    tables: TablesConfig | None = None,
    created_by: str | None = None,
) -> ResetPlan:
    """The plan that carries start offsets to the cluster `target` as it is now; it is stored, approved, executed and
    verified as any reset plan there. `source_tables` are the source's, `tables` the target's own; `source`: the source
    cluster, where it is still there.

    Raises as `read_source`, `find_translations` and `api.make_plan`; ForeignCluster: `source` is not the cluster of
    `source_tables`. ChangeRefused: `same_cluster`, `nothing_to_migrate`, `two_topics_one_name`.
    """
    states = read_source(source_tables, request)
    if states.cluster_id == target.admin.cluster_id:
        hint = "acktrail change plan reset --to-history takes a group back on its own cluster"
        raise ChangeRefused("same_cluster", f"source and target are one cluster, {states.cluster_id}", hint=hint)
    if source is not None:
        check_source(source, states.cluster_id)
        states = counted_in_log(source, states)
    chosen = as_read(request, states)
    migration = chosen.migration
    assert migration is not None
    wanted = [offset for part in states.partitions if (offset := _offset_of(part)) is not None]
    translations = find_translations(migration, wanted, source=source, target=target)
    notices = [*states.notices, *_on_source(states, source, is_newest=migration.at_ms is None)]
    return api.make_plan(
        target,
        replace(chosen, topics=()),
        tables=tables,
        created_by=created_by,
        given=target_offsets(states, translations, migration),
        notices=[*notices, *_on_topics(states, target, migration)],
    )


def target_offsets(states: SourceStates, translations: Translations, migration: Migration) -> TargetOffsets:
    """The offset on the target of every share partition of the source, with what cannot be carried. Raises
    ChangeRefused (`two_topics_one_name`): two topics of the source would become one."""
    found: dict[str, dict[tuple[str, int], TargetOffset]] = defaultdict(dict)
    for part in states.partitions:
        place = (migration.target_topic(part.carried.topic), part.partition)
        if place in found[part.group_id]:
            text = f"two topics of the source would become {place[0]!r}"
            raise ChangeRefused("two_topics_one_name", text, hint="give --topic-map or leave one out with --topic")
        found[part.group_id][place] = _target_offset(part, translations)
    return found


def _target_offset(part: SourcePartition, translations: Translations) -> TargetOffset:
    offset, carried = _offset_of(part), part.carried
    if offset is None:
        return TargetOffset(reason=carried.reason, carried=carried)
    translated = translations[offset]
    if not isinstance(translated, TranslatedOffset):
        return TargetOffset(reason=translated, carried=replace(carried, reason=translated))
    most = translated.passed_most
    reason = None if most == 0 else "where exactly the start offset is on the target is not known"
    carried = replace(carried, passed=0 if most == 0 else None, passed_most=most, reason=reason)
    return TargetOffset(offset=translated.offset, carried=carried)


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


if TYPE_CHECKING:
    from acktrail.kafka.log_reader import TopicRecord


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SourceOffset:
    """An offset of a source partition that is to be translated."""

    topic: str
    partition: int
    offset: int


Translations = dict[SourceOffset, TranslatedOffset | str]
"""Where each offset is on the target, or why that is not known."""


def find_translations(
    migration: Migration, offsets: Iterable[SourceOffset], *, source: Cluster | None, target: Cluster
) -> Translations:
    """Where each of `offsets` is on the target. Nothing is changed on either cluster.

    Raises:
        ConfigurationError: MirrorMaker's topic is on neither cluster, holds something else, or a right is missing.
        Unreachable, RetryableError: a cluster does not answer.
    """
    wanted = sorted(set(offsets))
    match migration.way:
        case TranslationWay.MM2:
            return _by_mirror_topics(migration, wanted, source, target)
        case TranslationWay.SAME:
            found: Translations = {each: TranslatedOffset(offset=each.offset, passed_most=0) for each in wanted}
            return found if source is None else found | _different(migration, wanted, source, target)


def check_source(source: Cluster, cluster_id: str) -> None:
    """Raise ForeignCluster unless the source cluster is the one that the tables were exported from."""
    if source.admin.cluster_id != cluster_id:
        text = f"the source is cluster {source.admin.cluster_id}, the tables are of cluster {cluster_id}"
        raise ForeignCluster(text, hint="name the brokers that were exported, or leave --ask-source")


def _by_mirror_topics(
    migration: Migration, offsets: Sequence[SourceOffset], source: Cluster | None, target: Cluster
) -> Translations:
    from acktrail.format.wire.group_record import decode_checkpoint, decode_offset_sync

    clusters = [target] if source is None else [target, source]
    syncs = valid_syncs(_mirror_records(migration.offset_syncs, decode_offset_sync, clusters))
    checkpoints = checkpoints_by_part(_mirror_records(migration.checkpoints, decode_checkpoint, clusters))
    found: Translations = {}
    for each in offsets:
        own = syncs.get((each.topic, each.partition), ())
        others = checkpoints.get((migration.target_topic(each.topic), each.partition), ())
        found[each] = translate(each.offset, own, others) or _no_pair(each, own)
    return found


def _no_pair(each: SourceOffset, syncs: Sequence[OffsetSync]) -> str:
    if not syncs:
        return f"MirrorMaker wrote nothing about {each.topic}:{each.partition} that reaches offset {each.offset}"
    return (
        f"MirrorMaker's oldest known pair of {each.topic}:{each.partition} is at offset {syncs[0].upstream_offset}, "
        f"after the start offset {each.offset}"
    )


def _mirror_records(
    topic: str | None,
    decode: Callable[[bytes | None, bytes | None], RecordT],
    clusters: Sequence[Cluster],
) -> Iterator[RecordT]:
    """The records of one of MirrorMaker's topics, on the first cluster that has it; none when it is not named."""
    from acktrail.kafka.log_reader import read_topic

    if topic is None:
        return
    found = (read_topic(cluster.admin, topic) for cluster in clusters)
    records = next((each for each in found if each is not None), None)
    if records is None:
        where = "on neither cluster" if len(clusters) > 1 else "not on the target"
        hint = "with --ask-source it is looked for on the source as well"
        raise ConfigurationError(f"there is no topic {topic!r}: it is {where}", hint=hint)
    for record in records:
        try:
            if record.value is not None:  # null: an operator's deletion
                yield decode(record.key, record.value)
        except AcktrailError as error:
            text = f"topic {topic!r}, offset {record.offset}: {error.message}"
            raise ConfigurationError(text, hint="is it MirrorMaker 2's topic of this kind?") from error


def _different(migration: Migration, offsets: Sequence[SourceOffset], source: Cluster, target: Cluster) -> Translations:
    """Those of `offsets` at which, or before which, a record of the target is another than the source's. What is not on
    the target yet, or not on the source any more, cannot be compared."""
    here = {each: _stretch(each.topic, each) for each in offsets}
    there = {each: _stretch(migration.target_topic(each.topic), each) for each in offsets}
    originals, copies, found = _records(source, here), _records(target, there), Translations()
    for each in offsets:
        known = {record.offset: record for record in originals.get(each, ())}
        both = ((copy, known[copy.offset]) for copy in copies.get(each, ()) if copy.offset in known)
        odd = next((copy.offset for copy, original in both if not copy.equals(original)), None)
        if odd is not None:
            found[each] = f"offset {odd} holds other records on the two clusters: the offsets are not the same"
    return found


def _stretch(topic: str, each: SourceOffset) -> LogStretch:
    first, end = max(0, each.offset - _LOOK_BACK), each.offset + 1
    return LogStretch(topic=topic, partition=each.partition, first_offset=first, end_offset=end)


def _records(cluster: Cluster, wanted: Mapping[SourceOffset, LogStretch]) -> dict[SourceOffset, Sequence[TopicRecord]]:
    """The records in these stretches, as far as the logs have them."""
    from acktrail.kafka.log_reader import read_records

    partitions = {TopicPartition(topic=each.topic, partition=each.partition) for each in wanted.values()}
    logs = {(log.topic, log.partition): log for log in cluster.admin.list_offsets(sorted(partitions))}
    there = {}
    for each, stretch in wanted.items():
        log = logs[stretch.topic, stretch.partition]
        if log.log_start_offset is not None and log.high_watermark is not None:
            first, end = max(stretch.first_offset, log.log_start_offset), min(stretch.end_offset, log.high_watermark)
            if first < end:
                there[each] = replace(stretch, first_offset=first, end_offset=end)
    records = read_records(cluster.admin, there.values())
    return {each: records[stretch] for each, stretch in there.items()}
