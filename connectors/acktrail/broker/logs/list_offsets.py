"""Places in the logs of topic partitions, asked of their leaders (ListOffsets)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.consumer import ListOffsetsRequest

from acktrail.broker.client.backoff import Backoff
from acktrail.broker.client.broker_client import BrokerClient, NoResponse
from acktrail.broker.client.error_codes import LOOK_AGAIN, NONE, UNKNOWN_TOPIC_OR_PARTITION
from acktrail.broker.descriptions import TopicPartition

__all__ = ["OffsetQuery", "OffsetResult", "error_code_of", "leaders_of", "query_leaders"]

_LEADER_NOT_AVAILABLE: Final = 5
_UNKNOWN_PATIENCE_S: Final = 2.0
"""How long a partition may be unknown to its leader before that is the answer: metadata spread in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetQuery:
    """A place in a log as ListOffsets names it: a time in ms since the epoch, -1 for the end, -2 for the start."""

    timestamp: int
    isolation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetResult:
    """A leader's answer about one place, or the error code in its stead. -1: there is no such record."""

    error_code: int
    offset: int = -1
    leader_epoch: int = -1
    timestamp_ms: int = -1


Answers = Mapping[TopicPartition, Mapping[OffsetQuery, OffsetResult]]


def query_leaders(client: BrokerClient, partitions: Iterable[TopicPartition], places: Sequence[OffsetQuery]) -> Answers:
    """What the leaders say about each place in each log. A partition that cannot be asked has an error everywhere.

    All leaders are asked at once. When a leader moved they are looked up and asked again until
    `client.request_timeout_s` have passed.

    Raises:
        Unreachable, RetryableError: a leader did not answer in time.
    """
    found: dict[TopicPartition, Mapping[OffsetQuery, OffsetResult]] = {}
    backoff, unknown = Backoff(client.request_timeout_s), Backoff(_UNKNOWN_PATIENCE_S)
    pending: Sequence[TopicPartition] = tuple(dict.fromkeys(partitions))
    while pending:
        found |= _round(client, pending, places, backoff)
        pending = tuple(p for p in pending if _is_worth_asking(error_code_of(found[p]), unknown))
        if pending and not backoff.wait():
            break
    return found


def error_code_of(said: Mapping[OffsetQuery, OffsetResult]) -> int:
    """The first error in the answers about one partition; 0: none."""
    return next((answer.error_code for answer in said.values() if answer.error_code != NONE), NONE)


def leaders_of(
    client: BrokerClient, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Leader by partition, and error code by partition where there is none."""
    topics = {t.name: t for t in client.metadata(sorted({p.topic for p in partitions})).topics}
    rows = {name: {row.partition_index: row for row in topic.partitions} for name, topic in topics.items()}
    leaders: dict[TopicPartition, int] = {}
    failed: dict[TopicPartition, int] = {}
    for partition in partitions:
        topic = topics.get(partition.topic)
        code, leader = _leader(topic, rows.get(partition.topic, {}).get(partition.partition))
        if code == NONE:
            leaders[partition] = leader
        else:
            failed[partition] = code
    return leaders, failed


def _is_worth_asking(error_code: int, unknown: Backoff) -> bool:
    return error_code in LOOK_AGAIN or (error_code == UNKNOWN_TOPIC_OR_PARTITION and unknown.left_s > 0)


def _round(
    client: BrokerClient, partitions: Sequence[TopicPartition], places: Sequence[OffsetQuery], backoff: Backoff
) -> dict[TopicPartition, Mapping[OffsetQuery, OffsetResult]]:
    leaders, failed = leaders_of(client, partitions)
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader in leaders.items():
        by_leader[leader].append(partition)
    asked = [(leader, place, group) for leader, group in by_leader.items() for place in places]
    replies = client.send_all([(leader, _request(place, group)) for leader, place, group in asked])
    said: dict[TopicPartition, dict[OffsetQuery, OffsetResult]] = defaultdict(dict)
    for (_, place, group), reply in zip(asked, replies, strict=True):
        if isinstance(reply, NoResponse) and not (client.may_try_again(reply) and backoff.left_s > 0):
            raise client.explain(reply)
        answers = _answers(reply)
        for partition in group:
            said[partition][place] = answers.get(partition, OffsetResult(error_code=_LEADER_NOT_AVAILABLE))
    return {**{p: dict.fromkeys(places, OffsetResult(error_code=code)) for p, code in failed.items()}, **said}


def _leader(topic: Any, row: Any) -> tuple[int, int]:
    if topic is None or topic.error_code != NONE:
        return (UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code), -1
    if row is None:
        return UNKNOWN_TOPIC_OR_PARTITION, -1
    return (NONE if row.leader_id >= 0 else _LEADER_NOT_AVAILABLE), row.leader_id


def _request(place: OffsetQuery, partitions: Sequence[TopicPartition]) -> Any:
    topics: dict[str, list[Any]] = defaultdict(list)
    for partition in partitions:
        row = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=-1, timestamp=place.timestamp
        )
        topics[partition.topic].append(row)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=place.isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=30_000,
        min_version=4,
    )


def _answers(reply: Any) -> dict[TopicPartition, OffsetResult]:
    if isinstance(reply, NoResponse):
        return {}
    return {
        TopicPartition(topic=topic.name, partition=row.partition_index): OffsetResult(
            error_code=row.error_code, offset=row.offset, leader_epoch=row.leader_epoch, timestamp_ms=row.timestamp
        )
        for topic in reply.topics
        for row in topic.partitions
    }
