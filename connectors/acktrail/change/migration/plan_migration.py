"""The plan of a migration: a reset plan of the target cluster whose start offsets another cluster had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from acktrail.change import api
from acktrail.change.cluster import Cluster
from acktrail.change.collection.facts import TargetOffset, TargetOffsets
from acktrail.change.migration.mirror_evidence import SourceOffset, Translations, check_source, find_translations
from acktrail.change.migration.source_states import SourcePartition, SourceStates, as_read, counted_in_log, read_source
from acktrail.change.planning.notices import Notice, Severity
from acktrail.change.planning.reset_plan import ResetPlan
from acktrail.change.request.reset_request import Migration, OutOfRange, ResetRequest, parse_migration, parse_request
from acktrail.config import TablesConfig
from acktrail.errors import ChangeRefused
from acktrail.model.mirrored_offsets import TranslatedOffset


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
