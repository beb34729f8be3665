"""A small cluster with share-group members that send ShareFetch and ShareAcknowledge to one of its brokers."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from samples.coordinator_random_calls import TOPIC_IDS

from acktrail.model.batches import DeliveryState
from acktrail.model.share_partition import GroupId, SharePartition
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.share_coordinator import ShareCoordinator
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch, AcknowledgeType
from acktrail_simulation.leader.acquisition import AcquiredRecords
from acktrail_simulation.leader.cluster_view import ClusterView, PartitionLeadership
from acktrail_simulation.leader.group_settings import OffsetReset, ShareGroupSettings
from acktrail_simulation.leader.share_broker import ShareBroker
from acktrail_simulation.leader.share_partition_leader import SharePartitionLeader
from acktrail_simulation.messages.persister_messages import PersisterRequest, PersisterResponse, StateInitialize
from acktrail_simulation.messages.share_messages import (
    AcknowledgePartition,
    AcknowledgeResponse,
    FetchPartition,
    FetchResponse,
    NodeEndpoint,
    ShareAcknowledge,
    ShareFetch,
    TopicIdPartition,
    next_session_epoch,
)

__all__ = [
    "FIRST",
    "GROUP",
    "SECOND",
    "THIRD",
    "Cluster",
    "Member",
    "acknowledged",
    "at",
    "done",
    "live",
    "locked",
    "memory",
    "offsets",
    "opened",
]

GROUP = GroupId("g")
LOCK_MS = 100


def at(topic: int, partition: int) -> TopicIdPartition:
    """A partition of the first or the second topic."""
    return TopicIdPartition(topic_id=TOPIC_IDS[topic], partition=partition)


FIRST, SECOND, THIRD = at(0, 0), at(0, 1), at(1, 0)


class Cluster:
    """Broker 1, which leads `FIRST`, `SECOND` and `THIRD` of two topics; `failing`: what writes of state end with."""

    def __init__(self, **settings: Any) -> None:
        self.clock = SimulatedClock()
        self.failing = ErrorCode.NONE
        self.coordinator = ShareCoordinator(partition_counts={TOPIC_IDS[0]: 2, TOPIC_IDS[1]: 1}, clock=self.clock)
        places = (FIRST, SECOND, THIRD)
        for place in places:
            self.initialize(place, state_epoch=1)
        self.view = ClusterView(
            names={TOPIC_IDS[0]: "first", TOPIC_IDS[1]: "second"},
            places={place: PartitionLeadership(leader_id=1, leader_epoch=1) for place in places},
            endpoints={node: NodeEndpoint(node_id=node, host=f"host-{node}", port=9092) for node in (1, 2)},
        )
        most_sessions = settings.pop("most_sessions", 20)
        self.broker = ShareBroker(
            self.view,
            node_id=1,
            persister=self._persist,
            clock=self.clock,
            settings=ShareGroupSettings(offset_reset=OffsetReset.EARLIEST, record_lock_duration_ms=LOCK_MS, **settings),
            most_sessions=most_sessions,
        )

    def initialize(self, place: TopicIdPartition, *, state_epoch: int) -> None:
        """The group begins afresh at offset 0."""
        key = SharePartition(group_id=GROUP, topic_id=place.topic_id, partition=place.partition)
        request = StateInitialize(key=key, state_epoch=state_epoch, start_offset=0)
        assert self.coordinator.answer(request).error is ErrorCode.NONE

    def produce(self, place: TopicIdPartition, records: int, *, size_bytes: int = 100) -> None:
        """One batch more."""
        self.view.places[place].log.append(records, size_bytes=size_bytes)

    def _persist(self, request: PersisterRequest) -> PersisterResponse:
        if self.failing is not ErrorCode.NONE:
            return PersisterResponse(key=request.key, error=self.failing)
        return self.coordinator.answer(request)


@dataclass(slots=True, kw_only=True)
class Member:
    """An honest member: it counts its session's epoch on and knows what it holds, and what it said last."""

    cluster: Cluster
    name: str = "m"
    epoch: int = 0
    held: dict[TopicIdPartition, list[AcquiredRecords]] = field(default_factory=dict)
    said: dict[TopicIdPartition, tuple[AcknowledgementBatch, ...]] = field(default_factory=dict)

    def fetch(
        self,
        *places: TopicIdPartition,
        said: dict[TopicIdPartition, tuple[AcknowledgementBatch, ...]] | None = None,
        epoch: int | None = None,
        **fields: Any,
    ) -> FetchResponse:
        """Ask for records of `places`, which join the session; `said` rides along."""
        self.said = said = said or {}
        request = ShareFetch(
            group_id=GROUP,
            member_id=self.name,
            session_epoch=self.epoch if epoch is None else epoch,
            partitions=tuple(
                FetchPartition(at=place, acknowledgements=said.get(place, ()))
                for place in {**dict.fromkeys(places), **said}
            ),
            **fields,
        )
        answer = self.cluster.broker.fetch(request, self.name)
        if answer.error is ErrorCode.NONE:
            self.epoch = max(0, next_session_epoch(request.session_epoch))
        for partition in answer.partitions:
            self.held.setdefault(partition.at, []).extend(partition.acquired)
        return answer

    def acknowledge(
        self,
        said: dict[TopicIdPartition, tuple[AcknowledgementBatch, ...]],
        *,
        epoch: int | None = None,
        **fields: Any,
    ) -> AcknowledgeResponse:
        """Say what came of records, without asking for more."""
        self.said = said
        request = ShareAcknowledge(
            group_id=GROUP,
            member_id=self.name,
            session_epoch=self.epoch if epoch is None else epoch,
            partitions=tuple(
                AcknowledgePartition(at=place, acknowledgements=batches) for place, batches in said.items()
            ),
            **fields,
        )
        answer = self.cluster.broker.acknowledge(request)
        if answer.error is ErrorCode.NONE:
            self.epoch = max(0, next_session_epoch(request.session_epoch))
        return answer


def acknowledged(first: int, last: int, *types: int) -> AcknowledgementBatch:
    """Offsets and what is said of them; accepted, where nothing is given."""
    return AcknowledgementBatch(first_offset=first, last_offset=last, types=types or (AcknowledgeType.ACCEPT,))


def live(cluster: Cluster, source: random.Random, members: list[Member]) -> FetchResponse | AcknowledgeResponse | None:
    """One random step of one member, with what it was answered; or time, new records, a lost connection."""
    member = source.choice(members)
    kind = source.choice(("fetch",) * 5 + ("acknowledge",) * 3 + ("ride", "ride", "close", "lost", "time", "produce"))
    if kind == "produce":
        cluster.produce(source.choice((FIRST, SECOND, THIRD)), source.choice((1, 4)))
        return None
    if kind == "time":
        cluster.clock.advance(LOCK_MS // 2)
        cluster.broker.leaders.end_locks()
        return None
    if kind == "lost":
        cluster.broker.disconnected(member.name)
        member.epoch, member.held = 0, {}
        return None
    return _asked(source, member, kind)


def _asked(source: random.Random, member: Member, kind: str) -> FetchResponse | AcknowledgeResponse:
    places = tuple(source.sample((FIRST, SECOND, THIRD), source.randrange(1, 4)))
    if kind == "fetch" or (kind == "ride" and member.epoch == 0):
        forgotten = tuple(place for place in places[1:] if member.epoch and source.random() < 0.2)
        return member.fetch(*places, forgotten=forgotten, max_records=source.choice((0, 2, 500)))
    said = {place: (_said(source, member.held[place].pop()),) for place in places if member.held.get(place)}
    if kind == "ride":
        return member.fetch(said=said, max_records=source.choice((0, 3)))
    return member.acknowledge(said, epoch=-1 if kind == "close" and member.epoch else None)


def _said(source: random.Random, got: AcquiredRecords) -> AcknowledgementBatch:
    count = got.count if source.random() < 0.4 else 1
    types = (source.choice((0, 1, 1, 1, 2, 3)) for _ in range(count))
    return acknowledged(got.first_offset, got.last_offset, *types)


def offsets(found: list[AcquiredRecords]) -> set[int]:
    """Every offset of what was acquired."""
    return {offset for part in found for offset in range(part.first_offset, part.last_offset + 1)}


def memory(cluster: Cluster) -> dict[object, object]:
    """All that a broker knows of sessions and records, as values."""
    leaders = {key: deepcopy(leader.cache) for key, leader in cluster.broker.leaders.leaders.items()}
    return {**deepcopy(cluster.broker.sessions.sessions), **leaders, "log": cluster.coordinator.log.end_offset}


def opened(*places: TopicIdPartition, **settings: int) -> tuple[Cluster, Member]:
    """A member whose session holds `places`, ten records in each, all of them acquired."""
    cluster = Cluster(**settings)
    for place in places:
        cluster.produce(place, 10)
    member = Member(cluster=cluster)
    assert member.fetch(*places).error is ErrorCode.NONE
    return cluster, member


def locked(leader: SharePartitionLeader) -> set[int]:
    """What members hold."""
    return _in(leader, {DeliveryState.ACQUIRED})


def done(leader: SharePartitionLeader) -> set[int]:
    """What was acknowledged or archived, and is still known."""
    return _in(leader, {DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


def _in(leader: SharePartitionLeader, states: set[DeliveryState]) -> set[int]:
    return {
        offset
        for batch in leader.cache.batches
        for first, last, held in batch.parts()
        if held.state in states
        for offset in range(first, last + 1)
    }
