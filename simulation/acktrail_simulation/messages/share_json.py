"""ShareFetch and ShareAcknowledge as JSON objects with Kafka's field names, by version.

Requests and answers name a topic once, its partitions below it. What is not known is -1 here, as on the wire; records
are left out. (Kafka: ``ShareFetchRequest.json``, ``ShareAcknowledgeRequest.json`` and their responses.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any, TypeVar

from acktrail.format.wire.primitives import absent_if_none
from acktrail.model.share_partition import TopicId
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch
from acktrail_simulation.messages.share_messages import (
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

PlacedT = TypeVar("PlacedT", FetchPartition, AcknowledgePartition, FetchedPartition, AcknowledgedPartition)


def request_fields(request: ShareFetch | ShareAcknowledge) -> dict[str, Any]:
    """A request as Kafka nests it, with the fields that its version has."""
    fields: dict[str, Any] = {
        "GroupId": request.group_id,
        "MemberId": request.member_id,
        "ShareSessionEpoch": request.session_epoch,
    }
    if request.version > 1:
        fields["IsRenewAck"] = request.renewing
    if isinstance(request, ShareAcknowledge):
        return {**fields, "Topics": _topics(request.partitions, _asked)}
    return {
        **fields,
        **_amounts(request),
        "Topics": _topics(request.partitions, _asked),
        "ForgottenTopicsData": _forgotten(request.forgotten),
    }


def answer_fields(answer: FetchResponse | AcknowledgeResponse) -> dict[str, Any]:
    """An answer as Kafka nests it in its newest version; nothing is throttled."""
    responses = (
        _topics(answer.partitions, _fetched)
        if isinstance(answer, FetchResponse)
        else _topics(answer.partitions, _acknowledged)
    )
    return {
        "ThrottleTimeMs": 0,
        "ErrorCode": int(answer.error),
        "ErrorMessage": None,
        "AcquisitionLockTimeoutMs": answer.lock_timeout_ms,
        "Responses": responses,
        "NodeEndpoints": [_endpoint(endpoint) for endpoint in answer.endpoints],
    }


def _amounts(request: ShareFetch) -> dict[str, int]:
    amounts = {"MaxWaitMs": request.max_wait_ms, "MinBytes": request.min_bytes, "MaxBytes": request.max_bytes}
    if request.version > 0:
        amounts |= {"MaxRecords": request.max_records, "BatchSize": request.batch_size}
    if request.version > 1:
        amounts["ShareAcquireMode"] = int(request.mode)
    return amounts


def _topics(partitions: Iterable[PlacedT], spelt: Callable[[PlacedT], dict[str, Any]]) -> list[dict[str, Any]]:
    by_topic: dict[TopicId, list[dict[str, Any]]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.at.topic_id, []).append(spelt(partition))
    return [{"TopicId": topic_id, "Partitions": found} for topic_id, found in by_topic.items()]


def _forgotten(forgotten: Iterable[TopicIdPartition]) -> list[dict[str, Any]]:
    by_topic = groupby(sorted(forgotten), key=lambda at: at.topic_id)
    return [{"TopicId": topic_id, "Partitions": [at.partition for at in found]} for topic_id, found in by_topic]


def _asked(partition: FetchPartition | AcknowledgePartition) -> dict[str, Any]:
    fields: dict[str, Any] = {"PartitionIndex": partition.at.partition}
    if isinstance(partition, FetchPartition) and partition.max_bytes is not None:
        fields["PartitionMaxBytes"] = partition.max_bytes
    return {**fields, "AcknowledgementBatches": [_batch(batch) for batch in partition.acknowledgements]}


def _batch(batch: AcknowledgementBatch) -> dict[str, Any]:
    types = [int(kind) for kind in batch.types]
    return {"FirstOffset": batch.first_offset, "LastOffset": batch.last_offset, "AcknowledgeTypes": types}


def _fetched(partition: FetchedPartition) -> dict[str, Any]:
    return {
        "PartitionIndex": partition.at.partition,
        "ErrorCode": int(partition.error),
        "ErrorMessage": None,
        "AcknowledgeErrorCode": int(partition.acknowledge_error),
        "AcknowledgeErrorMessage": None,
        "CurrentLeader": _leader(partition.current_leader),
        "AcquiredRecords": [
            {"FirstOffset": part.first_offset, "LastOffset": part.last_offset, "DeliveryCount": part.delivery_count}
            for part in partition.acquired
        ],
    }


def _acknowledged(partition: AcknowledgedPartition) -> dict[str, Any]:
    return {
        "PartitionIndex": partition.at.partition,
        "ErrorCode": int(partition.error),
        "ErrorMessage": None,
        "CurrentLeader": _leader(partition.current_leader),
    }


def _leader(leader: CurrentLeader | None) -> dict[str, int]:
    """Kafka's default without a leader is 0 and 0."""
    if leader is None:
        return {"LeaderId": 0, "LeaderEpoch": 0}
    return {"LeaderId": absent_if_none(leader.leader_id), "LeaderEpoch": leader.leader_epoch}


def _endpoint(endpoint: NodeEndpoint) -> dict[str, Any]:
    return {"NodeId": endpoint.node_id, "Host": endpoint.host, "Port": endpoint.port, "Rack": endpoint.rack}
