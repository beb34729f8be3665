"""Where groups of every type are in the partitions of topics.

Where the records of earlier leaders end in logs comes from OffsetForLeaderEpoch (KIP-101, KIP-320).
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest

from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import NONE
from acktrail.kafka.descriptions import CommittedOffset, CommittedOffsets, GroupOffsets, ShareOffset, TopicPartition
from acktrail.model.share_partition import STATE_TOPIC, GroupId, SharePartition, TopicId, state_partition_of

_CONSUMER: Final = -1
"""In place of the node id of a follower."""
SHARE: Final = "share"
_COMMITTING: Final = ("consumer", "classic", "streams")


def observe_positions(
    admin: ShareGroupAdmin, topic_ids: Mapping[str, str | None], clock: Callable[[], dt.datetime]
) -> Iterator[dict[str, Any]]:
    """Rows of ``group_positions``, without the run's own columns, in the topics that `topic_ids` names.

    Each committing group is read once: its coordinator has all offsets, and gives them as of one time. Share groups are
    read twice, one whole reading after the other: each partition's state is kept apart, so that only a position of the
    first reading is older for certain than one of the second. The ends of the state topic's logs are asked for before
    each: a state record below the end was written before the position was read. A group whose coordinator is silent is
    one row with the reason.
    """
    groups = admin.list_groups(types=())
    shares = [group.group_id for group in groups if group.group_type == SHARE]
    others = {group.group_id: group.group_type for group in groups if group.group_type in _COMMITTING}

    def share_rows() -> Iterator[dict[str, Any]]:
        if shares:
            ends, at = _state_ends(admin), clock()
            for group in admin.describe_group_offsets(shares, tolerates_silence=True):
                yield from _rows(group, SHARE, at, topic_ids, ends)

    yield from share_rows()
    at = clock()
    for read in admin.committed_offsets(others, tolerates_silence=True):
        yield from _rows(read, others[read.group_id], at, topic_ids)
    yield from share_rows()


def _state_ends(admin: ShareGroupAdmin) -> list[int | None]:
    """The end of each log of the state topic; none where it is not there, or may not be described."""
    (topic,) = admin.topics([STATE_TOPIC])
    places = [TopicPartition(topic=STATE_TOPIC, partition=number) for number in range(topic.partition_count)]
    return [log.high_watermark for log in admin.list_offsets(places)]


def _rows(
    group: GroupOffsets | CommittedOffsets,
    group_type: str,
    at: dt.datetime,
    topic_ids: Mapping[str, str | None],
    state_ends: Sequence[int | None] = (),
) -> Iterator[dict[str, Any]]:
    own = {"observed_at": at, "group_id": group.group_id, "group_type": group_type}
    if group.error_code:
        yield {**own, "error_code": group.error_code, "error": group.error}
        return
    offsets: Iterable[ShareOffset | CommittedOffset] = group.offsets
    for offset in offsets:
        if offset.topic in topic_ids:
            place = {"topic_id": topic_ids[offset.topic], "topic": offset.topic, "partition": offset.partition}
            found = {**own, **place, "error_code": offset.error_code, "error": offset.error}
            if isinstance(offset, CommittedOffset):
                yield {**found, "position": offset.offset}
            else:
                yield {**found, **_share_position(group.group_id, offset, state_ends)}


def _share_position(group_id: str, offset: ShareOffset, state_ends: Sequence[int | None]) -> dict[str, Any]:
    found: dict[str, Any] = {"position": offset.start_offset, "lag": offset.lag}
    if state_ends and offset.topic_id is not None:
        key = SharePartition(group_id=GroupId(group_id), topic_id=TopicId(offset.topic_id), partition=offset.partition)
        home = state_partition_of(key, len(state_ends))
        found |= {"state_partition": home, "state_end_offset": state_ends[home]}
    return found


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
