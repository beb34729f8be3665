"""Requests about groups, and their responses as values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin.configs import DescribeConfigsRequest

from acktrail.broker.client.broker_client import BrokerClient
from acktrail.broker.client.coordinators import CoordinatorResponse, Coordinators
from acktrail.broker.client.error_codes import (
    GROUP_AUTHORIZATION_FAILED,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    error_text,
)
from acktrail.broker.descriptions import (
    GroupConfigs,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffsets,
    MemberAssignment,
    Rights,
    ShareOffset,
)
from acktrail.broker.groups.messages import DescribeShareGroupOffsetsRequest, ShareGroupDescribeRequest
from acktrail.model.share_partition import topic_id_text

_GROUPS_AT_ONCE: Final = 500
GROUP_RESOURCE: Final = 32
"""Kafka: ``ConfigResource.Type.GROUP``."""
_SET_ON_THE_GROUP: Final = 8
"""Kafka: ``ConfigSource.GROUP_CONFIG``."""
_OPERATIONS: Final = {
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
}
"""ACL operations by their bit (KIP-430)."""
_OPERATIONS_NOT_ASKED: Final = -(1 << 31)

_Group = DescribeShareGroupOffsetsRequest.GroupToDescribe


def listings(reply: Any, node_id: int) -> list[GroupListing]:
    """The groups in a ListGroups response of broker `node_id`."""
    return [
        GroupListing(
            group_id=group.group_id,
            group_type=group.group_type.lower(),
            state=group.group_state,
            coordinator_id=node_id,
        )
        for group in reply.groups
    ]


def describe_request(group_ids: Sequence[str], *, with_rights: bool = False) -> Any:
    """Request 77 for groups of one coordinator; `with_rights`: with what this principal may do with them."""
    return ShareGroupDescribeRequest(
        group_ids=list(group_ids), include_authorized_operations=with_rights, min_version=1
    )


def description(group_id: str, answer: CoordinatorResponse) -> GroupDescription:
    """The part of response 77 about a group."""
    described = GroupDescription(
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
    """The part of response 90 about a group."""
    topics = () if answer.body is None else answer.body.topics
    return GroupOffsets(
        group_id=group_id,
        error_code=answer.error_code,
        error=error_text(answer.error_code, answer.message),
        offsets=tuple(sorted(_share_offset(topic, row) for topic in topics for row in topic.partitions)),
    )


def known_topic_id(topic_id: UUID | None) -> str | None:
    """A topic id in Kafka's text form; None for the zero id."""
    return topic_id_text(topic_id.bytes) if topic_id is not None and topic_id.int else None


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


def read_group_configs(client: BrokerClient, group_ids: Iterable[str]) -> tuple[GroupConfigs, ...]:
    """See ``ShareGroupAdmin.group_configs``."""
    wanted = tuple(dict.fromkeys(group_ids))
    row = partial(DescribeConfigsRequest.DescribeConfigsResource, resource_type=GROUP_RESOURCE, configuration_keys=None)
    found: dict[str, GroupConfigs] = {}
    for at in range(0, len(wanted), _GROUPS_AT_ONCE):
        resources = [row(resource_name=group_id) for group_id in wanted[at : at + _GROUPS_AT_ONCE]]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)
        found |= {result.resource_name: _configs(result) for result in client.send(request).results}
    return tuple(found[group_id] for group_id in wanted)


def read_rights(
    client: BrokerClient, coordinators: Coordinators, group_ids: Iterable[str], topics: Iterable[str]
) -> Rights:
    """See ``ShareGroupAdmin.rights``."""
    answers = coordinators.query(group_ids, partial(describe_request, with_rights=True))
    names = tuple(dict.fromkeys(topics))
    rows = client.metadata(names, with_rights=True).topics if names else ()
    return Rights(
        groups={name: _rights(answer, answer.body, GROUP_AUTHORIZATION_FAILED) for name, answer in answers.items()},
        topics={row.name: _rights(row, row, TOPIC_AUTHORIZATION_FAILED) for row in rows},
    )


def _rights(answer: Any, described: Any, no_rights_code: int) -> frozenset[str] | None:
    """Operations by name, from the bits of an integer or the numbers that kafka-python makes of them."""
    if answer.error_code == no_rights_code:
        return frozenset()
    operations = described.authorized_operations if answer.error_code == NONE else None
    if operations is None or operations == _OPERATIONS_NOT_ASKED:
        return None
    bits = {number for number in range(32) if operations >> number & 1} if isinstance(operations, int) else operations
    return frozenset(_OPERATIONS[bit] for bit in bits if bit in _OPERATIONS)


def _configs(result: Any) -> GroupConfigs:
    values = {entry.name: entry.value for entry in result.configs if entry.value is not None}
    return GroupConfigs(
        group_id=result.resource_name,
        configs=values if result.error_code == NONE else None,
        own=frozenset(entry.name for entry in result.configs if entry.config_source == _SET_ON_THE_GROUP),
        error_code=result.error_code,
        error=error_text(result.error_code, result.error_message),
    )
