"""The two calls of a share group's members, ShareFetch (78) and ShareAcknowledge (79), as values.

They have version 2, Kafka 4.2's and later.
As JSON objects they have Kafka's field names (``ShareFetchRequest.json``, ``ShareAcknowledgeRequest.json``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from acktrail.model.share_partition import GroupId, TopicId
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch
from acktrail_simulation.leader.acquisition import AcquireMode

_HIGHEST_EPOCH: Final = 2**31 - 1
_MAX_BYTES: Final = 0x7FFF_FFFF


def next_session_epoch(epoch: int) -> int:
    """The share session epoch after `epoch`: the highest is followed by 1, for 0 opens a session; a closed one stays
    so (Kafka: ``ShareRequestMetadata.nextEpoch``).
    """
    if epoch < 0:
        return -1
    return 1 if epoch == _HIGHEST_EPOCH else epoch + 1


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TopicIdPartition:
    """A topic partition by the topic's id."""

    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPartition:
    """One topic partition of a request."""

    at: TopicIdPartition
    acknowledgements: tuple[AcknowledgementBatch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareFetch:
    """What a member asks for. `forgotten` leave its session. `renewing`: the acknowledgements renew locks;
    then every amount asked for must be 0.
    """

    group_id: GroupId | None
    member_id: str
    session_epoch: int
    partitions: tuple[AskedPartition, ...] = ()
    forgotten: tuple[TopicIdPartition, ...] = ()
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = _MAX_BYTES
    max_records: int = 500
    batch_size: int = 500
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED
    renewing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAcknowledge:
    """A member's acknowledgements of records that it holds."""

    group_id: GroupId | None
    member_id: str
    session_epoch: int
    partitions: tuple[AskedPartition, ...] = ()
    renewing: bool = False


def request_fields(request: ShareFetch | ShareAcknowledge) -> dict[str, Any]:
    """A request as Kafka nests it."""
    fields: dict[str, Any] = {
        "GroupId": request.group_id,
        "MemberId": request.member_id,
        "ShareSessionEpoch": request.session_epoch,
        "IsRenewAck": request.renewing,
    }
    if isinstance(request, ShareAcknowledge):
        return {**fields, "Topics": _topics(request.partitions)}
    return {
        **fields,
        **_amounts(request),
        "Topics": _topics(request.partitions),
        "ForgottenTopicsData": _forgotten(request.forgotten),
    }


def _amounts(request: ShareFetch) -> dict[str, int]:
    amounts = {"MaxWaitMs": request.max_wait_ms, "MinBytes": request.min_bytes, "MaxBytes": request.max_bytes}
    amounts |= {"MaxRecords": request.max_records, "BatchSize": request.batch_size}
    return {**amounts, "ShareAcquireMode": int(request.mode)}


def _topics(partitions: Iterable[AskedPartition]) -> list[dict[str, Any]]:
    by_topic: dict[TopicId, list[dict[str, Any]]] = {}
    for partition in partitions:
        batches = [_batch(batch) for batch in partition.acknowledgements]
        asked = {"PartitionIndex": partition.at.partition, "AcknowledgementBatches": batches}
        by_topic.setdefault(partition.at.topic_id, []).append(asked)
    return [{"TopicId": topic_id, "Partitions": found} for topic_id, found in by_topic.items()]


def _forgotten(forgotten: Iterable[TopicIdPartition]) -> list[dict[str, Any]]:
    by_topic = groupby(sorted(forgotten), key=lambda at: at.topic_id)
    return [{"TopicId": topic_id, "Partitions": [at.partition for at in found]} for topic_id, found in by_topic]


def _batch(batch: AcknowledgementBatch) -> dict[str, Any]:
    types = [int(kind) for kind in batch.types]
    return {"FirstOffset": batch.first_offset, "LastOffset": batch.last_offset, "AcknowledgeTypes": types}
