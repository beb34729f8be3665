"""Requests about groups, and their responses as values; configurations of topics and brokers. The four requests that
change groups are each sent once, and have one result for every part that was asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Self, TypeVar
from uuid import UUID

from kafka.protocol.admin.acl import ACLOperation
from kafka.protocol.admin.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from kafka.protocol.admin.groups import DeleteGroupsRequest
from kafka.protocol.consumer.group import OffsetFetchRequest

from acktrail.config import KafkaConfig
from acktrail.errors import RetryableError, WrongType, WrongValue
from acktrail.kafka.changes import ChangeResult, ConfigsChange, NewStartOffset
from acktrail.kafka.client.broker_client import BOOTSTRAP_TIMEOUT_S, BrokerClient
from acktrail.kafka.client.coordinators import CoordinatorResponse, Coordinators, SendResult
from acktrail.kafka.client.error_codes import (
    NONE,
    ErrorScope,
    Outcome,
    advice_for,
    error_text,
    outcome_of,
)
from acktrail.kafka.descriptions import (
    CommittedOffset,
    CommittedOffsets,
    GroupConfigs,
    GroupDescription,
    GroupMember,
    GroupOffsets,
    MemberAssignment,
    ShareOffset,
    check_size,
    items_of,
    offset_of,
    partition_of,
    text_of,
    texts_of,
)
from acktrail.kafka.groups.messages import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)
from acktrail.model.share_partition import topic_id_text

_SET: Final = 0
_DELETE: Final = 1
_LOST: Final = "it was sent and may have been done: verify before anything else"
_LEFT_OUT: Final = "brokers of release 4.1 lose the error of the whole request: verify, and use a newer release"
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


class ChangeTarget(NamedTuple):
    """What a change is about within its group: all of it, a topic, or a share partition."""

    topic: str | None = None
    partition: int | None = None


class PartResponse(NamedTuple):
    """The response about one part."""

    error_code: int
    message: str | None
    topic_id: str | None = None


_Parts = Mapping[ChangeTarget, PartResponse]


class GroupWriter:
    """Changes groups without members. Every request is sent once: after 14, 15, 16 and 27 on the whole request again,
    after silence never; see ``acktrail.kafka.changes`` for the outcomes. Methods raise Unreachable, RetryableError or
    ConfigurationError when it could not be sent: nothing was changed; TypeError (WrongType) or ValueError (WrongValue),
    before anything is sent, for what no request can hold.

    Use it as a context manager; it is not thread-safe. Raises Unreachable when no broker answered within
    `bootstrap_timeout_s` (every address is tried once); ConfigurationError when the configuration is not understood, or
    the broker refused the login.
    """

    def __init__(self, config: KafkaConfig, *, bootstrap_timeout_s: float = BOOTSTRAP_TIMEOUT_S) -> None:
        items_of(KafkaConfig, [config])
        self._client = BrokerClient(config, bootstrap_timeout_s=bootstrap_timeout_s)
        self._coordinators = Coordinators(self._client)

    @property
    def cluster_id(self) -> str:
        """The cluster's own id, 22 characters of base64."""
        return self._client.cluster_id

    def broker_ids(self) -> list[int]:
        """The brokers as of the last question about topics."""
        return self._client.broker_ids()

    def close(self) -> None:
        """Close every connection. May be called twice."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def alter_offsets(self, group_id: str, offsets: Iterable[NewStartOffset]) -> tuple[ChangeResult, ...]:
        """CHANGES start offsets of a group (request 91): one result for each, in the order asked for.

        Kafka initializes the share partition again there: every state batch is dropped, the state epoch is the group
        epoch. It checks no offset against the log, creates a group that does not exist (4.2 to 4.4), and takes topics
        that the group never subscribed to. Raises ValueError for a partition given twice.
        """
        wanted = items_of(NewStartOffset, offsets)

        def parts(reply: Any) -> _Parts:
            rows = ((topic, row) for topic in reply.responses for row in topic.partitions)
            return {ChangeTarget(topic.topic_name, row.partition_index): _part(row, topic) for topic, row in rows}

        targets = [ChangeTarget(new.topic, new.partition) for new in wanted]
        return self._change(group_id, targets, alter_request(group_id, wanted), parts, "READ")

    def delete_offsets(self, group_id: str, topics: Iterable[str]) -> tuple[ChangeResult, ...]:
        """DELETES the state of whole topics in a group (request 92): one result for each topic."""
        row = DeleteShareGroupOffsetsRequest.TopicToForget
        names = texts_of("topic", topics)
        request = DeleteShareGroupOffsetsRequest(
            group_id=text_of("group id", group_id), topics=[row(topic_name=name) for name in names]
        )

        def parts(reply: Any) -> _Parts:
            return {ChangeTarget(row.topic_name): _part(row, row) for row in reply.responses}

        return self._change(group_id, [ChangeTarget(name) for name in names], request, parts, "DELETE")

    def delete_group(self, group_id: str) -> ChangeResult:
        """DELETES a group with its state (request 42). Kafka deletes a group of any type: make sure first
        (`describe_group`) that it is a share group."""
        request = DeleteGroupsRequest(groups_names=[text_of("group id", group_id)])

        def parts(reply: Any) -> _Parts:
            own = (row for row in reply.results if row.group_id == group_id)
            return {ChangeTarget(): PartResponse(row.error_code, None) for row in own}

        return self._change(group_id, [ChangeTarget()], request, parts, "DELETE")[0]

    def alter_group_configs(self, change: ConfigsChange) -> ChangeResult:
        """CHANGES the configuration of one group (request 44, which any broker takes), all of it or nothing."""
        request = _configs_change(change)

        def parts(reply: Any) -> _Parts:
            own = (row for row in reply.responses if row.resource_name == change.group_id)
            return {ChangeTarget(): PartResponse(row.error_code, row.error_message) for row in own}

        sent = self._coordinators.sent(self._client.send_once(request), lambda _: (NONE, None))
        return results_per_target(change.group_id, [ChangeTarget()], sent, parts, "ALTER_CONFIGS")[0]

    def _change(
        self,
        group_id: str,
        targets: Sequence[ChangeTarget],
        request: Any,
        parts: Callable[[Any], _Parts],
        operation: str,
    ) -> tuple[ChangeResult, ...]:
        """A result for each target; without any nothing is sent."""
        if not targets:
            return ()
        sent = self._coordinators.send_once(group_id, request, _top_error)
        return results_per_target(group_id, targets, sent, parts, operation)


def _configs_change(change: ConfigsChange) -> Any:
    """Request 44. Raises WrongType or WrongValue for what it has no room for."""
    items_of(ConfigsChange, [change])
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    entries = []
    for pair in items_of(tuple, change.configs):
        if len(pair) != len(("name", "value")) or not isinstance(pair[1], str | None):
            raise WrongType(f"{pair!r:.100} is no pair of a name and a value", hint="None: the broker's default")
        name, value = text_of("name of a configuration", pair[0]), pair[1]
        value = None if value is None else check_size("value", value)
        operation = _DELETE if value is None else _SET
        entries.append(resource.AlterableConfig(name=name, config_operation=operation, value=value))
    group_id = text_of("group id", change.group_id)
    resources = [resource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=entries)]
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


def alter_request(group_id: str, offsets: Iterable[NewStartOffset]) -> Any:
    """Request 91; every topic once. Raises WrongType or WrongValue for a partition or start offset that is no int,
    below 0 or beyond what Kafka can hold, and for a partition given twice. Kafka would store a negative start offset,
    fail on a negative partition, and take the last of two."""
    by_topic: dict[str, dict[int, int]] = defaultdict(dict)
    for new in offsets:
        partition = partition_of(text_of("topic", new.topic), new.partition)
        where = f"{new.topic}:{partition}"
        if partition in by_topic[new.topic]:
            raise WrongValue(f"{where} is given twice", hint="name every partition once")
        by_topic[new.topic][partition] = offset_of(where, new.start_offset)
    row = AlterShareGroupOffsetsRequest.TopicToAlter
    topics = []
    for topic, starts in by_topic.items():
        rows = [row.PartitionToAlter(partition_index=p, start_offset=start) for p, start in sorted(starts.items())]
        topics.append(row(topic_name=topic, partitions=rows))
    return AlterShareGroupOffsetsRequest(group_id=text_of("group id", group_id), topics=topics)


def results_per_target(
    group_id: str,
    targets: Sequence[ChangeTarget],
    sent: SendResult,
    read: Callable[[Any], _Parts],
    operation: str,
) -> tuple[ChangeResult, ...]:
    """One result for each target, in their order. `read` gives the parts of a response. An error on the whole request
    counts for every target; a target that the response does not mention was not attempted; where it is not known
    whether the request arrived, every outcome is unknown. Raises the reason why it could not be sent.
    """
    if sent.unsent is not None:
        raise sent.unsent
    is_answered = sent.lost is None and sent.error_code == NONE
    parts = read(sent.reply) if is_answered else {}
    return tuple(_result(group_id, target, sent, parts.get(target), operation) for target in targets)


def _result(
    group_id: str, target: ChangeTarget, sent: SendResult, part: PartResponse | None, operation: str
) -> ChangeResult:
    result = partial(ChangeResult, group_id=group_id, topic=target.topic, partition=target.partition)
    scope = ErrorScope.PART
    if sent.error_code != NONE:
        part, scope = PartResponse(sent.error_code, sent.message), ErrorScope.TOP
    if sent.lost is not None:
        text, scope, outcome, advice = f"no answer: {sent.lost}", ErrorScope.NO_ANSWER, Outcome.UNKNOWN, _LOST
    elif part is None:
        text, scope = "the answer does not mention it", ErrorScope.ABSENT
        outcome, advice = Outcome.NOT_ATTEMPTED, _LEFT_OUT
    else:
        return result(
            topic_id=part.topic_id,
            outcome=outcome_of(part.error_code, scope),
            error_code=part.error_code,
            error=error_text(part.error_code, part.message),
            error_scope=None if part.error_code == NONE else scope,
            advice=advice_for(part.error_code, scope, operation),
        )
    return result(outcome=outcome, error_code=None, error=text, error_scope=scope, advice=advice)


def _part(row: Any, topic: Any) -> PartResponse:
    return PartResponse(row.error_code, row.error_message, known_topic_id(topic.topic_id))


def _top_error(reply: Any) -> tuple[int, str | None]:
    """A deletion of one group has its error in the row of the group."""
    rows = getattr(reply, "results", None)
    return (reply.error_code, reply.error_message) if rows is None else (rows[0].error_code if rows else NONE, None)
