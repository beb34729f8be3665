"""A migration as a kind of change: what is asked for, and a reset plan of the target, with what the source had of each
share partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from acktrail.change.change_kind import ChangeKind
from acktrail.change.cluster import Cluster
from acktrail.change.collection.facts import TargetOffset, sum_known
from acktrail.change.execution.reset_kind import ResetChange
from acktrail.change.new_plans import make_plan
from acktrail.change.planning.change_plan import PartitionPlan, with_hash
from acktrail.change.planning.impact import Clamp
from acktrail.change.planning.notices import Found, Notice, RefusedParts, Severity
from acktrail.change.planning.reset_plan import ResetPlan, with_notices
from acktrail.change.request.reset_request import OutOfRange, ResetRequest, Strategy, StrategyKind, parse_request
from acktrail.config import TablesConfig
from acktrail.errors import ChangeRefused
from acktrail.plain_tables import table
from acktrail_plugins.migration.mirror_evidence import (
    Migration,
    SourceOffset,
    TranslatedOffset,
    Translations,
    TranslationWay,
    check_source,
    find_translations,
)
from acktrail_plugins.migration.source_states import CarriedState, SourcePartition, SourceStates, read_source

Carried = dict[str, dict[tuple[str, int], tuple[TargetOffset, CarriedState]]]
"""By group, then topic and partition of the target: where it is to start, and what the source had."""
_ROWS_SHOWN: Final = 60
_HEADERS: Final = (
    *("GROUP", "SOURCE", "PARTITION", "SOURCE-START", "TARGET", "NEW-OFFSET"),
    *("SOURCE-DONE", "ACKS-LOST", "SOURCE-ARCHIVED", "IN-FLIGHT", "NOTE"),
)


def parse_migration(params: Mapping[str, Any], *, asks_source: bool) -> tuple[ResetRequest, Migration]:
    """A migration from a person's input: `way`, `at_ms`, `topic_map` (``old=new``), `topic_prefix`, `offset_syncs`,
    `checkpoints`; and its request: `topics` of the source as ``topic[:0,1]``, and the fields of `ResetRequest`. Missing
    groups are created unless `allow_create` is false, offsets outside of the target's log refused unless `out_of_range`
    is ``clamp``. Raises ChangeRefused: with the rule's name."""
    way = params.get("way")
    if way not in list(TranslationWay):
        hint = f"one of {', '.join(TranslationWay)}"
        raise ChangeRefused("no_translation", f"--translate {way!r} is no way of translation", hint=hint)
    migration = Migration(
        way=TranslationWay(way),
        at_ms=params.get("at_ms"),
        topic_map=_topic_map(params.get("topic_map", ())),
        topic_prefix=str(params.get("topic_prefix") or ""),
        offset_syncs=params.get("offset_syncs") or None,
        checkpoints=params.get("checkpoints") or None,
        asks_source=asks_source,
    )
    if migration.way is TranslationWay.TIMESTAMP and not asks_source:
        text = "times of records are on the source cluster alone: the tables do not have them"
        raise ChangeRefused("source_needed", text, hint="give --ask-source, or another --translate")
    is_mm2, named = migration.way is TranslationWay.MM2, migration.offset_syncs or migration.checkpoints
    if is_mm2 and not named:
        hint = "--offset-syncs mm2-offset-syncs.CLUSTER.internal, --checkpoints CLUSTER.checkpoints.internal, or both"
        raise ChangeRefused("no_mirror_topic", "MirrorMaker's topics are not named", hint=hint)
    if named and not is_mm2:
        raise ChangeRefused("two_translations", f"MirrorMaker's topics are not used by {way}", hint="--translate mm2")
    own = {"allow_create": True, "out_of_range": OutOfRange.REJECT.value}
    return parse_request({**own, **params}, Strategy(kind=StrategyKind.MIGRATE)), migration


def _topic_map(texts: Iterable[str]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise ChangeRefused("bad_topic_map", f"--topic-map {text!r} is no pair of names", hint="old=new")
        if old in found:
            raise ChangeRefused("bad_topic_map", f"--topic-map names {old!r} twice", hint="name it once")
        found[old] = new
    twice = next((new for new in found.values() if list(found.values()).count(new) > 1), None)
    if twice is not None:
        raise ChangeRefused("bad_topic_map", f"two topics would become {twice!r}", hint="one source topic for each")
    return tuple(sorted(found.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationPlan(ResetPlan):
    """`carried` is what the source had of each of `partitions`, in their order; the impact of these is about the target
    alone."""

    migration: Migration
    carried: tuple[CarriedState, ...]


class _MigrationChange(ResetChange):
    plan_type: type[ResetPlan] = MigrationPlan

    def text(self, plan: ResetPlan) -> str:
        """A table of the first share partitions, and the sums of those that are not refused."""
        assert isinstance(plan, MigrationPlan)
        rows = [_row(*each) for each in zip(plan.partitions, plan.carried, strict=True)]
        more = [f"... {len(rows) - _ROWS_SHOWN} more; every one is in --json"] if len(rows) > _ROWS_SHOWN else []
        return "\n".join([table(_HEADERS, rows[:_ROWS_SHOWN]), *more, _sums(plan), "on the target alone:"])


def _row(row: PartitionPlan, carried: CarriedState) -> tuple[object, ...]:
    target = "refused" if row.target_offset is None else row.target_offset
    again = _number(carried.delivered_again, carried.delivered_again_most)
    counts = (carried.acknowledged, carried.archived, carried.in_flight)
    return (
        *(row.group_id, carried.topic, row.partition, carried.start_offset, row.topic, target, again, *counts),
        carried.reason or "",
    )


def _number(exact: int | None, most: int | None) -> object:
    return exact if exact is not None or most is None else f"<={most}"


def _sums(plan: MigrationPlan) -> str:
    """Over the share partitions that are not refused; unknown where one of them is."""
    refused = RefusedParts(plan.refusals)
    rows = zip(plan.partitions, plan.carried, strict=True)
    known = [carried for row, carried in rows if row.key not in refused]
    again, most = (
        sum_known(getattr(one, name) for one in known) for name in ("delivered_again", "delivered_again_most")
    )
    inexact = sum(one.delivered_again is None for one in known)
    names = ("acknowledged", "archived", "in_flight")
    acknowledged, archived, in_flight = (_text(sum_known(getattr(one, name) for one in known)) for name in names)
    unknown = f" (not known exactly of {inexact})" if inexact else ""
    lines = (
        f"carried: {len(known)} start offset(s)",
        f"finished on the source, delivered again: {_text(_number(again, most))}{unknown}",
        f"  acknowledged on the source:            {acknowledged}",
        f"  archived on the source:                {archived}",
        f"in flight on the source, counts dropped: {in_flight}",
    )
    return "\n".join(lines)


def _text(number: object) -> str:
    return "unknown" if number is None else str(number)


MIGRATION: ChangeKind[Any] = _MigrationChange()


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
        raise ChangeRefused("same_cluster", f"source and target are one cluster, {states.cluster_id}", hint=hint)
    if source is not None:
        check_source(source, states.cluster_id)
    migration = replace(migration, source_cluster_id=states.cluster_id)
    wanted = [offset for part in states.partitions if (offset := _offset_of(part)) is not None]
    carried = carry(states, find_translations(migration, wanted, source=source, target=target), migration)
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
    return with_carried(made, migration, carried)


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
        text = f"{carried.archived} offsets that the source archived (given up on: poison, maybe) are delivered again"
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


def carry(states: SourceStates, translations: Translations, migration: Migration) -> Carried:
    """The offset on the target of every share partition of the source, with what cannot be carried. Raises
    ChangeRefused (`two_topics_one_name`): two topics of the source would become one."""
    found: Carried = defaultdict(dict)
    for part in states.partitions:
        place = (migration.target_topic(part.carried.topic), part.partition)
        if place in found[part.group_id]:
            text = f"two topics of the source would become {place[0]!r}"
            raise ChangeRefused("two_topics_one_name", text, hint="give --topic-map or leave one out with --topic")
        found[part.group_id][place] = _translated(part, translations)
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
