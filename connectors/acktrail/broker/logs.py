"""Where the logs of topic partitions begin and end, asked of their leaders (ListOffsets)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.consumer import ListOffsetsRequest

from acktrail.broker.client import BrokerClient, NoAnswer
from acktrail.broker.descriptions import LogOffsets, TopicPartition
from acktrail.broker.failures import LOOK_AGAIN, NONE, UNKNOWN_TOPIC_OR_PARTITION, error_text
from acktrail.broker.patience import Patience

__all__ = ["list_log_offsets"]

_LEADER_NOT_AVAILABLE: Final = 5
_UNKNOWN_PATIENCE_S: Final = 2.0
"""How long a partition may be unknown to its leader before that is the answer: metadata spread in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """One end of a log as ListOffsets names it."""

    timestamp: int
    isolation: int


_START: Final = _End(timestamp=-2, isolation=0)
_HIGH_WATERMARK: Final = _End(timestamp=-1, isolation=0)
_LAST_STABLE: Final = _End(timestamp=-1, isolation=1)
_ENDS: Final = (_HIGH_WATERMARK, _LAST_STABLE, _START)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """A leader's answer about one end, or the error code in its place."""

    error_code: int
    offset: int = -1
    leader_epoch: int = -1


def list_log_offsets(client: BrokerClient, partitions: Iterable[TopicPartition]) -> tuple[LogOffsets, ...]:
    """The ends of every log, in the order asked for. A partition that cannot be asked has an error in its row.

    All leaders are asked at once. When a leader moved they are looked up and asked again until
    `client.request_timeout_s` have passed.

    Raises:
        Unreachable, RetryableError: a leader did not answer in time.
    """
    wanted = tuple(dict.fromkeys(partitions))
    found: dict[TopicPartition, LogOffsets] = {}
    patience, unknown = Patience(client.request_timeout_s), Patience(_UNKNOWN_PATIENCE_S)
    pending = wanted
    while pending:
        found |= _round(client, pending, patience)
        pending = tuple(p for p in pending if _is_worth_asking(found[p].error_code, unknown))
        if pending and not patience.wait():
            break
    return tuple(found[partition] for partition in wanted)


def _is_worth_asking(error_code: int, unknown: Patience) -> bool:
    return error_code in LOOK_AGAIN or (error_code == UNKNOWN_TOPIC_OR_PARTITION and unknown.left_s > 0)


def _round(
    client: BrokerClient, partitions: Sequence[TopicPartition], patience: Patience
) -> dict[TopicPartition, LogOffsets]:
    leaders, failed = _leaders(client, partitions)
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader in leaders.items():
        by_leader[leader].append(partition)
    asked = [(leader, end, group) for leader, group in by_leader.items() for end in _ENDS]
    replies = client.exchange([(leader, _request(end, group)) for leader, end, group in asked])
    said: dict[TopicPartition, dict[_End, _Said]] = defaultdict(dict)
    for (_, end, group), reply in zip(asked, replies, strict=True):
        if isinstance(reply, NoAnswer) and not (client.may_try_again(reply) and patience.left_s > 0):
            raise client.explain(reply)
        answers = _answers(reply)
        for partition in group:
            said[partition][end] = answers.get(partition, _Said(error_code=_LEADER_NOT_AVAILABLE))
    return {p: _failed(p, code) for p, code in failed.items()} | {p: _log_offsets(p, ends) for p, ends in said.items()}


def _leaders(
    client: BrokerClient, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Leader by partition, and error code by partition where there is none."""
    topics = {t.name: t for t in client.metadata(sorted({p.topic for p in partitions})).topics}
    leaders: dict[TopicPartition, int] = {}
    failed: dict[TopicPartition, int] = {}
    for partition in partitions:
        topic = topics.get(partition.topic)
        code, leader = _leader(topic, partition.partition)
        if code == NONE:
            leaders[partition] = leader
        else:
            failed[partition] = code
    return leaders, failed


def _leader(topic: Any, index: int) -> tuple[int, int]:
    if topic is None or topic.error_code != NONE:
        return (UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code), -1
    row = next((p for p in topic.partitions if p.partition_index == index), None)
    if row is None:
        return UNKNOWN_TOPIC_OR_PARTITION, -1
    return (NONE if row.leader_id >= 0 else _LEADER_NOT_AVAILABLE), row.leader_id


def _request(end: _End, partitions: Sequence[TopicPartition]) -> Any:
    topics: dict[str, list[Any]] = defaultdict(list)
    for partition in partitions:
        row = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=-1, timestamp=end.timestamp
        )
        topics[partition.topic].append(row)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=end.isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=30_000,
        min_version=4,
    )


def _answers(reply: Any) -> dict[TopicPartition, _Said]:
    if isinstance(reply, NoAnswer):
        return {}
    return {
        TopicPartition(topic=topic.name, partition=row.partition_index): _Said(
            error_code=row.error_code, offset=row.offset, leader_epoch=row.leader_epoch
        )
        for topic in reply.topics
        for row in topic.partitions
    }


def _log_offsets(partition: TopicPartition, said: Mapping[_End, _Said]) -> LogOffsets:
    code = next((answer.error_code for answer in said.values() if answer.error_code != NONE), NONE)
    return LogOffsets(
        topic=partition.topic,
        partition=partition.partition,
        log_start_offset=_known(said[_START].offset),
        high_watermark=_known(said[_HIGH_WATERMARK].offset),
        last_stable_offset=_known(said[_LAST_STABLE].offset),
        leader_epoch=_known(said[_HIGH_WATERMARK].leader_epoch),
        error_code=code,
        error=error_text(code),
    )


def _failed(partition: TopicPartition, code: int) -> LogOffsets:
    nothing = _Said(error_code=code)
    return _log_offsets(partition, dict.fromkeys(_ENDS, nothing))


def _known(number: int) -> int | None:
    return None if number < 0 else number
