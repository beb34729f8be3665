"""The share-partition leaders of one broker: created at the first fetch, dropped when they are fenced.

(Kafka: ``SharePartitionManager``, ``SharePartitionCache``, ``DelayedShareFetch``, ``ShareFetchUtils``.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from acktrail.model.share_partition import GroupId, SharePartition
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch
from acktrail_simulation.leader.acquisition import FetchLimits
from acktrail_simulation.leader.cluster_view import ClusterView
from acktrail_simulation.leader.group_settings import ShareGroupSettings
from acktrail_simulation.leader.share_partition_leader import LeaderStatus, SharePartitionLeader
from acktrail_simulation.messages.persister_messages import PersisterRequest, PersisterResponse
from acktrail_simulation.messages.share_messages import FetchedPartition, ShareFetch, TopicIdPartition

_FENCING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a write after which a leader is no longer asked."""


def in_turn(wanted: tuple[TopicIdPartition, ...], session_epoch: int) -> tuple[TopicIdPartition, ...]:
    """`wanted` from the one whose turn it is (``PartitionRotateStrategy``)."""
    turn = session_epoch % len(wanted) if wanted and session_epoch > 0 else 0
    return wanted[turn:] + wanted[:turn]


class ShareLeaders:
    """By group and topic partition. `node_id`: the broker they are on."""

    def __init__(
        self,
        cluster: ClusterView,
        *,
        node_id: int,
        persister: Callable[[PersisterRequest], PersisterResponse],
        clock: SimulatedClock,
        settings: ShareGroupSettings,
    ) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.persister = persister
        self.clock = clock
        self.settings = settings
        self.leaders: dict[SharePartition, SharePartitionLeader] = {}

    def fetch(
        self,
        group_id: GroupId,
        request: ShareFetch,
        wanted: Mapping[TopicIdPartition, int | None],
        *,
        session_epoch: int,
    ) -> tuple[FetchedPartition, ...]:
        """Read and acquire what there is now; nothing is waited for. `wanted`: how many bytes of each, None: any.

        The session epoch decides which topic partition is first, so that each has its turn. A full leader is skipped
        and is not in the response. The requested bytes are divided evenly; the first batch may be larger than its part.
        """
        if not wanted or request.max_records == 0 or request.max_bytes == 0:
            return ()
        failed: list[FetchedPartition] = []
        ready: dict[TopicIdPartition, SharePartitionLeader] = {}
        for at in in_turn(tuple(wanted), session_epoch):
            leader, error = self._loaded(group_id, at)
            if leader is None:
                failed.append(FetchedPartition(at=at, error=error))
            elif leader.can_acquire:
                ready[at] = leader
        return *self._read(request, wanted, ready), *failed

    def _read(
        self,
        request: ShareFetch,
        wanted: Mapping[TopicIdPartition, int | None],
        ready: Mapping[TopicIdPartition, SharePartitionLeader],
    ) -> Iterator[FetchedPartition]:
        bytes_left, records_left = request.max_bytes, request.max_records
        share = request.max_bytes // max(1, len(ready))
        for at, leader in ready.items():
            limits = FetchLimits(
                member_id=request.member_id,
                most_records=records_left,
                batch_size=request.batch_size,
                now_ms=self.clock.now_ms,
                mode=request.mode,
            )
            most_bytes = min(share, bytes_left, share if wanted[at] is None else wanted[at] or 0)
            found, size = _read(at, leader, limits, most_bytes, is_first=bytes_left == request.max_bytes)
            bytes_left = max(0, bytes_left - size)
            records_left -= sum(acquired.count for acquired in found.acquired)
            yield found

    def acknowledge(
        self, group_id: GroupId, member_id: str, at: TopicIdPartition, acknowledged: Iterable[AcknowledgementBatch]
    ) -> ErrorCode:
        """Apply a member's acknowledgements. Without a leader, no member holds records on this broker."""
        return self._asked(group_id, at, lambda leader: leader.acknowledge(member_id, acknowledged))

    def release(self, group_id: GroupId, member_id: str, at: TopicIdPartition) -> ErrorCode:
        """Release all records that a member holds."""
        return self._asked(group_id, at, lambda leader: leader.release(member_id))

    def end_locks(self) -> int:
        """Release records whose locks have expired; returns how many."""
        return sum(leader.end_locks() for leader in tuple(self.leaders.values()))

    def drop(self, *, group_id: GroupId | None = None, at: TopicIdPartition | None = None) -> None:
        """Forget the leaders of a group that has no members, or of a topic partition that is led elsewhere or gone."""
        for key in tuple(self.leaders):
            if group_id in (None, key.group_id) and (at is None or (at.topic_id, at.partition) == _place(key)):
                self.leaders.pop(key).status = LeaderStatus.FENCED

    def _loaded(self, group_id: GroupId, at: TopicIdPartition) -> tuple[SharePartitionLeader | None, ErrorCode]:
        key = _key(group_id, at)
        known = self.leaders.get(key)
        if known is not None and known.status is LeaderStatus.ACTIVE:
            return known, ErrorCode.NONE
        place = self.cluster.places[at]
        if place.leader_id != self.node_id:
            return None, ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = SharePartitionLeader(
            key,
            leader_epoch=place.leader_epoch,
            log=place.log,
            persister=self.persister,
            clock=self.clock,
            settings=self.settings,
        )
        error = leader.load()
        if error is not ErrorCode.NONE:
            return None, error
        self.leaders[key] = leader
        return leader, error

    def _asked(
        self, group_id: GroupId, at: TopicIdPartition, ask: Callable[[SharePartitionLeader], ErrorCode]
    ) -> ErrorCode:
        key = _key(group_id, at)
        leader = self.leaders.get(key)
        if leader is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        error = ask(leader)
        if error in _FENCING:
            self.leaders.pop(key).status = LeaderStatus.FENCED
        return error


def _read(
    at: TopicIdPartition, leader: SharePartitionLeader, limits: FetchLimits, most_bytes: int, *, is_first: bool
) -> tuple[FetchedPartition, int]:
    """What one leader hands out, and how many bytes were read for it.

    Where the log begins later than the read, the start offset follows it, and nothing is an error.
    """
    log, offset = leader.log, leader.cache.next_fetch_offset()
    if log.fault is not ErrorCode.NONE:
        return FetchedPartition(at=at, error=log.fault), 0
    read = log.read(offset, max_bytes=most_bytes)
    if read is None:
        leader.cache.log_start_moved(log.start_offset)
        return FetchedPartition(at=at), 0
    if read and not is_first and read[0].size_bytes > most_bytes:
        read = ()
    acquired = leader.acquire(limits, offset, read)
    size = sum(batch.size_bytes for batch in read)
    if not acquired:
        return FetchedPartition(at=at), size
    first, last = acquired[0].first_offset, acquired[-1].last_offset
    handed = tuple(batch for batch in read if batch.last_offset >= first and batch.base_offset <= last)
    return FetchedPartition(at=at, records=handed, acquired=acquired), size


def _key(group_id: GroupId, at: TopicIdPartition) -> SharePartition:
    return SharePartition(group_id=group_id, topic_id=at.topic_id, partition=at.partition)


def _place(key: SharePartition) -> tuple[str, int]:
    return key.topic_id, key.partition
