"""What groups did with the records below their start offsets that a plan delivers again: from the tables.

Kafka keeps delivery states only from the start offset on; the exported history has those below, and the state topic the
records that are not exported yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from acktrail.change.cluster import Cluster
from acktrail.change.collection.facts import (
    PartitionFacts,
    PartitionOffsets,
    PassedFacts,
    Snapshot,
    unknown_facts,
)
from acktrail.change.planning.strategies import resolve
from acktrail.change.request.reset_request import ResetRequest
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ForeignCluster
from acktrail.model.offset_ranges import RecordCounter, Span
from acktrail.model.share_partition import SharePartition, state_partition_of

if TYPE_CHECKING:
    from acktrail.format.wire.raw_record import AddressedRecord
    from acktrail.model.records import StateRecord
    from acktrail.model.status_changes import KnownState, StatusChange
    from acktrail.reconcile.past.settled_history import SettledHistory

_NO_TABLES: Final = "no tables are given (--tables, ACKTRAIL_TABLES), and Kafka keeps nothing below the start offset"

_Key = tuple[str, str, int]
_Wanted = Mapping[_Key, tuple[PartitionFacts, Span]]


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
        found, reason = {} if tables is None else _read(cluster, tables, snapshot, wanted), _NO_TABLES
    except ForeignCluster:
        raise
    except AcktrailError as error:
        found, reason = {}, error.message
    passed = {key: found.get(key) or _unknown(facts, span, reason) for key, (facts, span) in wanted.items()}
    rows = tuple(replace(facts, passed=passed.get(facts.key)) for facts in snapshot.partitions)
    return replace(snapshot, partitions=rows)


def _unknown(facts: PartitionFacts, span: Span, reason: str) -> PassedFacts:
    return unknown_facts(*span, RecordCounter(facts.hidden or ()).count(*span), reason)


def _read(
    connection: Cluster | None, tables: TablesConfig, snapshot: Snapshot, wanted: _Wanted
) -> dict[_Key, PassedFacts]:
    from acktrail.reconcile.past.settled_history import AffectedRange, SettledHistory
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
        key: PassedFacts(
            first_offset=own.first_offset,
            last_offset=own.last_offset,
            acknowledged=outcomes[own.key].settled.acknowledged,
            archived=outcomes[own.key].settled.archived,
            unknown=outcomes[own.key].settled.unknown,
            since_ms=outcomes[own.key].settled.since_ms,
            reason=outcomes[own.key].reason,
        )
        for key, own in ranges.items()
    }


def _add_newer(cluster: Cluster, history: SettledHistory) -> None:
    """Add to `history` the newer records of its share partitions that are behind. Records that were pruned before they
    were exported leave a gap, as in an export."""
    from acktrail.kafka.state.state_topic import StateTopic

    keys = {own.key for own in history.behind}
    positions, held = history.saved_states(keys)
    topic = StateTopic(cluster.admin)
    numbers = {key: state_partition_of(key, topic.partition_count) for key in keys}
    logs = topic.log_offsets(set(numbers.values()))
    starts = {number: max(positions.get(number, 0), log.log_start_offset or 0) for number, log in logs.items()}
    records, ends = cluster.state_lookup(topic).read_from(keys, starts)
    own = {number: {key: state for key, state in held.items() if numbers[key] == number} for number in logs}
    gaps = {number: positions.get(number, 0) for number in logs if starts[number] > positions.get(number, 0)}
    history.add(_changes(records, own, gaps), {number: ends[number] for number in logs})


def _changes(
    records: Sequence[tuple[SharePartition, AddressedRecord[StateRecord]]],
    held: Mapping[int, dict[SharePartition, KnownState]],
    gaps: Mapping[int, int],
) -> Iterator[StatusChange]:
    from acktrail.model.status_changes import History

    histories = {number: History(number, states) for number, states in held.items()}
    for number, first_offset in gaps.items():
        yield from histories[number].gap(first_offset)
    for key, addressed in sorted(records, key=lambda one: (one[1].raw.state_partition, one[1].raw.offset)):
        history, raw = histories[addressed.raw.state_partition], addressed.raw
        if addressed.record is None:
            yield from history.unreadable(key, offset=raw.offset, timestamp_ms=raw.timestamp_ms)
        else:
            yield from history.record(addressed.record, offset=raw.offset, timestamp_ms=raw.timestamp_ms)
