"""The four requests that change groups: each is sent once, and has one result for every part that was asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self

from kafka.protocol.admin.configs import IncrementalAlterConfigsRequest
from kafka.protocol.admin.groups import DeleteGroupsRequest

from acktrail.config import KafkaConfig
from acktrail.errors import WrongType, WrongValue
from acktrail.kafka.changes import ChangeResult, ConfigsChange, NewStartOffset
from acktrail.kafka.client.broker_client import BOOTSTRAP_TIMEOUT_S, BrokerClient
from acktrail.kafka.client.coordinators import Coordinators, SendResult
from acktrail.kafka.client.error_codes import NONE, ErrorScope, Outcome, advice_for, error_text, outcome_of
from acktrail.kafka.describe_configs import GROUP_RESOURCE
from acktrail.kafka.descriptions import check_size, items_of, offset_of, partition_of, text_of, texts_of
from acktrail.kafka.groups.group_requests import known_topic_id
from acktrail.kafka.groups.messages import AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest

_SET: Final = 0
_DELETE: Final = 1
_LOST: Final = "it was sent and may have been done: verify before anything else"
_LEFT_OUT: Final = "brokers of release 4.1 lose the error of the whole request: verify, and use a newer release"


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
    """Changes groups without members.

    Every request is sent once. It is sent again only after the coordinator answered that it did nothing (error 14, 15,
    16 or 27 on the whole request), never after a timeout. ``acktrail.kafka.changes`` describes the outcomes.

    Methods raise, before anything is sent, TypeError (WrongType) or ValueError (WrongValue) for arguments that no
    request can hold; and Unreachable, RetryableError or ConfigurationError when the request could not be sent: then
    nothing was changed.

    Use it as a context manager; it is not thread-safe. The constructor raises Unreachable when no broker answered
    within `bootstrap_timeout_s` (every address is tried once), and ConfigurationError when the configuration is not
    understood or the broker refused the login.
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
        """Return the ids of the brokers in the last metadata."""
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
            raise WrongType(f"{pair!r:.100} is not a pair of a name and a value", hint="None: the broker's default")
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
            raise WrongValue(f"{where} is given twice", hint="give every partition only once")
        by_topic[new.topic][partition] = offset_of(where, new.start_offset)
    row = AlterShareGroupOffsetsRequest.TopicToAlter
    topics = []
    for topic, starts in by_topic.items():
        rows = [row.PartitionToAlter(partition_index=p, start_offset=start) for p, start in sorted(starts.items())]
        topics.append(row(topic_name=topic, partitions=rows))
    return AlterShareGroupOffsetsRequest(group_id=text_of("group id", group_id), topics=topics)


def results_per_target(
    group_id: str, targets: Sequence[ChangeTarget], sent: SendResult, read: Callable[[Any], _Parts], operation: str
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
