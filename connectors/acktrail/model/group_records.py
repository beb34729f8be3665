"""The group coordinator's records of share groups, as values: members, epochs, assignments, lifecycle of state.

Record types 10 to 15 of ``__consumer_offsets`` (Kafka: ``CoordinatorRecordType``). The topic is compacted: of every key
only the newest record is certain to be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from acktrail.model.share_partition import GroupId, TopicId


class GroupRecordType(IntEnum):
    """The type that a key begins with; Kafka's names without ``SHARE_GROUP``."""

    MEMBER_METADATA = 10
    METADATA = 11
    TARGET_ASSIGNMENT_METADATA = 12
    TARGET_ASSIGNMENT_MEMBER = 13
    CURRENT_MEMBER_ASSIGNMENT = 14
    STATE_PARTITION_METADATA = 15

    @property
    def has_member(self) -> bool:
        """The record is of one member of the group."""
        return self in (self.MEMBER_METADATA, self.TARGET_ASSIGNMENT_MEMBER, self.CURRENT_MEMBER_ASSIGNMENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPartitions:
    """Partitions of a topic that a member has, or is to have."""

    topic_id: TopicId
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPartitions:
    """Partitions of a topic; `topic` is ``<UNKNOWN>`` where the coordinator does not know the name."""

    topic_id: TopicId
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTopic:
    """A whole topic."""

    topic_id: TopicId
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupMemberMetadata:
    """Type 10: a member, and what it subscribed to."""

    group_id: GroupId
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupMetadata:
    """Type 11: the group epoch, and a hash over the metadata of the subscribed topics."""

    group_id: GroupId
    epoch: int
    metadata_hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupTargetAssignmentMetadata:
    """Type 12: the epoch of the target assignment. Its time in ms is known from Kafka 4.3 on (KIP-1263)."""

    group_id: GroupId
    assignment_epoch: int
    assignment_timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupTargetAssignmentMember:
    """Type 13: what a member is to have."""

    group_id: GroupId
    member_id: str
    assigned: tuple[AssignedPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupCurrentMemberAssignment:
    """Type 14: what a member has; `state` is Kafka's number (``MemberState``)."""

    group_id: GroupId
    member_id: str
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: tuple[AssignedPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupStatePartitionMetadata:
    """Type 15: which share partitions have state, are getting it, or are losing it."""

    group_id: GroupId
    initializing: tuple[NamedPartitions, ...]
    initialized: tuple[NamedPartitions, ...]
    deleting: tuple[NamedTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupTombstone:
    """A record of type `record_type` was removed; `member_id` None: the type has none."""

    record_type: GroupRecordType
    group_id: GroupId
    member_id: str | None


ShareGroupValue = (
    ShareGroupMemberMetadata
    | ShareGroupMetadata
    | ShareGroupTargetAssignmentMetadata
    | ShareGroupTargetAssignmentMember
    | ShareGroupCurrentMemberAssignment
    | ShareGroupStatePartitionMetadata
)

ShareGroupRecord = ShareGroupValue | ShareGroupTombstone
