"""A broker's view of its cluster: topics, leaders, listeners, and rights to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from acktrail.model.share_partition import GroupId, TopicId
from acktrail_simulation.leader.partition_log import UserPartitionLog
from acktrail_simulation.messages.share_messages import CurrentLeader, NodeEndpoint, TopicIdPartition


@dataclass(slots=True, kw_only=True)
class PartitionLeadership:
    """One topic partition: its log, and who leads it since which epoch. `leader_id` None: no leader."""

    leader_id: int | None
    leader_epoch: int
    log: UserPartitionLog = field(default_factory=UserPartitionLog)


@dataclass(slots=True, kw_only=True)
class ClusterView:
    """`names`: without topics that do not exist. `closed_groups` and `closed_topics`: those that the members may not
    read, topics by name.
    """

    names: dict[TopicId, str]
    places: dict[TopicIdPartition, PartitionLeadership]
    endpoints: Mapping[int, NodeEndpoint]
    closed_groups: frozenset[GroupId] = frozenset()
    closed_topics: frozenset[str] = frozenset()

    def name_of(self, at: TopicIdPartition) -> str | None:
        """The topic's name; None: no topic has this id."""
        return self.names.get(at.topic_id)

    def may_read(self, topic: str) -> bool:
        """Whether the members may read a topic, by its name."""
        return topic not in self.closed_topics

    def current_leader(self, at: TopicIdPartition) -> CurrentLeader:
        """Who leads a topic partition that is there."""
        place = self.places[at]
        return CurrentLeader(leader_id=place.leader_id, leader_epoch=place.leader_epoch)

    def endpoint_of(self, leader: CurrentLeader | None) -> NodeEndpoint | None:
        """Where a leader listens; None: there is none, or it is not alive."""
        return None if leader is None or leader.leader_id is None else self.endpoints.get(leader.leader_id)
