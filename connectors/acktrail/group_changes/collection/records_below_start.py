"""What groups did with the records below their start offsets that a plan delivers again: from the tables.

Kafka keeps delivery states only from the start offset on; the exported history has those below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ForeignCluster
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.facts import PartitionFacts, PassedFacts, Snapshot
from acktrail.group_changes.planning.strategies import resolve
from acktrail.group_changes.request.reset_request import ResetRequest
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

if TYPE_CHECKING:
    from acktrail.group_changes.planning.plan import PartitionPlan
    from acktrail.tables.past.settled_history import AffectedRange


_NO_TABLES: Final = "no tables are given (--tables, ACKTRAIL_TABLES), and Kafka keeps nothing below the start offset"

Part = tuple[str, str, int]


def passed_range(facts: PartitionFacts | PartitionPlan, target: int | None) -> tuple[int, int] | None:
    """First and last offset that lie below the start offset and are delivered again from `target`; None: none is."""
    start = facts.state.start_offset if facts.state is not None else facts.start_offset
    if target is None or start is None or facts.log_start_offset is None or facts.log_end_offset is None:
        return None
    first, last = max(target, facts.log_start_offset), min(start, facts.log_end_offset) - 1
    return (first, last) if first <= last else None


def with_passed(
    cluster: Cluster | None, tables: TablesConfig | None, request: ResetRequest, snapshot: Snapshot
) -> Snapshot:
    """`snapshot` with `passed` for every share partition that `request` takes back below its start offset. What cannot
    be read is unknown, with the reason. With `cluster` state records that the history does not have yet are read there.

    Raises:
        ForeignCluster: the tables are another cluster's.
    """
    wanted = {
        (facts.group_id, facts.topic, facts.partition): span
        for facts in snapshot.partitions
        if (span := passed_range(facts, resolve(request.strategy, facts, request.out_of_range).target)) is not None
    }
    if not wanted:
        return snapshot
    found = _unknown(wanted, _NO_TABLES) if tables is None else _read(cluster, tables, snapshot, wanted)
    return replace(
        snapshot,
        partitions=tuple(
            replace(facts, passed=found.get((facts.group_id, facts.topic, facts.partition)))
            for facts in snapshot.partitions
        ),
    )


def _unknown(wanted: Mapping[Part, tuple[int, int]], reason: str) -> dict[Part, PassedFacts]:
    return {
        part: PassedFacts(
            first_offset=first,
            last_offset=last,
            acknowledged=0,
            archived=0,
            unknown=last - first + 1,
            since_ms=None,
            reason=reason,
        )
        for part, (first, last) in wanted.items()
    }


def _read(
    connection: Cluster | None, tables: TablesConfig, snapshot: Snapshot, wanted: Mapping[Part, tuple[int, int]]
) -> dict[Part, PassedFacts]:
    from acktrail.group_changes.collection.newer_records import add_newer
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.past.settled_history import SettledHistory

    ranges, cluster = _ranges(snapshot, wanted), snapshot.cluster
    try:
        history = SettledHistory(Tables(tables), cluster.cluster_id, cluster.state_topic_id, list(ranges.values()))
        if connection is not None and history.behind:
            add_newer(connection, history)
        told = history.outcomes()
    except ForeignCluster:
        raise
    except AcktrailError as error:
        return _unknown(wanted, error.message)
    return {
        part: PassedFacts(
            first_offset=own.first_offset,
            last_offset=own.last_offset,
            acknowledged=told[own.key].settled.acknowledged,
            archived=told[own.key].settled.archived,
            unknown=told[own.key].settled.unknown,
            since_ms=told[own.key].settled.since_ms,
            reason=told[own.key].reason,
        )
        for part, own in ranges.items()
    }


def _ranges(snapshot: Snapshot, wanted: Mapping[Part, tuple[int, int]]) -> dict[Part, AffectedRange]:
    from acktrail.tables.past.settled_history import AffectedRange

    topic_ids = {topic.topic: topic.topic_id for topic in snapshot.topics}
    found: dict[Part, AffectedRange] = {}
    for facts in snapshot.partitions:
        part = (facts.group_id, facts.topic, facts.partition)
        if part not in wanted:
            continue
        key = SharePartition(
            group_id=GroupId(facts.group_id),
            topic_id=TopicId(topic_ids[facts.topic] or ""),
            partition=facts.partition,
        )
        found[part] = AffectedRange(
            key=key,
            first_offset=wanted[part][0],
            last_offset=wanted[part][1],
            state_partition=None if facts.state is None else facts.state.state_partition,
            record_offset=None if facts.state is None else facts.state.record_offset,
        )
    return found
