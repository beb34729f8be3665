"""What the numbers of a plan count: which offsets are records of a group, and what groups did with the records below
their start offsets that a plan delivers again.

Kafka keeps delivery states only from the start offset on. The exported history has those below, and the state topic the
records that are not exported yet. The record batches of the logs show which offsets are no records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from acktrail.change.cluster import Cluster
from acktrail.change.plan.impact import resolve
from acktrail.change.plan.snapshot_facts import PartitionFacts, PartitionOffsets, PassedFacts, Snapshot
from acktrail.change.request.reset_request import ResetRequest
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ForeignCluster
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.descriptions import Batch, LogStretch
from acktrail.kafka.log_reader import StateTopic
from acktrail.kafka.log_stretches import DEPENDS_ON_LEVEL, ISOLATION, hidden_offsets, read_batches
from acktrail.kafka.state_lookup import StateLookup
from acktrail.model.offset_ranges import RecordCounter, Span

if TYPE_CHECKING:
    from acktrail.history.record_outcomes import RecordOutcomes

_MOST_LOGS: Final = 64
_MOST_OFFSETS: Final = 100_000
_MOST_BYTES: Final = 4 << 20
"""For all logs together."""
_Key = tuple[str, str, int]
"""Group, topic, partition."""
_NO_TABLES: Final = "no tables are given (--tables, ACKTRAIL_TABLES), and Kafka keeps nothing below the start offset"

_Wanted = Mapping[_Key, tuple[PartitionFacts, Span]]
_Place = tuple[str, int]


def with_hidden(admin: ShareGroupAdmin, request: ResetRequest, snapshot: Snapshot) -> Snapshot:
    """Return `snapshot` with `hidden` for every share partition whose log is short enough to be read, from where the
    group or `request` begins. Raises Unreachable, RetryableError: a broker did not answer."""
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
    """Return the record batches of each log, over all its stretches, without logs that are too long or cannot be
    read."""
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
    """Return the log from the start offset or the target on, whichever is first."""
    log_start, end = facts.log_start_offset, facts.log_end_offset
    target = resolve(request.strategy, facts, request.out_of_range).target
    if target is None or log_start is None or end is None:
        return None
    first = min(target, max(facts.recorded_start or 0, log_start))
    return LogStretch(topic=facts.topic, partition=facts.partition, first_offset=first, end_offset=end)


def passed_range(facts: PartitionOffsets, target: int | None) -> Span | None:
    """Return the first and last offset that lie below the start offset and are delivered again from `target`; None:
    there is none."""
    start = facts.recorded_start
    if target is None or start is None or facts.log_start_offset is None or facts.log_end_offset is None:
        return None
    first, last = max(target, facts.log_start_offset), min(start, facts.log_end_offset) - 1
    return (first, last) if first <= last else None


def with_passed(
    cluster: Cluster | None, tables: TablesConfig | None, request: ResetRequest, snapshot: Snapshot
) -> Snapshot:
    """Return `snapshot` with `passed` for every share partition that `request` takes back below its start offset. What
    cannot be read is unknown, with the reason. With `cluster`, state records that the history does not have yet are
    read from it. Raises ForeignCluster: the tables are another cluster's."""
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
    from acktrail.history.record_outcomes import AffectedRange, RecordOutcomes
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
    history = RecordOutcomes(Tables(tables), cluster.cluster_id, cluster.state_topic_id, list(ranges.values()))
    if connection is not None and history.behind:
        _add_newer(connection, history)
    outcomes = history.outcomes()
    return {
        key: PassedFacts(first_offset=own.first_offset, last_offset=own.last_offset, **asdict(outcomes[own.key]))
        for key, own in ranges.items()
    }


def _add_newer(cluster: Cluster, history: RecordOutcomes) -> None:
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
