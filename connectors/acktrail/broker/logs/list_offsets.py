"""Where the logs of topic partitions begin and end, and where a time lies in them (ListOffsets)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.consumer.offsets import ListOffsetsRequest

from acktrail.broker.client.broker_client import Backoff, BrokerClient, NoResponse
from acktrail.broker.client.error_codes import (
    LEADER_NOT_AVAILABLE,
    LOOK_AGAIN,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_text,
)
from acktrail.broker.descriptions import LogOffsets, OffsetAtTime, TopicPartition

_UNKNOWN_TIMEOUT_S: Final = 2.0
"""How long a partition may be unknown to its leader before that is the result: metadata spreads in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetQuery:
    """An offset as ListOffsets names it: by a time in ms since the epoch, -1 for the end, -2 for the start."""

    timestamp: int
    isolation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetResult:
    """A leader's response to one query, or the error code in its stead. -1: there is no such record."""

    error_code: int
    offset: int = -1
    leader_epoch: int = -1
    timestamp_ms: int = -1


_START: Final = OffsetQuery(timestamp=-2)
_HIGH_WATERMARK: Final = OffsetQuery(timestamp=-1)
_LAST_STABLE: Final = OffsetQuery(timestamp=-1, isolation=1)

_Results = Mapping[OffsetQuery, OffsetResult]


def list_log_offsets(client: BrokerClient, partitions: Iterable[TopicPartition]) -> tuple[LogOffsets, ...]:
    """See ``ShareGroupAdmin.list_offsets``."""
    results = _query_leaders(client, partitions, (_HIGH_WATERMARK, _LAST_STABLE, _START))
    return tuple(
        LogOffsets(
            topic=partition.topic,
            partition=partition.partition,
            log_start_offset=_known(own[_START].offset),
            high_watermark=_known(own[_HIGH_WATERMARK].offset),
            last_stable_offset=_known(own[_LAST_STABLE].offset),
            leader_epoch=_known(own[_HIGH_WATERMARK].leader_epoch),
            error_code=_first_error(own),
            error=error_text(_first_error(own)),
        )
        for partition, own in results.items()
    )


def list_offsets_at(
    client: BrokerClient, partitions: Iterable[TopicPartition], timestamp_ms: int
) -> tuple[OffsetAtTime, ...]:
    """See ``ShareGroupAdmin.offsets_at``; records of transactions that are still open count."""
    query = OffsetQuery(timestamp=timestamp_ms)
    results = _query_leaders(client, partitions, (query,))
    return tuple(
        OffsetAtTime(
            topic=partition.topic,
            partition=partition.partition,
            offset=_known(own[query].offset),
            timestamp_ms=_known(own[query].timestamp_ms),
            error_code=own[query].error_code,
            error=error_text(own[query].error_code),
        )
        for partition, own in results.items()
    )


def leaders_of(
    client: BrokerClient, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Leader by partition, and error code by partition where there is none."""
    leaders: dict[TopicPartition, int] = {}
    failed: dict[TopicPartition, int] = {}
    if not partitions:
        return leaders, failed
    topics = {t.name: t for t in client.metadata(sorted({p.topic for p in partitions})).topics}
    rows = {name: {row.partition_index: row for row in topic.partitions} for name, topic in topics.items()}
    for partition in partitions:
        topic = topics.get(partition.topic)
        row = rows.get(partition.topic, {}).get(partition.partition)
        if topic is not None and topic.error_code != NONE:
            failed[partition] = topic.error_code
        elif row is None:
            failed[partition] = UNKNOWN_TOPIC_OR_PARTITION
        elif row.leader_id < 0:
            failed[partition] = LEADER_NOT_AVAILABLE
        else:
            leaders[partition] = row.leader_id
    return leaders, failed


def _query_leaders(
    client: BrokerClient, partitions: Iterable[TopicPartition], queries: Sequence[OffsetQuery]
) -> dict[TopicPartition, _Results]:
    """The leaders' results for each query in each log, in the order asked for. A partition that cannot be asked has an
    error everywhere.

    All leaders are asked at once. When a leader moved they are looked up and asked again until
    `client.request_timeout_s` have passed.
    """
    wanted = tuple(dict.fromkeys(partitions))
    results: dict[TopicPartition, _Results] = {}
    backoff, unknown = Backoff(client.request_timeout_s), Backoff(_UNKNOWN_TIMEOUT_S)
    pending: Sequence[TopicPartition] = wanted
    while pending:
        results |= _round(client, pending, queries, backoff)
        retried = LOOK_AGAIN | {UNKNOWN_TOPIC_OR_PARTITION} if unknown.left_s > 0 else LOOK_AGAIN
        pending = [partition for partition in pending if _first_error(results[partition]) in retried]
        if pending and not backoff.wait():
            break
    return {partition: results[partition] for partition in wanted}


def _round(
    client: BrokerClient, partitions: Sequence[TopicPartition], queries: Sequence[OffsetQuery], backoff: Backoff
) -> dict[TopicPartition, _Results]:
    leaders, failed = leaders_of(client, partitions)
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader in leaders.items():
        by_leader[leader].append(partition)
    asked = [(leader, query, group) for leader, group in by_leader.items() for query in queries]
    replies = client.send_all([(leader, _request(query, group)) for leader, query, group in asked])
    results: dict[TopicPartition, dict[OffsetQuery, OffsetResult]] = defaultdict(dict)
    for (_, query, group), reply in zip(asked, replies, strict=True):
        if isinstance(reply, NoResponse) and not (reply.may_try_again and backoff.left_s > 0):
            raise client.explain(reply)
        found = {} if isinstance(reply, NoResponse) else _results(reply)
        for partition in group:
            results[partition][query] = found.get(partition, OffsetResult(error_code=LEADER_NOT_AVAILABLE))
    return {**{p: dict.fromkeys(queries, OffsetResult(error_code=code)) for p, code in failed.items()}, **results}


def _request(query: OffsetQuery, partitions: Sequence[TopicPartition]) -> Any:
    topics: dict[str, list[Any]] = defaultdict(list)
    for partition in partitions:
        row = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=-1, timestamp=query.timestamp
        )
        topics[partition.topic].append(row)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=query.isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=30_000,
        min_version=4,
    )


def _results(reply: Any) -> dict[TopicPartition, OffsetResult]:
    return {
        TopicPartition(topic=topic.name, partition=row.partition_index): OffsetResult(
            error_code=row.error_code, offset=row.offset, leader_epoch=row.leader_epoch, timestamp_ms=row.timestamp
        )
        for topic in reply.topics
        for row in topic.partitions
    }


def _first_error(results: _Results) -> int:
    """The first error code among the results for one partition; 0: none."""
    return next((result.error_code for result in results.values() if result.error_code != NONE), NONE)


def _known(number: int) -> int | None:
    return None if number < 0 else number
