"""What a share coordinator itself holds: ReadShareGroupState, which brokers ask each other and acktrail never asks."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from kafka.protocol.api_message import ApiMessage

from acktrail.config import KafkaConfig
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.model.share_partition import SharePartition, topic_id_bytes

__all__ = ["CoordinatorState", "coordinator_states", "read_state"]

_HERE = __name__
_NO_START_OFFSET = -1


class ReadShareGroupStateRequest(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Request 84."""


class ReadShareGroupStateResponse(ApiMessage, load_json=_HERE):  # type: ignore[call-arg]  # the metaclass's
    """Answer 84."""


class CoordinatorState(NamedTuple):
    """An answer for one share partition. Batches are (first, last, delivery state, delivery count). `start_offset`
    None: there is none yet.
    """

    error_code: int
    state_epoch: int
    start_offset: int | None
    batches: tuple[tuple[int, int, int, int], ...]


def read_state(client: BrokerClient, key: SharePartition, leader_epoch: int) -> CoordinatorState:
    """Ask as the leader of `leader_epoch` would. A newer epoch than the state's would be written down."""
    request = ReadShareGroupStateRequest
    topic = request.ReadStateData
    partition = topic.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
    topic_id = uuid.UUID(bytes=topic_id_bytes(key.topic_id))
    answer = client.send(request(group_id=key.group_id, topics=[topic(topic_id=topic_id, partitions=[partition])]))
    ((found,),) = (result.partitions for result in answer.results)
    return CoordinatorState(
        error_code=found.error_code,
        state_epoch=found.state_epoch,
        start_offset=None if found.start_offset == _NO_START_OFFSET else found.start_offset,
        batches=tuple(
            (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
            for batch in found.state_batches
        ),
    )


def coordinator_states(kafka: KafkaConfig) -> Mapping[SharePartition, CoordinatorState]:
    """What the one broker holds of every share partition that it describes."""
    with ShareGroupAdmin(kafka) as admin, BrokerClient(kafka) as client:
        groups = [listing.group_id for listing in admin.list_groups()]
        described = [
            (SharePartition(group_id=answer.group_id, topic_id=offset.topic_id, partition=offset.partition), offset)
            for answer in admin.describe_group_offsets(groups)
            for offset in answer.offsets
        ]
        return {key: read_state(client, key, offset.leader_epoch or 0) for key, offset in described}
