"""Logs of topic partitions: where they begin and end, and where a time lies in them (ListOffsets)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer.offsets import ListOffsetsRequest

from acktrail.backoff import Backoff
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import LEADER_NOT_AVAILABLE, LOOK_AGAIN, NONE, UNKNOWN_TOPIC_OR_PARTITION
from acktrail.kafka.descriptions import TopicPartition

_UNKNOWN_TIMEOUT_S: Final = 2.0
"""How long a partition may be unknown to its leader before that is the result: metadata spreads in milliseconds."""


class Query(NamedTuple):
    """An offset as ListOffsets names it: by a time in ms since the epoch, -1 for the end, -2 for the start."""

    timestamp: int
    isolation: int = 0


class _Failure(NamedTuple):
    """An error code in place of a leader's row. -1: not known."""

    error_code: int
    offset: int = -1
    leader_epoch: int = -1
    timestamp: int = -1


START: Final = Query(-2)
HIGH_WATERMARK: Final = Query(-1)
LAST_STABLE: Final = Query(-1, isolation=1)

_Results = dict[Query, Any]
"""A leader's row, or a `_Failure`, for each query."""


def query_leaders(
    client: BrokerClient, partitions: Iterable[TopicPartition], queries: Sequence[Query]
) -> dict[TopicPartition, _Results]:
    """The leaders' results for each query in each log, in the order asked for. A partition that cannot be asked has an
    error everywhere. Where a leader moved it is looked up and asked again, for `client.request_timeout_s` in all."""
    wanted = tuple(dict.fromkeys(partitions))
    results: dict[TopicPartition, _Results] = {}
    backoff, unknown = Backoff(client.request_timeout_s), Backoff(_UNKNOWN_TIMEOUT_S)
    pending: Sequence[TopicPartition] = wanted
    while pending:
        results |= _round(client, pending, queries, backoff)
        retried = LOOK_AGAIN | {UNKNOWN_TOPIC_OR_PARTITION} if unknown.left_s > 0 else LOOK_AGAIN
        pending = [partition for partition in pending if first_error(results[partition]) in retried]
        if pending and not backoff.wait():
            break
    return {partition: results[partition] for partition in wanted}


def _round(
    client: BrokerClient, partitions: Sequence[TopicPartition], queries: Sequence[Query], backoff: Backoff
) -> dict[TopicPartition, _Results]:
    leaders, failed = leaders_of(client, partitions)
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader in leaders.items():
        by_leader[leader].append(partition)
    asked = [(leader, query, group) for leader, group in by_leader.items() for query in queries]
    replies = client.send_all([(leader, _offsets_request(query, group)) for leader, query, group in asked])
    failed |= dict.fromkeys(leaders, LEADER_NOT_AVAILABLE)  # until a row is there
    results: dict[TopicPartition, _Results] = {p: dict.fromkeys(queries, _Failure(failed[p])) for p in failed}
    for (_, query, _), reply in zip(asked, replies, strict=True):
        if not isinstance(reply, NoResponse):
            for name, row in ((topic.name, row) for topic in reply.topics for row in topic.partitions):
                results[TopicPartition(topic=name, partition=row.partition_index)][query] = row
        elif not (reply.may_try_again and backoff.left_s > 0):
            raise client.explain(reply)
    return results


def _offsets_request(query: Query, partitions: Sequence[TopicPartition]) -> Any:
    topics: dict[str, list[Any]] = defaultdict(list)
    for partition in partitions:
        row = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
        topics[partition.topic].append(row(partition_index=partition.partition, timestamp=query.timestamp))
    return ListOffsetsRequest(
        isolation_level=query.isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=30_000,
        min_version=4,
    )


def first_error(results: Mapping[Query, Any]) -> int:
    """The first error code among the results for one partition; 0: none."""
    return next((int(result.error_code) for result in results.values() if result.error_code != NONE), NONE)


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
