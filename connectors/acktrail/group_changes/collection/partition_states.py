"""The states of share partitions in the state topic, as facts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from acktrail.broker.state.state_lookup import PartitionReading
from acktrail.broker.state.state_topic import StateTopic
from acktrail.errors import NotAuthorized
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.collection.facts import PartitionState
from acktrail.model.share_partition import STATE_TOPIC, SharePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """`states` by share partition, None: the topic holds nothing of it; `reasons` why one is not known. `reason`: why
    nothing is known at all. `ends` are the state partitions' ends when they were read."""

    topic_id: str | None = None
    reason: str | None = None
    states: Mapping[SharePartition, PartitionState | None] = field(default_factory=dict)
    reasons: Mapping[SharePartition, str] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)


def read_states(cluster: Cluster, keys: Collection[SharePartition]) -> StateFacts:
    """What the state topic holds of `keys` now. A missing right is a reason; a topic that is not there holds nothing.

    Raises:
        Unreachable, RetryableError: the cluster does not answer.
        ForeignCluster: the topic was recreated while it was read.
    """
    try:
        topic = StateTopic(cluster.admin)
        if not topic.is_present:
            return StateFacts(states=dict.fromkeys(keys))
        readings, ends = cluster.state_lookup(topic).read(keys)
    except NotAuthorized as error:
        return StateFacts(reason=error.message)
    return StateFacts(
        topic_id=topic.topic_id,
        states={key: _state(reading) for key, reading in readings.items()},
        reasons={key: f"{STATE_TOPIC} {r.unreadable}" for key, r in readings.items() if r.unreadable is not None},
        ends=ends,
    )


def _state(reading: PartitionReading) -> PartitionState | None:
    state = reading.state
    if state is None or reading.offset is None:
        return None
    return PartitionState(
        state_partition=reading.state_partition,
        record_offset=reading.offset,
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        effective_start_offset=state.effective_start_offset,
        delivery_complete_count=state.delivery_complete_count,
        batches=tuple(
            (b.first_offset, b.last_offset, int(b.delivery_state), int(b.delivery_count)) for b in state.batches
        ),
    )
