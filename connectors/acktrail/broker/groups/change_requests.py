"""The four requests that change groups, each sent once, and one result for every part that was asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from acktrail.broker.changes import ChangeResult, ConfigsChange, NewStartOffset
from acktrail.broker.client.broker_client import BOOTSTRAP_TIMEOUT_S, BrokerClient, NoResponse
from acktrail.broker.client.coordinators import Coordinators, SendResult
from acktrail.broker.client.error_codes import NONE, ErrorScope, Outcome, advice_for, error_text, outcome_of
from acktrail.broker.groups.group_requests import GROUP_RESOURCE, known_topic_id
from acktrail.broker.groups.messages import AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest
from acktrail.config import KafkaConfig
from acktrail.errors import InputError

_LARGEST_PARTITION: Final = (1 << 31) - 1
_LARGEST_OFFSET: Final = (1 << 63) - 1
_SET: Final = 0
_DELETE: Final = 1


class ChangeTarget(NamedTuple):
    """What a change is about within its group: all of it, a topic, or a share partition."""

    topic: str | None = None
    partition: int | None = None


class PartResponse(NamedTuple):
    """The response about one part."""

    error_code: int
    message: str | None
    topic_id: str | None = None


def check_partition(topic: str, partition: object) -> None:
    """Raises InputError unless `partition` is an int that Kafka has room for (int32, from 0 on)."""
    if not _is_whole(partition, _LARGEST_PARTITION):
        raise InputError(f"{topic}: {partition!r} is no partition", hint="partitions count from 0 to 2147483647")


def check_timestamp(timestamp_ms: object) -> None:
    """Raises InputError unless `timestamp_ms` is an int of milliseconds since the epoch."""
    if not _is_whole(timestamp_ms, _LARGEST_OFFSET):
        raise InputError(f"{timestamp_ms!r} is no time", hint="whole milliseconds since 1970-01-01T00:00:00Z")


def _is_whole(number: object, largest: int) -> bool:
    """True and False are ints to Python, and no numbers to a caller."""
    return type(number) is int and 0 <= number <= largest


class GroupWriter(BrokerClient):
    """Changes groups without members. Every request is sent once: after 14, 15, 16 and 27 on the whole request again,
    after silence never; see ``acktrail.broker.changes`` for the outcomes. All methods raise Unreachable, RetryableError
    or ConfigurationError when it could not be sent: nothing was changed.
    """

    def __init__(self, config: KafkaConfig, *, bootstrap_timeout_s: float = BOOTSTRAP_TIMEOUT_S) -> None:
        super().__init__(config, bootstrap_timeout_s=bootstrap_timeout_s)
        self._coordinators = Coordinators(self)

    def alter_offsets(self, group_id: str, offsets: Iterable[NewStartOffset]) -> tuple[ChangeResult, ...]:
        """CHANGES start offsets of a group (request 91): one result for each, in the order asked for.

        Kafka initializes the share partition again there: every state batch is dropped, the state epoch is the group
        epoch. It checks no offset against the log, creates a group that does not exist (4.2 to 4.4), and takes topics
        that the group never subscribed to. Raises InputError as `alter_request`: nothing was sent.
        """
        wanted = tuple(offsets)
        request = alter_request(group_id, wanted)

        def parts(reply: Any) -> dict[ChangeTarget, PartResponse]:
            rows = ((topic, row) for topic in reply.responses for row in topic.partitions)
            return {ChangeTarget(topic.topic_name, row.partition_index): _part(row, topic) for topic, row in rows}

        sent = self._coordinators.send_once(group_id, request, _top_error)
        targets = [ChangeTarget(new.topic, new.partition) for new in wanted]
        return results_per_target(group_id, targets, sent, parts, "READ")

    def delete_offsets(self, group_id: str, topics: Sequence[str]) -> tuple[ChangeResult, ...]:
        """DELETES the state of whole topics in a group (request 92): one result for each topic."""
        targets = [ChangeTarget(topic) for topic in dict.fromkeys(topics)]
        rows = [DeleteShareGroupOffsetsRequest.TopicToForget(topic_name=target.topic) for target in targets]
        request = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=rows)

        def parts(reply: Any) -> dict[ChangeTarget, PartResponse]:
            return {ChangeTarget(row.topic_name): _part(row, row) for row in reply.responses}

        sent = self._coordinators.send_once(group_id, request, _top_error)
        return results_per_target(group_id, targets, sent, parts, "DELETE")

    def delete_group(self, group_id: str) -> ChangeResult:
        """DELETES a group with its state (request 42). Kafka deletes a group of any type: make sure first
        (`describe_group`) that it is a share group."""
        from kafka.protocol.admin.groups import DeleteGroupsRequest

        def parts(reply: Any) -> dict[ChangeTarget, PartResponse]:
            own = (row for row in reply.results if row.group_id == group_id)
            return {ChangeTarget(): PartResponse(row.error_code, None) for row in own}

        def top_error(reply: Any) -> tuple[int, str | None]:
            return next((part.error_code for part in parts(reply).values()), NONE), None

        sent = self._coordinators.send_once(group_id, DeleteGroupsRequest(groups_names=[group_id]), top_error)
        return results_per_target(group_id, [ChangeTarget()], sent, parts, "DELETE")[0]

    def alter_group_configs(self, change: ConfigsChange) -> ChangeResult:
        """CHANGES the configuration of one group (request 44, which any broker takes), all of it or nothing."""
        from kafka.protocol.admin.configs import IncrementalAlterConfigsRequest

        def parts(reply: Any) -> dict[ChangeTarget, PartResponse]:
            own = (row for row in reply.responses if row.resource_name == change.group_id)
            return {ChangeTarget(): PartResponse(row.error_code, row.error_message) for row in own}

        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        entries = [
            resource.AlterableConfig(name=name, config_operation=_DELETE if value is None else _SET, value=value)
            for name, value in change.configs
        ]
        resources = [resource(resource_type=GROUP_RESOURCE, resource_name=change.group_id, configs=entries)]
        reply = self.send_once(IncrementalAlterConfigsRequest(resources=resources, validate_only=False))
        sent = SendResult(reply=reply)
        if isinstance(reply, NoResponse):
            error = self.explain(reply)
            if not reply.may_have_arrived:
                raise error
            sent = SendResult(lost=error.message)
        return results_per_target(change.group_id, [ChangeTarget()], sent, parts, "ALTER_CONFIGS")[0]


def alter_request(group_id: str, offsets: Iterable[NewStartOffset]) -> Any:
    """Request 91; every topic once. Raises InputError for a partition or start offset that is no int, below 0 or
    beyond what Kafka can hold, and for a partition given twice. Kafka would store a negative start offset, fail on a
    negative partition, and take the last of two."""
    by_topic: dict[str, dict[int, int]] = defaultdict(dict)
    for new in offsets:
        where = f"{new.topic}:{new.partition}"
        check_partition(new.topic, new.partition)
        if not _is_whole(new.start_offset, _LARGEST_OFFSET):
            raise InputError(f"{where}: no such start offset: {new.start_offset!r}", hint="whole numbers, from 0 on")
        if new.partition in by_topic[new.topic]:
            raise InputError(f"{where} is given twice", hint="name every partition once")
        by_topic[new.topic][new.partition] = new.start_offset
    row = AlterShareGroupOffsetsRequest.TopicToAlter
    topics = []
    for topic, starts in by_topic.items():
        rows = [row.PartitionToAlter(partition_index=p, start_offset=start) for p, start in sorted(starts.items())]
        topics.append(row(topic_name=topic, partitions=rows))
    return AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics)


def results_per_target(
    group_id: str,
    targets: Sequence[ChangeTarget],
    sent: SendResult,
    read: Callable[[Any], Mapping[ChangeTarget, PartResponse]],
    operation: str,
) -> tuple[ChangeResult, ...]:
    """One result for each target, in their order. `read` gives the parts of a response. An error on the whole request
    counts for every target; a target that the response does not mention was not attempted; where it is not known
    whether the request arrived, every outcome is unknown.
    """
    parts = read(sent.reply) if sent.lost is None and sent.error_code == NONE else {}
    return tuple(_result(group_id, target, sent, parts.get(target), operation) for target in targets)


def _result(
    group_id: str, target: ChangeTarget, sent: SendResult, part: PartResponse | None, operation: str
) -> ChangeResult:
    result = partial(ChangeResult, group_id=group_id, topic=target.topic, partition=target.partition)
    if sent.lost is not None:
        return result(
            outcome=Outcome.UNKNOWN,
            error_code=None,
            error=f"no answer: {sent.lost}",
            error_scope=ErrorScope.NO_ANSWER,
            advice="it was sent and may have been done: verify before anything else",
        )
    scope = ErrorScope.PART
    if sent.error_code != NONE:
        part, scope = PartResponse(sent.error_code, sent.message), ErrorScope.TOP
    if part is None:
        return result(
            outcome=Outcome.NOT_ATTEMPTED,
            error_code=None,
            error="the answer does not mention it",
            error_scope=ErrorScope.ABSENT,
            advice="brokers of release 4.1 lose the error of the whole request: verify, and use a newer release",
        )
    return result(
        topic_id=part.topic_id,
        outcome=outcome_of(part.error_code, scope),
        error_code=part.error_code,
        error=error_text(part.error_code, part.message),
        error_scope=None if part.error_code == NONE else scope,
        advice=advice_for(part.error_code, scope, operation),
    )


def _part(row: Any, topic: Any) -> PartResponse:
    return PartResponse(row.error_code, row.error_message, known_topic_id(topic.topic_id))


def _top_error(reply: Any) -> tuple[int, str | None]:
    return reply.error_code, reply.error_message
