"""One look at the partitions of topics: how many there are, who leads them, where their logs begin and end."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

import pyarrow as pa

from acktrail.broker.admin import ShareGroupAdmin, client_of
from acktrail.broker.client.error_codes import NONE, error_text
from acktrail.broker.descriptions import TopicPartition
from acktrail.broker.ledger.epoch_ends import EpochEnd, LedLog, epoch_ends
from acktrail.broker.ledger.gapless_topics import gapless_topics
from acktrail.broker.ledger.group_positions import observe_positions
from acktrail.broker.ledger.partition_listing import ListedTopic, PartitionLeader, list_partitions
from acktrail.broker.logs import HIGH_WATERMARK, LAST_STABLE, MAX_TIMESTAMP, START, Query, first_error, query_leaders
from acktrail.columnar.schemas.table_schemas import GROUP_POSITIONS, PARTITION_OBSERVATIONS
from acktrail.connect.source_batches import SourceBatch, SourcePartition
from acktrail.errors import RetryableError

_UTC_NOW: Final = partial(dt.datetime.now, dt.UTC)
_Identity = tuple[str | None, int] | None
_QUERIES: Final = (HIGH_WATERMARK, LAST_STABLE, START, MAX_TIMESTAMP)


class Consistency(StrEnum):
    """What one observation of a topic is worth."""

    CONSISTENT = "consistent"
    """The same partitions before and after the offsets were asked for, by every broker: the ends are of a time with
    that count."""
    STRADDLES = "straddles"
    """The topic changed meanwhile, or not every broker knew of it or answered: its ends are upper bounds of those
    before the change."""
    PARTIAL = "partial"
    """Some of its logs could not be asked."""


def observe_partitions(
    admin: ShareGroupAdmin,
    *,
    run_id: str,
    topics: Iterable[str] | None = None,
    clock: Callable[[], dt.datetime] = _UTC_NOW,
) -> SourceBatch:
    """Rows of ``partition_observations`` and ``group_positions``: of the topics named, None: of all that are not
    internal.

    Partitions are listed, then the ends of all logs asked for, then partitions are listed again, by every broker: only
    where all lists agree do the ends belong to the count. One broker can learn of an expansion before another, and
    producers from either: a broker that still lists the old count proves nothing alone. `observed_at` is before the
    ends were asked for, `listed_at` after the last list. Where earlier leaders' records end is asked of the leader that
    gave the log's end. A topic that cannot be described is one row with the reason, as is one that is gone; a partition
    whose log cannot be asked is a row with its error. Groups are asked last. Raises as ``ShareGroupAdmin``.
    """
    named = None if topics is None else sorted(set(topics))
    listed = [topic for topic in list_partitions(client_of(admin), named) if named is not None or not topic.is_internal]
    places = [
        TopicPartition(topic=topic.name, partition=each.partition) for topic in listed for each in topic.partitions
    ]
    at = clock()
    ends = query_leaders(client_of(admin), places, _QUERIES)
    logs = _logs(admin, listed, ends)
    again = _listed_everywhere(admin, [topic.name for topic in listed])
    listed_at = clock()
    gapless = gapless_topics(client_of(admin), [topic.name for topic in listed if not topic.error_code])
    look = {"cluster_id": admin.cluster_id, "run_id": run_id}
    rows = [
        {**look, "observed_at": at, "listed_at": listed_at, "is_gapless": gapless.get(topic.name), **row}
        for topic in listed
        for row in _topic_rows(topic, again.get(topic.name, frozenset()), logs)
    ]
    topic_ids = {topic.name: topic.topic_id for topic in listed if not topic.error_code}
    positions = [{**look, **row} for row in observe_positions(admin, topic_ids, clock)]
    return SourceBatch(
        source_partition=SourcePartition(f"partitions/{admin.cluster_id}"),
        rows={
            "partition_observations": pa.Table.from_pylist(rows, schema=PARTITION_OBSERVATIONS),
            "group_positions": pa.Table.from_pylist(positions, schema=GROUP_POSITIONS),
        },
    )


def _listed_everywhere(admin: ShareGroupAdmin, names: Sequence[str]) -> dict[str, frozenset[_Identity]]:
    """Topic id and partition count by topic, as each broker lists them now; None among them: a broker did not
    answer."""
    found: dict[str, set[_Identity]] = defaultdict(set)
    client_of(admin).metadata([])  # learn which brokers there are
    for node_id in admin.broker_ids():
        try:
            listed = {each.name: _identity(each) for each in list_partitions(client_of(admin), names, node_id=node_id)}
        except RetryableError:
            listed = {}
        for name in names:
            found[name].add(listed.get(name))
    return {name: frozenset(each) for name, each in found.items()}


def _identity(topic: ListedTopic) -> _Identity:
    return topic.topic_id, topic.partition_count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """What one log has by its leader; `leader_epoch` is that of the answer about its end."""

    results: Mapping[Query, Any]
    leader_epoch: int | None
    epoch_end: EpochEnd | None = None


def _logs(
    admin: ShareGroupAdmin, listed: Iterable[ListedTopic], ends: Mapping[TopicPartition, Mapping[Query, Any]]
) -> dict[TopicPartition, _Log]:
    leaders = {
        TopicPartition(topic=topic.name, partition=each.partition): each
        for topic in listed
        for each in topic.partitions
    }
    epochs = {place: _leader_epoch(leader, ends[place]) for place, leader in leaders.items()}
    led = [
        LedLog(place=place, leader_id=leader.leader_id, leader_epoch=epoch)
        for place, leader in leaders.items()
        if leader.leader_id is not None and (epoch := epochs[place]) is not None
    ]
    found = epoch_ends(client_of(admin), led)
    return {
        place: _Log(results=ends[place], leader_epoch=epoch, epoch_end=found.get(place))
        for place, epoch in epochs.items()
    }


def _leader_epoch(leader: PartitionLeader, results: Mapping[Query, Any]) -> int | None:
    """Of the leader that gave the log's end: the list can be older."""
    answered = _known(results[HIGH_WATERMARK].leader_epoch)
    return leader.leader_epoch if answered is None else max(answered, leader.leader_epoch or 0)


def _topic_rows(
    topic: ListedTopic, again: frozenset[_Identity], logs: Mapping[TopicPartition, _Log]
) -> list[dict[str, Any]]:
    own = {"topic": topic.name, "topic_id": topic.topic_id}
    if topic.error_code:
        return [{**own, "error_code": topic.error_code, "error": topic.error}]
    own_logs = {each: logs[TopicPartition(topic=topic.name, partition=each.partition)] for each in topic.partitions}
    consistency = _consistency(topic, again, [first_error(log.results) for log in own_logs.values()])
    common = {**own, "partition_count": topic.partition_count, "consistency": consistency.value}
    return [{**common, **_partition_row(each, log)} for each, log in own_logs.items()]


def _consistency(topic: ListedTopic, again: frozenset[_Identity], errors: Iterable[int]) -> Consistency:
    if again != {_identity(topic)}:
        return Consistency.STRADDLES
    return Consistency.PARTIAL if any(error != NONE for error in errors) else Consistency.CONSISTENT


def _partition_row(leader: PartitionLeader, log: _Log) -> dict[str, Any]:
    result, end = log.results, log.epoch_end
    error = first_error(result)
    return {
        "partition": leader.partition,
        "leader_id": leader.leader_id,
        "leader_epoch": log.leader_epoch,
        "ended_epoch": None if end is None else end.epoch,
        "epoch_end_offset": None if end is None else end.end_offset,
        "isr_count": leader.isr_count,
        "log_start_offset": _known(result[START].offset),
        "log_end_offset": _known(result[HIGH_WATERMARK].offset),
        "last_stable_offset": _known(result[LAST_STABLE].offset),
        "max_timestamp_ms": _known(result[MAX_TIMESTAMP].timestamp),
        "max_timestamp_offset": _known(result[MAX_TIMESTAMP].offset),
        "error_code": error,
        "error": error_text(error),
    }


def _known(number: int) -> int | None:
    return number if number >= 0 else None
