"""Requests about groups made, and their answers read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from acktrail.broker.client.coordinators import CoordinatorResponse
from acktrail.broker.client.error_codes import COORDINATOR_LOADING, MOVED_COORDINATOR, NONE, error_text
from acktrail.broker.descriptions import (
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffsets,
    MemberAssignment,
    ShareOffset,
)
from acktrail.broker.groups.messages import DescribeShareGroupOffsetsRequest, ShareGroupDescribeRequest
from acktrail.model.share_partition import topic_id_text

__all__ = [
    "ASK_AGAIN",
    "describe_request",
    "description",
    "known_topic_id",
    "listings",
    "named_offsets_request",
    "offsets",
    "offsets_request",
]

ASK_AGAIN: Final = MOVED_COORDINATOR | {COORDINATOR_LOADING}

_Group = DescribeShareGroupOffsetsRequest.GroupToDescribe


def listings(reply: Any, node_id: int) -> list[GroupListing]:
    """The groups in a ListGroups answer of broker `node_id`."""
    return [
        GroupListing(
            group_id=group.group_id,
            group_type=group.group_type.lower(),
            state=group.group_state,
            coordinator_id=node_id,
        )
        for group in reply.groups
    ]


def describe_request(group_ids: Sequence[str]) -> Any:
    """Request 77 for groups of one coordinator."""
    return ShareGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=False, min_version=1)


def description(group_id: str, answer: CoordinatorResponse) -> GroupDescription:
    """What answer 77 says about a group."""
    error = error_text(answer.error_code, answer.message)
    if answer.error_code != NONE:
        return GroupDescription(
            group_id=group_id, error_code=answer.error_code, error=error, coordinator_id=answer.node_id
        )
    body = answer.body
    return GroupDescription(
        group_id=group_id,
        error_code=NONE,
        error=None,
        coordinator_id=answer.node_id,
        state=body.group_state,
        group_epoch=body.group_epoch,
        assignment_epoch=body.assignment_epoch,
        assignor=body.assignor_name,
        members=tuple(_member(member) for member in body.members),
    )


def offsets_request(group_ids: Sequence[str]) -> Any:
    """Request 90 for everything that groups of one coordinator have initialized."""
    return DescribeShareGroupOffsetsRequest(groups=[_Group(group_id=group_id, topics=None) for group_id in group_ids])


def named_offsets_request(topics: Mapping[str, Sequence[int]]) -> Callable[[Sequence[str]], Any]:
    """Makes requests 90 for these partitions of these topics."""

    def request(group_ids: Sequence[str]) -> Any:
        named = [_Group.TopicToDescribe(topic_name=name, partitions=sorted(set(p))) for name, p in topics.items()]
        return DescribeShareGroupOffsetsRequest(groups=[_Group(group_id=g, topics=named) for g in group_ids])

    return request


def offsets(group_id: str, answer: CoordinatorResponse) -> GroupOffsets:
    """What answer 90 says about a group."""
    rows = () if answer.body is None else tuple(sorted(_share_offsets(answer.body)))
    return GroupOffsets(
        group_id=group_id,
        error_code=answer.error_code,
        error=error_text(answer.error_code, answer.message),
        offsets=rows,
    )


def known_topic_id(topic_id: UUID | None) -> str | None:
    """A topic id in Kafka's text form; None for the zero id."""
    return topic_id_text(topic_id.bytes) if topic_id is not None and topic_id.int else None


def _share_offsets(body: Any) -> list[ShareOffset]:
    return [_share_offset(topic, row) for topic in body.topics for row in topic.partitions]


def _share_offset(topic: Any, row: Any) -> ShareOffset:
    is_known = row.error_code == NONE and row.start_offset != -1
    return ShareOffset(
        topic=topic.topic_name,
        partition=row.partition_index,
        topic_id=known_topic_id(topic.topic_id),
        start_offset=row.start_offset if is_known else None,
        leader_epoch=row.leader_epoch if is_known or row.leader_epoch > 0 else None,
        lag=row.lag if is_known and row.lag != -1 else None,
        error_code=row.error_code,
        error=error_text(row.error_code, row.error_message),
    )


def _member(member: Any) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        rack=member.rack_id,
        subscribed_topics=tuple(member.subscribed_topic_names),
        assignment=tuple(
            MemberAssignment(
                topic=topic.topic_name, topic_id=known_topic_id(topic.topic_id), partitions=tuple(topic.partitions)
            )
            for topic in member.assignment.topic_partitions
        ),
    )
