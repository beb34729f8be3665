"""Where the records of earlier leaders end in logs (OffsetForLeaderEpoch, KIP-101, KIP-320)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest

from acktrail.broker.client.broker_client import BrokerClient, NoResponse
from acktrail.broker.client.error_codes import NONE
from acktrail.broker.descriptions import TopicPartition

_CONSUMER: Final = -1
"""In place of the node id of a follower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedLog:
    """A log, who leads it, and the leader's epoch."""

    place: TopicPartition
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """The newest epoch before the leader's own that its log has, and one past the last record of it: `end_offset` is
    also the end of each epoch between both."""

    epoch: int
    end_offset: int


def epoch_ends(client: BrokerClient, logs: Iterable[LedLog]) -> dict[TopicPartition, EpochEnd]:
    """What each leader has of the epochs before its own, as of the epoch named: one that leads in another one by now
    refuses. A log is left out where this is not known, or where the leader's epoch is the first one. All leaders are
    asked at once, and once. Needs DESCRIBE on the topics. Raises as ``ShareGroupAdmin`` where a leader takes the
    request and keeps silent."""
    by_leader: dict[int, list[LedLog]] = defaultdict(list)
    for log in logs:
        if log.leader_epoch > 0:
            by_leader[log.leader_id].append(log)
    found: dict[TopicPartition, EpochEnd] = {}
    if not by_leader:
        return found
    for reply in client.send_all([(leader_id, _request(own)) for leader_id, own in by_leader.items()]):
        if not isinstance(reply, NoResponse):
            found |= {
                TopicPartition(topic=topic.topic, partition=row.partition): EpochEnd(
                    epoch=row.leader_epoch, end_offset=row.end_offset
                )
                for topic in reply.topics
                for row in topic.partitions
                if row.error_code == NONE and row.leader_epoch >= 0 and row.end_offset >= 0
            }
        elif not reply.may_try_again:
            raise client.explain(reply)
    return found


def _request(logs: Iterable[LedLog]) -> Any:
    own = OffsetForLeaderEpochRequest
    rows: dict[str, list[Any]] = defaultdict(list)
    for log in logs:
        row = own.OffsetForLeaderTopic.OffsetForLeaderPartition(
            partition=log.place.partition,
            current_leader_epoch=log.leader_epoch,
            leader_epoch=log.leader_epoch - 1,
        )
        rows[log.place.topic].append(row)
    topics = [own.OffsetForLeaderTopic(topic=name, partitions=each) for name, each in rows.items()]
    return own(replica_id=_CONSUMER, topics=topics)
