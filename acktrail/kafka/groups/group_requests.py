"""Questions about groups, and their responses as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from kafka.protocol.admin.acl import ACLOperation
from kafka.protocol.consumer.group import OffsetFetchRequest

from acktrail.kafka import descriptions
from acktrail.kafka.client.coordinators import CoordinatorResponse
from acktrail.kafka.client.error_codes import NONE, error_text
from acktrail.kafka.groups.messages import DescribeShareGroupOffsetsRequest, ShareGroupDescribeRequest
from acktrail.model.share_partition import topic_id_text

AnswerT = TypeVar("AnswerT", descriptions.GroupOffsets, descriptions.CommittedOffsets)
_OPERATIONS: Final = {operation.value: operation.name for operation in ACLOperation if operation > ACLOperation.ALL}
"""ACL operations by their bit (KIP-430)."""
_OPERATIONS_NOT_ASKED: Final = -(1 << 31)
OFFSETS_AT_ONCE: Final = 1
"""Groups of a request for share-group offsets. A coordinator that is asked about several waits seconds between its own
requests for their states: 500 groups of 10 share partitions took 14 s by hundreds, 0.5 s one by one, with the same
processor time (4.3.1)."""


def describe_request(group_ids: Sequence[str], *, with_rights: bool = False) -> Any:
    """Request 77 for groups of one coordinator; `with_rights`: with what this principal may do with them."""
    return ShareGroupDescribeRequest(
        group_ids=list(group_ids), include_authorized_operations=with_rights, min_version=1
    )


def description(group_id: str, answer: CoordinatorResponse) -> descriptions.GroupDescription:
    """The part of response 77 about a group."""
    described = descriptions.GroupDescription(
        group_id=group_id,
        error_code=answer.error_code,
        error=error_text(answer.error_code, answer.message),
        coordinator_id=answer.node_id,
    )
    if answer.error_code != NONE:
        return described
    body = answer.body
    return replace(
        described,
        state=body.group_state,
        group_epoch=body.group_epoch,
        assignment_epoch=body.assignment_epoch,
        assignor=body.assignor_name,
        members=tuple(_member(member) for member in body.members),
    )


def offsets_request(group_ids: Sequence[str], topics: Mapping[str, Sequence[int]] | None = None) -> Any:
    """Request 90 for groups of one coordinator: these partitions, or (None) all that they have initialized."""
    row = DescribeShareGroupOffsetsRequest.GroupToDescribe
    named = None
    if topics is not None:
        named = [row.TopicToDescribe(topic_name=name, partitions=sorted(set(p))) for name, p in topics.items()]
    return DescribeShareGroupOffsetsRequest(groups=[row(group_id=group_id, topics=named) for group_id in group_ids])


def offsets(answer_of: type[AnswerT], group_id: str, answer: CoordinatorResponse) -> AnswerT:
    """The part of response 90 or 9 about a group, whose body was read by `share_offsets` or `committed_offsets`."""
    error = error_text(answer.error_code, answer.message)
    return answer_of(group_id=group_id, error_code=answer.error_code, error=error, offsets=answer.body or ())


def share_offsets(body: Any) -> tuple[descriptions.ShareOffset, ...]:
    """The share partitions of a group in response 90, by topic and partition."""
    return tuple(sorted(_share_offset(topic, row) for topic in body.topics for row in topic.partitions))


def committed_request(group_ids: Sequence[str]) -> Any:
    """Request 9 for groups of one coordinator: all that they have committed, by the names of topics."""
    row = OffsetFetchRequest.OffsetFetchRequestGroup
    groups = [row(group_id=group_id, topics=None) for group_id in group_ids]
    return OffsetFetchRequest(groups=groups, require_stable=False, min_version=8, max_version=9)


def committed_offsets(body: Any) -> tuple[descriptions.CommittedOffset, ...]:
    """The committed offsets of a group in response 9, by topic and partition."""
    return tuple(sorted(_committed(topic.name, row) for topic in body.topics for row in topic.partitions))


def known_topic_id(topic_id: UUID | None) -> str | None:
    """A topic id in Kafka's text form; None for the zero id."""
    return topic_id_text(topic_id.bytes) if topic_id is not None and topic_id.int else None


def _share_offset(topic: Any, row: Any) -> descriptions.ShareOffset:
    is_known = row.error_code == NONE and row.start_offset != -1
    return descriptions.ShareOffset(
        topic=topic.topic_name,
        partition=row.partition_index,
        topic_id=known_topic_id(topic.topic_id),
        start_offset=row.start_offset if is_known else None,
        leader_epoch=row.leader_epoch if is_known or row.leader_epoch > 0 else None,
        lag=row.lag if is_known and row.lag != -1 else None,
        error_code=row.error_code,
        error=error_text(row.error_code, row.error_message),
    )


def _committed(topic: str, row: Any) -> descriptions.CommittedOffset:
    return descriptions.CommittedOffset(
        topic=topic,
        partition=row.partition_index,
        offset=row.committed_offset if row.error_code == NONE and row.committed_offset >= 0 else None,
        error_code=row.error_code,
        error=error_text(row.error_code),
    )


def _member(member: Any) -> descriptions.GroupMember:
    return descriptions.GroupMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        rack=member.rack_id,
        subscribed_topics=tuple(member.subscribed_topic_names),
        assignment=tuple(
            descriptions.MemberAssignment(
                topic=topic.topic_name, topic_id=known_topic_id(topic.topic_id), partitions=tuple(topic.partitions)
            )
            for topic in member.assignment.topic_partitions
        ),
    )


def operations(answer: Any, described: Any, no_rights_code: int) -> frozenset[str] | None:
    """This principal's ACL operations, from the bits of an integer or the numbers that kafka-python makes of them."""
    if answer.error_code == no_rights_code:
        return frozenset()
    found = described.authorized_operations if answer.error_code == NONE else None
    if found is None or found == _OPERATIONS_NOT_ASKED:
        return None
    bits = {number for number in range(32) if found >> number & 1} if isinstance(found, int) else found
    return frozenset(_OPERATIONS[bit] for bit in bits if bit in _OPERATIONS)
