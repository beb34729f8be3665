"""Where the records of earlier leaders end in logs (OffsetForLeaderEpoch, KIP-101, KIP-320)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest

from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import NONE
from acktrail.kafka.descriptions import TopicPartition

_CONSUMER: Final = -1
"""In place of the node id of a follower."""


def epoch_ends(
    client: BrokerClient, leaders: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, tuple[int, int]]:
    """The newest epoch before its own that each leader has, and one past the last record of it, which is the end of
    each epoch between both as well; `leaders`: id and epoch of each log's. One that leads in another epoch by now
    refuses. A log is left out where this is not known, or where the leader's epoch is the first one. All leaders are
    asked at once, and once. Needs DESCRIBE on the topics. Raises as ``ShareGroupAdmin`` where a leader takes the
    request and keeps silent."""
    by_leader: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for place, (leader_id, epoch) in leaders.items():
        if epoch > 0:
            by_leader[leader_id][place.topic].append(_row(place.partition, epoch))
    found: dict[TopicPartition, tuple[int, int]] = {}
    for reply in client.send_all([(leader_id, _request(topics)) for leader_id, topics in by_leader.items()]):
        if not isinstance(reply, NoResponse):
            found |= {
                TopicPartition(topic=topic.topic, partition=row.partition): (row.leader_epoch, row.end_offset)
                for topic in reply.topics
                for row in topic.partitions
                if row.error_code == NONE and row.leader_epoch >= 0 and row.end_offset >= 0
            }
        elif not reply.may_try_again:
            raise client.explain(reply)
    return found


def _row(partition: int, epoch: int) -> Any:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
    return kind(partition=partition, current_leader_epoch=epoch, leader_epoch=epoch - 1)


def _request(topics: Mapping[str, list[Any]]) -> Any:
    kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    return OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER, topics=[kind(topic=name, partitions=rows) for name, rows in topics.items()]
    )
