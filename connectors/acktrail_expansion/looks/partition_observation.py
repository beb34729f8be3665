"""One look at the partitions of topics: how many there are, who leads them, where their logs begin and end."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

import pyarrow as pa

from acktrail.broker.admin import ShareGroupAdmin, client_of
from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, error_text
from acktrail.broker.descriptions import TopicPartition
from acktrail.broker.logs import HIGH_WATERMARK, START, Query, first_error, query_leaders
from acktrail.broker.topic_configs import compacted_topics
from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.connect.source_batches import SourceBatch, SourcePartition
from acktrail.errors import RetryableError
from acktrail_expansion.looks.epoch_ends import EpochEnd, epoch_ends
from acktrail_expansion.looks.group_positions import observe_positions
from acktrail_expansion.looks.partition_listing import ListedTopic, PartitionLeader, list_partitions

OBSERVATIONS: Final = "partition_observations"
POSITIONS: Final = "group_positions"
_UTC_NOW: Final = partial(dt.datetime.now, dt.UTC)
_TRANSACTIONS: Final = "__transaction_state"
"""Kafka: ``Topic.TRANSACTION_STATE_TOPIC_NAME``, which the first transactional producer of a cluster makes."""
_Identity = tuple[str | None, int] | None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """One log with what its leader says. `leader_epoch` is that of the answer about its end: the list can be older."""

    leader: PartitionLeader
    results: Mapping[Query, Any]
    leader_epoch: int | None

    @property
    def led(self) -> tuple[int, int] | None:
        """Its leader's id and epoch."""
        if self.leader.leader_id is None or self.leader_epoch is None:
            return None
        return self.leader.leader_id, self.leader_epoch


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
    client = client_of(admin)
    named = None if topics is None else sorted(set(topics))
    listed = [topic for topic in list_partitions(client, named) if named is not None or not topic.is_internal]
    names = [topic.name for topic in listed]
    at = clock()
    logs = _logs(client, listed)
    ended = epoch_ends(client, {place: led for place, log in logs.items() if (led := log.led) is not None})
    again = _listed_everywhere(admin, names)
    listed_at = clock()
    gapless = gapless_topics(client, [topic.name for topic in listed if not topic.error_code])
    look = {"cluster_id": admin.cluster_id, "run_id": run_id}
    rows = [
        {**look, "observed_at": at, "listed_at": listed_at, "is_gapless": gapless.get(topic.name), **row}
        for topic in listed
        for row in _topic_rows(topic, again.get(topic.name, frozenset()), logs, ended)
    ]
    topic_ids = {topic.name: topic.topic_id for topic in listed if not topic.error_code}
    positions = [{**look, **row} for row in observe_positions(admin, topic_ids, clock)]
    found = {OBSERVATIONS: rows, POSITIONS: positions}
    return SourceBatch(
        source_partition=SourcePartition(f"partitions/{admin.cluster_id}"),
        rows={name: pa.Table.from_pylist(own, schema=TABLES[name]) for name, own in found.items()},
    )


def gapless_topics(client: BrokerClient, topics: Sequence[str]) -> dict[str, bool | None]:
    """Whether each of `topics` has no offset that is no record's. False: it is compacted. None: not known; where the
    cluster had transactions there can be their markers and aborted records in any topic, and without DESCRIBE on their
    topic, or DESCRIBE_CONFIGS on the topic itself, nothing is known. Raises Unreachable, RetryableError: no broker
    answered."""
    if not topics:
        return {}
    (transactions,) = list_partitions(client, [_TRANSACTIONS]) or (None,)
    has_none = transactions is not None and transactions.error_code == UNKNOWN_TOPIC_OR_PARTITION
    found = compacted_topics(client, topics)
    known = {True: False, False: True if has_none else None, None: None}
    return {topic: known[found[topic]] for topic in topics}


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


def _logs(client: BrokerClient, listed: Iterable[ListedTopic]) -> dict[TopicPartition, _Log]:
    leaders = {
        TopicPartition(topic=topic.name, partition=leader.partition): leader
        for topic in listed
        for leader in topic.partitions
    }
    ends = query_leaders(client, leaders, (HIGH_WATERMARK, START))

    def epoch(place: TopicPartition, listed: int | None) -> int | None:
        answered = _known(ends[place][HIGH_WATERMARK].leader_epoch)
        return listed if answered is None else max(answered, listed or 0)

    return {
        place: _Log(leader=leader, results=ends[place], leader_epoch=epoch(place, leader.leader_epoch))
        for place, leader in leaders.items()
    }


def _topic_rows(
    topic: ListedTopic,
    again: frozenset[_Identity],
    logs: Mapping[TopicPartition, _Log],
    ended: Mapping[TopicPartition, EpochEnd],
) -> Iterator[dict[str, Any]]:
    common: dict[str, Any] = {"topic": topic.name, "topic_id": topic.topic_id}
    if topic.error_code:
        yield {**common, "error_code": topic.error_code, "error": topic.error}
        return
    places = [TopicPartition(topic=topic.name, partition=leader.partition) for leader in topic.partitions]
    consistency = Consistency.STRADDLES
    if again == {_identity(topic)}:
        is_whole = all(first_error(logs[place].results) == NONE for place in places)
        consistency = Consistency.CONSISTENT if is_whole else Consistency.PARTIAL
    common |= {"partition_count": topic.partition_count, "consistency": consistency.value}
    for place in places:
        yield {**common, **_partition_row(logs[place], ended.get(place))}


def _partition_row(log: _Log, end: EpochEnd | None) -> dict[str, Any]:
    error = first_error(log.results)
    return {
        "partition": log.leader.partition,
        "leader_id": log.leader.leader_id,
        "leader_epoch": log.leader_epoch,
        "ended_epoch": None if end is None else end.epoch,
        "epoch_end_offset": None if end is None else end.end_offset,
        "log_start_offset": _known(log.results[START].offset),
        "log_end_offset": _known(log.results[HIGH_WATERMARK].offset),
        "error_code": error,
        "error": error_text(error),
    }


def _known(number: int) -> int | None:
    return number if number >= 0 else None
