"""One look at the partitions of topics: how many there are, who leads them, where their logs begin and end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from acktrail.connect.source_batches import SourceBatch, SourcePartition
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.error_codes import UNKNOWN_TOPIC_OR_PARTITION, error_text
from acktrail.kafka.descriptions import TopicPartition
from acktrail.kafka.logs import HIGH_WATERMARK, START, first_error, query_leaders
from acktrail.kafka.topic_configs import compacted_topics
from acktrail_expansion.looks.epoch_ends import epoch_ends
from acktrail_expansion.looks.group_positions import observe_positions
from acktrail_expansion.looks.partition_listing import ListedTopic, list_partitions, listed_by_brokers

OBSERVATIONS: Final = "partition_observations"
POSITIONS: Final = "group_positions"
_UTC_NOW: Final = partial(dt.datetime.now, dt.UTC)
_TRANSACTIONS: Final = "__transaction_state"
"""Kafka: ``Topic.TRANSACTION_STATE_TOPIC_NAME``, which the first transactional producer of a cluster makes."""
_Row = dict[str, Any]


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
    listed = [topic for topic in list_partitions(client, topics) if topics is not None or not topic.is_internal]
    at = clock()
    logs = _log_rows(client, listed)
    again = listed_by_brokers(admin, [topic.name for topic in listed])
    look = {"cluster_id": admin.cluster_id, "run_id": run_id}
    times = {"observed_at": at, "listed_at": clock()}
    topic_ids = {topic.name: topic.topic_id for topic in listed if not topic.error_code}
    gapless = gapless_topics(client, [*topic_ids])
    rows = [
        {**look, **times, "is_gapless": gapless.get(topic.name), **row}
        for topic in listed
        for row in topic_rows(topic, [each.get(topic.name) for each in again], logs)
    ]
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
    (transactions,) = list_partitions(client, [_TRANSACTIONS])
    has_none = transactions.error_code == UNKNOWN_TOPIC_OR_PARTITION
    known = {True: False, False: True if has_none else None, None: None}
    return {topic: known[is_compacted] for topic, is_compacted in compacted_topics(client, topics).items()}


def _log_rows(client: BrokerClient, listed: Iterable[ListedTopic]) -> dict[TopicPartition, _Row]:
    """The columns about each log. A leader's epoch is that of its answer about the end: the list can be older."""
    leaders = {
        TopicPartition(topic=topic.name, partition=partition): leader
        for topic in listed
        for partition, leader in enumerate(topic.leaders)
    }
    answers = query_leaders(client, leaders, (HIGH_WATERMARK, START))
    led = {
        place: (leader_id, max(epoch, answers[place][HIGH_WATERMARK].leader_epoch))
        for place, (leader_id, epoch) in leaders.items()
    }
    ended = epoch_ends(client, {place: leader for place, leader in led.items() if leader[0] >= 0})
    rows = {}
    for place, (leader_id, epoch) in led.items():
        offsets, (ended_epoch, epoch_end_offset) = answers[place], ended.get(place, (None, None))
        rows[place] = {
            "partition": place.partition,
            "leader_id": _known(leader_id),
            "leader_epoch": _known(epoch),
            "ended_epoch": ended_epoch,
            "epoch_end_offset": epoch_end_offset,
            "log_start_offset": _known(offsets[START].offset),
            "log_end_offset": _known(offsets[HIGH_WATERMARK].offset),
            **_error(first_error(offsets)),
        }
    return rows


def topic_rows(topic: ListedTopic, again: Sequence[object], logs: Mapping[TopicPartition, _Row]) -> Iterator[_Row]:
    """The rows of one topic with those of its `logs`. `again`: what each broker lists in the end, None: nothing, or it
    did not answer; tables.md says what consistency means."""
    common: _Row = {"topic": topic.name, "topic_id": topic.topic_id}
    if topic.error_code:
        yield {**common, **_error(topic.error_code)}
        return
    own = [logs[TopicPartition(topic=topic.name, partition=partition)] for partition in range(len(topic.leaders))]
    consistency = "partial" if any(row["error_code"] for row in own) else "consistent"
    if {*again} != {topic.identity}:
        consistency = "straddles"
    for row in own:
        yield {**common, "partition_count": len(own), "consistency": consistency, **row}


def _error(code: int) -> _Row:
    return {"error_code": code, "error": error_text(code)}


def _known(number: int) -> int | None:
    return number if number >= 0 else None
