"""Requests about groups, and their responses as values; configurations of topics and brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from kafka.protocol.admin.acl import ACLOperation
from kafka.protocol.admin.configs import DescribeConfigsRequest
from kafka.protocol.consumer.group import OffsetFetchRequest

from acktrail.errors import RetryableError
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.coordinators import CoordinatorResponse
from acktrail.kafka.client.error_codes import NONE, error_text
from acktrail.kafka.descriptions import (
    CommittedOffset,
    CommittedOffsets,
    GroupConfigs,
    GroupDescription,
    GroupMember,
    GroupOffsets,
    MemberAssignment,
    ShareOffset,
)
from acktrail.kafka.groups.messages import DescribeShareGroupOffsetsRequest, ShareGroupDescribeRequest
from acktrail.model.share_partition import topic_id_text

AnswerT = TypeVar("AnswerT", GroupOffsets, CommittedOffsets)
GROUP_RESOURCE: Final = 32
"""Kafka: ``ConfigResource.Type.GROUP``."""
_TOPIC_RESOURCE: Final = 2
"""Kafka: ``ConfigResource.Type.TOPIC``."""
_BROKER_RESOURCE: Final = 4
"""Kafka: ``ConfigResource.Type.BROKER``."""
_CLEANUP_POLICY: Final = "cleanup.policy"
_TOPICS_AT_ONCE: Final = 1_000
_SET_ON_THE_GROUP: Final = 8
"""Kafka: ``ConfigSource.GROUP_CONFIG``."""
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


def share_offsets(body: Any) -> tuple[ShareOffset, ...]:
    """The share partitions of a group in response 90, by topic and partition."""
    return tuple(sorted(_share_offset(topic, row) for topic in body.topics for row in topic.partitions))


def committed_request(group_ids: Sequence[str]) -> Any:
    """Request 9 for groups of one coordinator: all that they have committed, by the names of topics."""
    row = OffsetFetchRequest.OffsetFetchRequestGroup
    groups = [row(group_id=group_id, topics=None) for group_id in group_ids]
    return OffsetFetchRequest(groups=groups, require_stable=False, min_version=8, max_version=9)


def committed_offsets(body: Any) -> tuple[CommittedOffset, ...]:
    """The committed offsets of a group in response 9, by topic and partition."""
    return tuple(sorted(_committed(topic.name, row) for topic in body.topics for row in topic.partitions))


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


def _committed(topic: str, row: Any) -> CommittedOffset:
    return CommittedOffset(
        topic=topic,
        partition=row.partition_index,
        offset=row.committed_offset if row.error_code == NONE and row.committed_offset >= 0 else None,
        error_code=row.error_code,
        error=error_text(row.error_code),
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


def operations(answer: Any, described: Any, no_rights_code: int) -> frozenset[str] | None:
    """This principal's ACL operations, from the bits of an integer or the numbers that kafka-python makes of them."""
    if answer.error_code == no_rights_code:
        return frozenset()
    found = described.authorized_operations if answer.error_code == NONE else None
    if found is None or found == _OPERATIONS_NOT_ASKED:
        return None
    bits = {number for number in range(32) if found >> number & 1} if isinstance(found, int) else found
    return frozenset(_OPERATIONS[bit] for bit in bits if bit in _OPERATIONS)


def configs_request(names: Iterable[str], resource: int = GROUP_RESOURCE, key: str | None = None) -> Any:
    """Request 32 for the configuration of groups, or of other resources; one `key` of it, or all."""
    row = DescribeConfigsRequest.DescribeConfigsResource
    keys = None if key is None else [key]
    resources = [row(resource_type=resource, resource_name=name, configuration_keys=keys) for name in names]
    return DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)


def configs(result: Any) -> GroupConfigs:
    """The part of response 32 about a group."""
    values = {entry.name: entry.value for entry in result.configs if entry.value is not None}
    return GroupConfigs(
        group_id=result.resource_name,
        configs=values if result.error_code == NONE else None,
        own=frozenset(entry.name for entry in result.configs if entry.config_source == _SET_ON_THE_GROUP),
        error_code=result.error_code,
        error=error_text(result.error_code, result.error_message),
    )


def compacted_topics(client: BrokerClient, topics: Sequence[str]) -> dict[str, bool | None]:
    """Whether old values of a key are removed from each partition of these topics (``cleanup.policy`` has ``compact``).
    None: not known, for instance without DESCRIBE_CONFIGS on the topic. Raises Unreachable, RetryableError: no broker
    answered."""
    found: dict[str, bool | None] = dict.fromkeys(topics)
    for begin in range(0, len(topics), _TOPICS_AT_ONCE):
        named = topics[begin : begin + _TOPICS_AT_ONCE]
        results = client.send(configs_request(named, _TOPIC_RESOURCE, _CLEANUP_POLICY)).results
        policies = {result.resource_name: _value(result, _CLEANUP_POLICY) for result in results}
        found |= {name: None if policy is None else "compact" in policy.split(",") for name, policy in policies.items()}
    return found


def broker_config(client: BrokerClient, name: str) -> str | None:
    """A configuration as the first of the brokers has it. None: not known, for instance without DESCRIBE_CONFIGS on the
    cluster, or the broker did not answer; or brokers of this release do not have it."""
    node_id = min(client.broker_ids())
    try:
        (result,) = client.send(configs_request([str(node_id)], _BROKER_RESOURCE, name), node_id).results
    except RetryableError:
        return None
    return _value(result, name)


def _value(result: Any, name: str) -> str | None:
    values = {entry.name: entry.value for entry in result.configs or ()} if result.error_code == NONE else {}
    return values.get(name)
