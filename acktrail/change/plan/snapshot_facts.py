"""The snapshot that a plan is made from: facts about the cluster, groups, topics and share partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from acktrail.model.offset_ranges import Span
from acktrail.model.share_partition import ZERO_TOPIC_ID, GroupId, SharePartition, TopicId

_GROUP_ID_NOT_FOUND: Final = 69


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A cluster. `state_topic_id` None: the state topic is not there, or may not be read; `state_reason` says why."""

    cluster_id: str
    release: str
    resets_share_groups: bool
    state_topic_id: str | None
    state_reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """A group as its coordinator describes it. `error_code` 69: there is no such share group; `is_other_type`: a group
    of another type has the id. `members` are client ids. `rights` are ACL operations by name; None: not returned."""

    group_id: str
    state: str | None
    group_epoch: int | None
    members: tuple[str, ...]
    rights: tuple[str, ...] | None
    error_code: int
    error: str | None
    is_other_type: bool = False

    @property
    def is_missing(self) -> bool:
        return self.error_code == _GROUP_ID_NOT_FOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic. With an error `topic_id` is None and `partition_count` 0; `nearest` are similar names."""

    topic: str
    topic_id: str | None
    partition_count: int
    is_internal: bool
    rights: tuple[str, ...] | None
    error_code: int
    error: str | None
    nearest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """What the state topic holds of a share partition, replayed. `first_unfinished_offset` is where a leader would
    begin: past the finished records at the start. Batches are (first, last, delivery state, delivery count), ascending,
    both ends inclusive."""

    state_partition: int
    record_offset: int
    snapshot_epoch: int
    state_epoch: int | None
    start_offset: int | None
    first_unfinished_offset: int | None
    delivery_complete_count: int | None
    batches: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedFacts:
    """What the group last did with the records from `first_offset` to `last_offset` (inclusive) below its start offset,
    by the exported history.

    `acknowledged` and `archived` are those that are known. For `unknown` of the records the history lacks something, so
    that it may be otherwise, and `reason` says what. `since_ms` is the broker's time of the first state record used.
    """

    first_offset: int
    last_offset: int
    acknowledged: int = 0
    archived: int = 0
    unknown: int = 0
    since_ms: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOffset:
    """The offset that a file, the history or an earlier plan names. `offset` None: there is none, for `reason`.
    `topic_id` is the topic's incarnation at that time. For an undo: `left_at` is where the plan left the start offset;
    `is_left`: it left none, because it deleted the state `deleted`."""

    offset: int | None = None
    reason: str | None = None
    topic_id: str | None = None
    left_at: int | None = None
    is_left: bool = False
    deleted: PartitionState | None = None


TargetOffsets = Mapping[str, Mapping[tuple[str, int], TargetOffset]]
"""By group, then topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """Topic, log, start offset and state of one share partition. `log_end_offset` is the high watermark, one past the
    last record. `start_offset` is what the broker describes; None: not initialized. `state` None: the state topic holds
    nothing, or (`state_reason`) it is not known. `hidden`: the offsets of the log, from the start offset or the target
    on, that are no records of this group (see `acktrail.model.offset_ranges`); None: the log was not looked through.
    """

    group_id: str
    topic: str
    topic_id: str | None
    partition: int
    partition_count: int
    log_start_offset: int | None
    log_end_offset: int | None
    start_offset: int | None
    state: PartitionState | None
    state_reason: str | None
    hidden: tuple[Span, ...] | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        return self.group_id, self.topic, self.partition

    @property
    def name(self) -> str:
        return f"{self.topic}:{self.partition}"

    @property
    def share_partition(self) -> SharePartition:
        """Its key in the state topic. The topic must be known."""
        topic_id = TopicId(self.topic_id or ZERO_TOPIC_ID)
        return SharePartition(group_id=GroupId(self.group_id), topic_id=topic_id, partition=self.partition)

    @property
    def recorded_start(self) -> int | None:
        """The start offset in the state topic; where that holds nothing, the described one."""
        return self.start_offset if self.state is None else self.state.start_offset

    @property
    def resume_offset(self) -> int | None:
        """Where a leader would begin: the first unfinished record, as far as the state shows it."""
        return self.start_offset if self.state is None else self.state.first_unfinished_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts(PartitionOffsets):
    """One share partition before a plan is made.

    `is_described` False: the group has nothing there; `is_new_group`: the group does not exist. `deleted_at` is the
    offset of the newest tombstone in the state topic. `offset_at` is the first record at or after the moment of the
    strategy; `given` what a file, the history or a snapshot names. `passed` is about the records below the start offset
    that the strategy delivers again; None: there are none, or it was not read.
    """

    log_error: str | None
    is_described: bool
    is_new_group: bool = False
    deleted_at: int | None = None
    offset_at: int | None = None
    given: TargetOffset = TargetOffset()
    passed: PassedFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """The states of the state topic by share partition, None: the topic holds nothing of it; `reasons` why one is not
    known. `reason`: why nothing is known at all. `ends` are the state partitions' ends when they were read, `deleted`
    the offsets of the newest tombstones."""

    topic_id: str | None = None
    reason: str | None = None
    states: Mapping[SharePartition, PartitionState | None] = field(default_factory=dict)
    reasons: Mapping[SharePartition, str] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    deleted: Mapping[SharePartition, int] = field(default_factory=dict)

    @property
    def held(self) -> frozenset[SharePartition]:
        """The share partitions that have a state, known or not."""
        return frozenset(key for key, state in self.states.items() if state is not None or key in self.reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything a plan is made from, taken at `taken_at_ms`. `unmatched` are group globs that no group matches,
    `states` what the state topic had. `hidden`: share partitions with a state of topics that may not be described,
    where all topics are asked for. `staying`: the other share partitions that checks of branches need, which the
    request leaves as they are.
    """

    taken_at_ms: int
    cluster: ClusterFacts
    groups: tuple[GroupFacts, ...]
    topics: tuple[TopicFacts, ...]
    partitions: tuple[PartitionFacts, ...]
    unmatched: tuple[str, ...] = ()
    states: StateFacts = field(default_factory=StateFacts)
    hidden: tuple[SharePartition, ...] = ()
    staying: tuple[PartitionFacts, ...] = ()
