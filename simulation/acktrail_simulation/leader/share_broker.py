"""A broker that answers ShareFetch and ShareAcknowledge, over simulated sessions and share-partition leaders.

Requests are answered one after another and at once, as if MaxWaitMs had run out; there are no quotas. What rides along
is written before the fetch begins; a real broker fetches meanwhile, so that what is released may come one answer later.
Kafka 4.3 fails a whole request that names an unknown topic id. (Kafka 4.4: ``KafkaApis.handleShareFetchRequest``,
``handleShareAcknowledgeRequest``, ``handleAcknowledgements``.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from acktrail.model.share_partition import GroupId
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledge import InvalidRecordState
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch, AcknowledgeType, are_well_formed
from acktrail_simulation.leader.cluster_view import ClusterView
from acktrail_simulation.leader.group_settings import ShareGroupSettings
from acktrail_simulation.leader.share_leaders import ShareLeaders
from acktrail_simulation.leader.share_sessions import SessionKey, ShareSession, ShareSessions
from acktrail_simulation.messages.persister_messages import PersisterRequest, PersisterResponse
from acktrail_simulation.messages.share_messages import (
    FINAL_EPOCH,
    AcknowledgedPartition,
    AcknowledgePartition,
    AcknowledgeResponse,
    CurrentLeader,
    FetchedPartition,
    FetchPartition,
    FetchResponse,
    NodeEndpoint,
    ShareAcknowledge,
    ShareFetch,
    TopicIdPartition,
)

_LONGEST_MEMBER_ID: Final = 36
_ELSEWHERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Errors that come with the current leader in the response."""


class ShareBroker:
    """The broker `node_id` of `cluster`. A member's `connection_id` may be anything that names its connection."""

    def __init__(
        self,
        cluster: ClusterView,
        *,
        node_id: int,
        persister: Callable[[PersisterRequest], PersisterResponse],
        clock: SimulatedClock,
        settings: ShareGroupSettings | None = None,
        most_sessions: int = 2_000,
    ) -> None:
        self.cluster = cluster
        self.settings = ShareGroupSettings() if settings is None else settings
        self.sessions = ShareSessions(cluster.name_of, most_sessions=most_sessions)
        self.leaders = ShareLeaders(cluster, node_id=node_id, persister=persister, clock=clock, settings=self.settings)

    def fetch(self, request: ShareFetch, connection_id: str = "") -> FetchResponse:
        """Settle what rides along, then fetch, then close the session where that is asked for.

        A request that renews locks fetches nothing. One that is refused as a whole has an error and changes nothing.
        """
        try:
            key = self._member(request)
            _check_amounts(request)
            session = self.sessions.for_fetch(key, request, connection_id)
        except InvalidRecordState as refused:
            return FetchResponse(error=refused.error)
        settled = self._settle(key, request) if request.has_acknowledgements else {}
        fetched = () if session is None or _renews(request) else self._fetch(key.group_id, request, session)
        partitions = _combined(tuple(map(self._with_leader, fetched)), settled)
        self._close_if_last(key, request)
        return FetchResponse(
            lock_timeout_ms=self.settings.record_lock_duration_ms,
            partitions=partitions,
            endpoints=self._endpoints(partition.current_leader for partition in partitions),
        )

    def acknowledge(self, request: ShareAcknowledge) -> AcknowledgeResponse:
        """Settle what a member says, then close its session where that is asked for."""
        try:
            key = self._member(request)
            self.sessions.for_acknowledge(key, request.session_epoch)
        except InvalidRecordState as refused:
            return AcknowledgeResponse(error=refused.error)
        partitions = tuple(
            AcknowledgedPartition(at=at, error=error, current_leader=self._leader_if(error, at))
            for at, error in self._settle(key, request).items()
        )
        self._close_if_last(key, request)
        return AcknowledgeResponse(
            lock_timeout_ms=self.settings.record_lock_duration_ms,
            partitions=partitions,
            endpoints=self._endpoints(partition.current_leader for partition in partitions),
        )

    def disconnected(self, connection_id: str) -> None:
        """A connection is lost: what its member holds is released, and the leaders of a group without members are
        dropped."""
        lost = self.sessions.disconnected(connection_id)
        if lost is None:
            return
        key, is_open = lost
        if is_open:
            self._close(key)
        if not self.sessions.has_members(key.group_id):
            self.leaders.drop(group_id=key.group_id)

    def _member(self, request: ShareFetch | ShareAcknowledge) -> SessionKey:
        group_id, member_id = request.group_id, request.member_id
        if group_id is None:
            raise InvalidRecordState(ErrorCode.INVALID_REQUEST)
        if group_id in self.cluster.closed_groups:
            raise InvalidRecordState(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if not 0 < len(member_id) <= _LONGEST_MEMBER_ID:
            raise InvalidRecordState(ErrorCode.INVALID_REQUEST)
        return SessionKey(group_id=group_id, member_id=member_id)

    def _fetch(self, group_id: GroupId, request: ShareFetch, session: ShareSession) -> tuple[FetchedPartition, ...]:
        failed: list[FetchedPartition] = []
        wanted: dict[TopicIdPartition, int | None] = {}
        for at, cached in session.partitions.items():
            error = self._unreadable(at, cached.topic)
            if error is ErrorCode.NONE:
                wanted[at] = cached.max_bytes
            else:
                failed.append(FetchedPartition(at=at, error=error))
        found = self.leaders.fetch(group_id, request, wanted, session_epoch=request.session_epoch)
        return session.worth_sending((*found, *failed))

    def _settle(self, key: SessionKey, request: ShareFetch | ShareAcknowledge) -> dict[TopicIdPartition, ErrorCode]:
        """Each topic partition's error. One without batches has none, and where all are so, Kafka mentions none."""
        errors: dict[TopicIdPartition, ErrorCode] = {}
        said: dict[TopicIdPartition, tuple[AcknowledgementBatch, ...]] = {}
        for partition in request.partitions:
            error = self._unsettleable(request, partition)
            if error is not ErrorCode.NONE:
                errors[partition.at] = error
            else:
                said[partition.at] = partition.acknowledgements
        if not any(said.values()):
            return errors
        for at, batches in said.items():
            errors[at] = (
                self.leaders.acknowledge(key.group_id, key.member_id, at, batches) if batches else ErrorCode.NONE
            )
        return errors

    def _unsettleable(
        self, request: ShareFetch | ShareAcknowledge, partition: FetchPartition | AcknowledgePartition
    ) -> ErrorCode:
        topic = self.cluster.name_of(partition.at)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        highest = AcknowledgeType.RENEW if _knows_renewal(request) else AcknowledgeType.REJECT
        if not are_well_formed(partition.acknowledgements, renewing=request.renewing, highest_type=highest):
            return ErrorCode.INVALID_REQUEST
        return self._unreadable(partition.at, topic)

    def _unreadable(self, at: TopicIdPartition, topic: str | None) -> ErrorCode:
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not self.cluster.may_read(topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.NONE if at in self.cluster.places else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _leader_if(self, error: ErrorCode, at: TopicIdPartition) -> CurrentLeader | None:
        return self.cluster.current_leader(at) if error in _ELSEWHERE else None

    def _with_leader(self, found: FetchedPartition) -> FetchedPartition:
        return replace(found, current_leader=self._leader_if(found.error, found.at))

    def _endpoints(self, leaders: Iterable[CurrentLeader | None]) -> tuple[NodeEndpoint, ...]:
        found = {self.cluster.endpoint_of(leader) for leader in leaders}
        return tuple(sorted(endpoint for endpoint in found if endpoint is not None))

    def _close_if_last(self, key: SessionKey, request: ShareFetch | ShareAcknowledge) -> None:
        if request.session_epoch == FINAL_EPOCH:
            self._close(key)

    def _close(self, key: SessionKey) -> None:
        for at in self.sessions.close(key):
            self.leaders.release(key.group_id, key.member_id, at)


def _knows_renewal(request: ShareFetch | ShareAcknowledge) -> bool:
    return request.version >= 2


def _renews(request: ShareFetch) -> bool:
    return request.renewing and _knows_renewal(request)


def _check_amounts(request: ShareFetch) -> None:
    """Who renews locks cannot wait for records: KIP-1222 wants every amount to be 0 then."""
    if _renews(request) and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        raise InvalidRecordState(ErrorCode.INVALID_REQUEST)


def _combined(
    fetched: tuple[FetchedPartition, ...], settled: Mapping[TopicIdPartition, ErrorCode]
) -> tuple[FetchedPartition, ...]:
    """Both halves of an answer; a topic partition that was only acknowledged follows."""
    known = {partition.at for partition in fetched}
    return (
        *(replace(found, acknowledge_error=settled.get(found.at, ErrorCode.NONE)) for found in fetched),
        *(FetchedPartition(at=at, acknowledge_error=error) for at, error in settled.items() if at not in known),
    )
