"""What the numbers of a plan count: which offsets are records of a group, and what groups did with those below their
start offsets that a plan delivers again.

Kafka keeps delivery states only from the start offset on; the exported history has those below, and the state topic the
records that are not exported yet. Which offsets are no records show the record batches of the logs.
Start offsets of an earlier moment follow from the exported records alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

from acktrail.change.cluster import Cluster
from acktrail.change.collection.facts import (
    PartitionFacts,
    PartitionOffsets,
    PassedFacts,
    Snapshot,
    TargetOffset,
    TargetOffsets,
)
from acktrail.change.planning.impact import resolve
from acktrail.change.request.reset_request import ResetRequest
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ForeignCluster
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.descriptions import Batch, LogStretch, TopicPartition
from acktrail.kafka.log_reader import StateTopic
from acktrail.kafka.log_stretches import DEPENDS_ON_LEVEL, ISOLATION, hidden_offsets, read_batches
from acktrail.kafka.state_lookup import StateLookup
from acktrail.model.offset_ranges import RecordCounter, Span
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.times import instant_text

if TYPE_CHECKING:
    from acktrail.history.replay_resume import TopicAtTime
    from acktrail.history.settled_history import SettledHistory
    from acktrail.tables.delta.store import Tables

_MOST_LOGS: Final = 64
_MOST_OFFSETS: Final = 100_000
_MOST_BYTES: Final = 4 << 20
"""For all logs together."""
_Key = tuple[str, str, int]
"""Group, topic, partition."""
_NO_TABLES: Final = "no tables are given (--tables, ACKTRAIL_TABLES), and Kafka keeps nothing below the start offset"

_COMPLETE: Final = "complete"
NOT_INITIALIZED: Final = "it had no start offset: it was not initialized"

_Wanted = Mapping[_Key, tuple[PartitionFacts, Span]]
_Place = tuple[str, int]


def with_hidden(admin: ShareGroupAdmin, request: ResetRequest, snapshot: Snapshot) -> Snapshot:
    """`snapshot` with `hidden` for every share partition whose log is short enough to be looked through, from where
    the group or `request` begins. Raises Unreachable, RetryableError: a broker did not answer."""
    stretches = {facts.key: found for facts in snapshot.partitions if (found := _stretch(request, facts)) is not None}
    batches = _read_batches(admin, stretches.values())
    depends = {
        place for place, found in batches.items() if not DEPENDS_ON_LEVEL.isdisjoint(batch.kind for batch in found)
    }
    groups = {group for group, topic, partition in stretches if (topic, partition) in depends}
    levels = {one.group_id: (one.configs or {}).get(ISOLATION) for one in admin.group_configs(sorted(groups))}
    hidden = {
        key: hidden_offsets(batches[key[1:]], stretch.first_offset, stretch.end_offset - 1, levels.get(key[0]))
        for key, stretch in stretches.items()
        if key[1:] in batches
    }
    rows = tuple(replace(facts, hidden=hidden.get(facts.key)) for facts in snapshot.partitions)
    return replace(snapshot, partitions=rows)


def _read_batches(admin: ShareGroupAdmin, stretches: Iterable[LogStretch]) -> dict[_Place, Sequence[Batch]]:
    """The record batches of each log, over all its stretches; without those that are too long, or cannot be read."""
    by_log: dict[_Place, LogStretch] = {}
    for one in stretches:
        known = by_log.get((one.topic, one.partition), one)
        first, end = min(known.first_offset, one.first_offset), max(known.end_offset, one.end_offset)
        by_log[one.topic, one.partition] = replace(one, first_offset=first, end_offset=end)
    short = {place: one for place, one in by_log.items() if one.end_offset - one.first_offset <= _MOST_OFFSETS}
    asked = [one for one in short.values() if one.first_offset < one.end_offset] if len(by_log) <= _MOST_LOGS else []
    read = read_batches(client_of(admin), asked, most_bytes=_MOST_BYTES // len(asked)) if asked else {}
    is_empty = {place: () for place, one in short.items() if one.first_offset >= one.end_offset}
    return {**is_empty, **{(one.topic, one.partition): found for one, found in read.items()}}


def _stretch(request: ResetRequest, facts: PartitionFacts) -> LogStretch | None:
    """The log from the start offset or the target on, whichever is first."""
    log_start, end = facts.log_start_offset, facts.log_end_offset
    target = resolve(request.strategy, facts, request.out_of_range).target
    if target is None or log_start is None or end is None:
        return None
    first = min(target, max(facts.recorded_start or 0, log_start))
    return LogStretch(topic=facts.topic, partition=facts.partition, first_offset=first, end_offset=end)


def passed_range(facts: PartitionOffsets, target: int | None) -> Span | None:
    """First and last offset that lie below the start offset and are delivered again from `target`; None: none is."""
    start = facts.recorded_start
    if target is None or start is None or facts.log_start_offset is None or facts.log_end_offset is None:
        return None
    first, last = max(target, facts.log_start_offset), min(start, facts.log_end_offset) - 1
    return (first, last) if first <= last else None


def with_passed(
    cluster: Cluster | None, tables: TablesConfig | None, request: ResetRequest, snapshot: Snapshot
) -> Snapshot:
    """`snapshot` with `passed` for every share partition that `request` takes back below its start offset. What cannot
    be read is unknown, with the reason. With `cluster` state records that the history does not have yet are read there.
    Raises ForeignCluster: the tables are another cluster's."""
    wanted = {
        facts.key: (facts, span)
        for facts in snapshot.partitions
        if (span := passed_range(facts, resolve(request.strategy, facts, request.out_of_range).target)) is not None
    }
    if not wanted:
        return snapshot
    try:
        found, reason = {} if tables is None else _read_history(cluster, tables, snapshot, wanted), _NO_TABLES
    except ForeignCluster:
        raise
    except AcktrailError as error:
        found, reason = {}, error.message
    passed = {key: found.get(key) or _unknown(facts, span, reason) for key, (facts, span) in wanted.items()}
    rows = tuple(replace(facts, passed=passed.get(facts.key)) for facts in snapshot.partitions)
    return replace(snapshot, partitions=rows)


def _unknown(facts: PartitionFacts, span: Span, reason: str) -> PassedFacts:
    records = RecordCounter(facts.hidden or ()).count(*span)
    return PassedFacts(first_offset=span[0], last_offset=span[1], unknown=records, reason=reason)


def _read_history(
    connection: Cluster | None, tables: TablesConfig, snapshot: Snapshot, wanted: _Wanted
) -> dict[_Key, PassedFacts]:
    from acktrail.history.settled_history import AffectedRange, SettledHistory
    from acktrail.tables.delta.store import Tables

    cluster = snapshot.cluster
    ranges = {
        key: AffectedRange(
            key=facts.share_partition,
            first_offset=first,
            last_offset=last,
            hidden=facts.hidden or (),
            state_partition=None if facts.state is None else facts.state.state_partition,
            record_offset=None if facts.state is None else facts.state.record_offset,
        )
        for key, (facts, (first, last)) in wanted.items()
    }
    history = SettledHistory(Tables(tables), cluster.cluster_id, cluster.state_topic_id, list(ranges.values()))
    if connection is not None and history.behind:
        _add_newer(connection, history)
    outcomes = history.outcomes()
    return {
        key: PassedFacts(first_offset=own.first_offset, last_offset=own.last_offset, **asdict(outcomes[own.key]))
        for key, own in ranges.items()
    }


def _add_newer(cluster: Cluster, history: SettledHistory) -> None:
    """Add to `history` the newer records of its share partitions that are behind. Records that were pruned before they
    were exported leave a gap, as in an export."""
    lookup = StateLookup(StateTopic(cluster.admin))
    places = {own.key: lookup.state_partition(own.key) for own in history.behind}
    positions, held = history.saved_states()
    saved = {number: positions.get(number, 0) for number in places.values()}
    starts, _ = lookup.bounds(saved)
    records, ends = lookup.read_from(places, {number: max(at, starts[number]) for number, at in saved.items()})
    pruned = {number: (at, starts[number]) for number, at in saved.items() if at < starts[number]}
    history.add(held, [addressed.raw for _, addressed in records], pruned, ends)


def from_history(admin: ShareGroupAdmin, config: TablesConfig, groups: Sequence[str], moment_ms: int) -> TargetOffsets:
    """Start offsets of groups at a moment, by the exported state records; with a reason where they do not show it.
    Raises NotAuthorized, RetryableError: the cluster does not answer how far the state topic reached then.
    ConfigurationError, RetryableError: nothing was exported, or the tables cannot be read."""
    from acktrail.history.replay_resume import states_of_topic, topic_at_time
    from acktrail.tables.delta.store import Tables

    tables = Tables(config)
    moment, (names, _) = topic_at_time(tables, moment_ms), topics_by_id(tables)
    rows = [row for row in states_of_topic(tables, moment).to_pylist() if row["group_id"] in groups]
    behind = _not_exported(admin, tables, moment, {row["state_partition"] for row in rows})
    found: dict[str, dict[tuple[str, int], TargetOffset]] = defaultdict(dict)
    for row in rows:
        start, reason = replayed_start(row)
        number, topic = row["state_partition"], names.get(row["topic_id"])
        if number in behind:
            start = None
            reason = f"state partition {number} is not exported up to {instant_text(moment_ms)}: export first"
        if topic is not None:
            then = TargetOffset(offset=start, reason=reason, topic_id=row["topic_id"])
            found[row["group_id"]][topic, row["partition"]] = then
    return found


def replayed_start(row: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """The first unfinished offset in a row of a replay (``acktrail.history.partition_replay.REPLAYED``); without one
    the reason."""
    start, reason = row["first_unfinished_offset"], row["completeness_reason"]
    if row["completeness"] != _COMPLETE:
        return None, f"its state is not known for sure: {reason or row['completeness']}"
    return start, NOT_INITIALIZED if start is None else reason


def topics_by_id(tables: Tables) -> tuple[dict[str, str], dict[str, int]]:
    """Name by topic id, and partition count by name: that of the newest topic with the name."""
    rows = tables.read("topics", columns=["topic_id", "topic", "partition_count", "last_seen_at"]).to_pylist()
    rows.sort(key=lambda row: row["last_seen_at"])
    counts = {row["topic"]: row["partition_count"] for row in rows if row["partition_count"] is not None}
    return {row["topic_id"]: row["topic"] for row in rows if row["topic"] is not None}, counts


def _not_exported(admin: ShareGroupAdmin, tables: Tables, moment: TopicAtTime, numbers: set[int]) -> set[int]:
    """The state partitions among `numbers` that have records up to the moment which the tables lack."""
    from acktrail.tables.records.export_ranges import newest_shifts

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
