"""Where groups stood at a moment, by the tables of their cluster; the cluster itself may be gone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from acktrail.change.cluster import Cluster
from acktrail.change.collection.delivered_records import hidden_in
from acktrail.change.collection.facts import CarriedState, TargetOffset, TargetOffsets
from acktrail.change.planning.notices import Notice, Severity
from acktrail.change.request.reset_request import ResetRequest, is_in
from acktrail.config import TablesConfig
from acktrail.errors import ChangeRefused, ConfigurationError
from acktrail.kafka.descriptions import TopicPartition
from acktrail.kafka.logs import LogStretch
from acktrail.model.batches import DeliveryState, StateBatch, combine_state_batches
from acktrail.model.offset_ranges import RecordCounter, Span
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.times import instant_text, utc_text

if TYPE_CHECKING:
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail.reconcile.state_at import TopicAtTime
    from acktrail.tables.delta.store import Tables

_COMPLETE = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePartition:
    """A share partition of the source. `recorded_start` is the start offset in its state; `carried` what it had, and
    where its first unfinished record is; `batches` are those from there on."""

    group_id: str
    partition: int
    recorded_start: int | None
    carried: CarriedState
    last_record_ms: int | None = None
    batches: tuple[StateBatch, ...] = ()

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


def read_source(config: TablesConfig, request: ResetRequest) -> SourceStates:
    """The share partitions of the groups and topics of `request` at its migration's moment, from the tables.

    Raises ChangeRefused: `no_such_group`, `nothing_to_migrate`. ConfigurationError: nothing was exported, or by no
    known cluster. RetryableError: the storage failed.
    """
    from acktrail.reconcile.state_at import states_of_topic, topic_at_time
    from acktrail.tables.cluster_check import cluster_of
    from acktrail.tables.delta.store import Tables

    assert request.migration is not None
    tables = Tables(config)
    moment = topic_at_time(tables, request.migration.at_ms)
    records = tables.snapshot("state_records")
    cluster_id = None if records is None else cluster_of(records)
    if cluster_id is None:
        raise ConfigurationError(f"tables at {tables.root} name no cluster", hint="are they an export's?")
    alone = request.groups[0] if len(request.groups) == 1 and not request.group_globs else None
    rows = states_of_topic(tables, moment, alone).to_pylist()
    wanted = _selected(request, sorted({row["group_id"] for row in rows}), instant_text(request.migration.at_ms))
    names, counts = _topics(tables)
    mine = [row for row in rows if row["group_id"] in wanted]
    found = [source_partition(row, name) for row in mine if (name := names.get(row["topic_id"])) is not None]
    parts = [part for part in _newest(found) if not request.topics or is_in(request.topics, *part.place)]
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
    """The share partition in a row of a replay (``acktrail.reconcile.partition_replay.REPLAYED``)."""
    start, reason = _start(row)
    found = () if start is None else combine_state_batches([StateBatch(**b) for b in row["batches"] or ()], (), start)
    carried = CarriedState(
        topic=topic,
        topic_id=row["topic_id"],
        start_offset=start,
        reason=reason,
        **_counts(found, None if start is None else RecordCounter()),
    )
    return SourcePartition(
        group_id=row["group_id"],
        partition=row["partition"],
        recorded_start=None if start is None else row["start_offset"],
        carried=carried,
        last_record_ms=row["last_record_timestamp_ms"],
        batches=found,
    )


def _start(row: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """The first unfinished offset in a row of a replay; without one the reason."""
    start, reason = row["first_unfinished_offset"], row["completeness_reason"]
    if row["completeness"] != _COMPLETE:
        return None, f"its state is not known for sure: {reason or row['completeness']}"
    return start, "it had no start offset: it was not initialized" if start is None else reason


def from_history(admin: ShareGroupAdmin, config: TablesConfig, groups: Sequence[str], moment_ms: int) -> TargetOffsets:
    """Start offsets of groups at a moment, by the exported state records; with a reason where they do not show it.
    Raises NotAuthorized, RetryableError: the cluster does not answer how far the state topic reached then.
    ConfigurationError, RetryableError: nothing was exported, or the tables cannot be read."""
    from acktrail.reconcile.state_at import states_of_topic, topic_at_time
    from acktrail.tables.delta.store import Tables

    tables = Tables(config)
    moment, (names, _) = topic_at_time(tables, moment_ms), _topics(tables)
    rows = [row for row in states_of_topic(tables, moment).to_pylist() if row["group_id"] in groups]
    behind = _not_exported(admin, tables, moment, {row["state_partition"] for row in rows})
    found: dict[str, dict[tuple[str, int], TargetOffset]] = defaultdict(dict)
    for row in rows:
        start, reason = _start(row)
        number, topic = row["state_partition"], names.get(row["topic_id"])
        if number in behind:
            start = None
            reason = f"state partition {number} is not exported up to {instant_text(moment_ms)}: export first"
        if topic is not None:
            then = TargetOffset(offset=start, reason=reason, topic_id=row["topic_id"])
            found[row["group_id"]][topic, row["partition"]] = then
    return found


def _not_exported(admin: ShareGroupAdmin, tables: Tables, moment: TopicAtTime, numbers: set[int]) -> set[int]:
    """The state partitions among `numbers` that have records up to the moment which the tables lack."""
    from acktrail.kafka.state.state_topic import StateTopic
    from acktrail.tables.exported.stored_log import newest_shifts

    topic, shifts = StateTopic(admin), newest_shifts(tables)
    if not numbers or not topic.is_present:
        return numbers
    asked = [TopicPartition(topic=STATE_TOPIC, partition=number) for number in sorted(numbers)]
    later = {found.partition: found.offset for found in admin.offsets_at(asked, (moment.at_ms or 0) + 1)}
    ends = {number: log.high_watermark or 0 for number, log in topic.log_offsets(numbers).items()}

    def bound(number: int) -> int:
        """Above all records up to the moment, as an offset of the tables."""
        at = later.get(number)
        return (ends[number] if at is None else at) + shifts.get(number, 0)

    return {number for number in numbers if (moment.coverages[number].end_offset or 0) < bound(number)}


def counted_in_log(source: Cluster, states: SourceStates) -> SourceStates:
    """`states` with records counted, where the source's log can be looked through: its batches name offsets that are
    no records, too. Raises Unreachable, RetryableError: a broker of the source did not answer."""
    stretches = {
        (part.group_id, *part.place): LogStretch(
            topic=part.place[0],
            partition=part.partition,
            first_offset=part.batches[0].first_offset,
            end_offset=part.batches[-1].last_offset + 1,
        )
        for part in states.partitions
        if part.batches
    }
    found = hidden_in(source.admin, stretches)
    return replace(states, partitions=tuple(_counted(p, found.get((p.group_id, *p.place))) for p in states.partitions))


def _counted(part: SourcePartition, hidden: tuple[Span, ...] | None) -> SourcePartition:
    if hidden is None:
        return part
    counts = _counts(part.batches, RecordCounter(hidden))
    return replace(part, carried=replace(part.carried, **counts, are_records=True))


def _counts(batches: Sequence[StateBatch], records: RecordCounter | None) -> dict[str, Any]:
    """What was delivered in `batches`; nothing is known without a start offset, and so without `records`."""
    if records is None:
        return dict.fromkeys(("acknowledged", "archived", "in_flight"))
    found = dict.fromkeys(("acknowledged", "archived", "in_flight"), 0)
    names = {DeliveryState.ACKNOWLEDGED: "acknowledged", DeliveryState.ARCHIVED: "archived"}
    for batch in batches:
        name = names[DeliveryState(batch.delivery_state)] if batch.is_terminal else "in_flight"
        found[name] += records.count(batch.first_offset, batch.last_offset)
    return found


def _selected(request: ResetRequest, known: Collection[str], at: str | None) -> frozenset[str]:
    """The groups that are asked for, among those `known`."""
    when = "" if at is None else f" at {at}"
    if request.all_groups:
        return frozenset(known)
    for group in request.groups:
        if group not in known:
            near = get_close_matches(group, known, n=3)
            hint = f"did you mean {', '.join(map(repr, near))}?" if near else "acktrail record state lists all"
            raise ChangeRefused("no_such_group", f"the tables have no share group {group!r}{when}", hint=hint)
    matched = {glob: {group for group in known if fnmatchcase(group, glob)} for glob in request.group_globs}
    for glob, groups in matched.items():
        if not groups:
            raise ChangeRefused("no_such_group", f"no share group in the tables matches {glob!r}{when}")
    return frozenset(request.groups).union(*matched.values())


def _topics(tables: Tables) -> tuple[dict[str, str], dict[str, int]]:
    """Name by topic id, and partition count by name: that of the newest topic with the name."""
    rows = tables.read("topics", columns=["topic_id", "topic", "partition_count", "last_seen_at"]).to_pylist()
    rows.sort(key=lambda row: row["last_seen_at"])
    counts = {row["topic"]: row["partition_count"] for row in rows if row["partition_count"] is not None}
    return {row["topic_id"]: row["topic"] for row in rows if row["topic"] is not None}, counts


def _newest(parts: Iterable[SourcePartition]) -> Iterator[SourcePartition]:
    """One for each group, topic name and partition: that of the incarnation of the topic that was written last."""
    found: dict[tuple[str, tuple[str, int]], SourcePartition] = {}
    for part in parts:
        key = (part.group_id, part.place)
        if key not in found or (found[key].last_record_ms or 0) < (part.last_record_ms or 0):
            found[key] = part
    yield from found.values()


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


def as_read(request: ResetRequest, source: SourceStates) -> ResetRequest:
    """`request` with the source's cluster and the groups that it chose, as the plan keeps it."""
    assert request.migration is not None
    migration = replace(request.migration, source_cluster_id=source.cluster_id)
    strategy = replace(request.strategy, moment_ms=migration.at_ms, source=migration.text)
    return replace(
        request, strategy=strategy, migration=migration, groups=source.group_ids, group_globs=(), all_groups=False
    )
