"""Requests that change groups made, and their answers read: one result for every part that was asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acktrail.broker.changes import ChangeResult, ErrorScope, NewStartOffset, Outcome
from acktrail.broker.client.change_outcomes import advice_for, outcome_of
from acktrail.broker.client.error_codes import NONE, error_text
from acktrail.broker.groups.arguments import check_offset, check_partition
from acktrail.broker.groups.group_responses import known_topic_id
from acktrail.broker.groups.messages import AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest
from acktrail.errors import InputError

__all__ = [
    "ChangeTarget",
    "PartResponse",
    "alter_request",
    "altered_parts",
    "delete_offsets_request",
    "deleted_parts",
    "results_per_target",
]

_NOT_MENTIONED: Final = "the answer does not mention it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTarget:
    """What a change is about within its group: all of it, a topic, or a share partition."""

    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResponse:
    """What an answer says about one part."""

    error_code: int
    message: str | None
    topic_id: str | None = None


def alter_request(group_id: str, offsets: Iterable[NewStartOffset]) -> Any:
    """Request 91; every topic once.

    Raises:
        InputError: a partition or start offset that is no int, below 0 or beyond what Kafka can hold, or a partition
            given twice. Kafka would store a negative start offset, choke on a negative partition, and let the last of
            two win.
    """
    by_topic: dict[str, dict[int, int]] = defaultdict(dict)
    for new in offsets:
        where = f"{new.topic}:{new.partition}"
        check_partition(new.topic, new.partition)
        check_offset(new.topic, new.partition, new.start_offset)
        if new.partition in by_topic[new.topic]:
            raise InputError(f"{where} is given twice", hint="name every partition once")
        by_topic[new.topic][new.partition] = new.start_offset
    rows = AlterShareGroupOffsetsRequest.TopicToAlter
    return AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            rows(
                topic_name=topic,
                partitions=[
                    rows.PartitionToAlter(partition_index=index, start_offset=start)
                    for index, start in sorted(starts.items())
                ],
            )
            for topic, starts in by_topic.items()
        ],
    )


def delete_offsets_request(group_id: str, topics: Sequence[str]) -> Any:
    """Request 92."""
    row = DeleteShareGroupOffsetsRequest.TopicToForget
    return DeleteShareGroupOffsetsRequest(group_id=group_id, topics=[row(topic_name=topic) for topic in topics])


def altered_parts(reply: Any) -> dict[ChangeTarget, PartResponse]:
    """What answer 91 says about share partitions."""
    return {
        ChangeTarget(topic=topic.topic_name, partition=row.partition_index): PartResponse(
            error_code=row.error_code, message=row.error_message, topic_id=known_topic_id(topic.topic_id)
        )
        for topic in reply.responses
        for row in topic.partitions
    }


def deleted_parts(reply: Any) -> dict[ChangeTarget, PartResponse]:
    """What answer 92 says about topics."""
    return {
        ChangeTarget(topic=row.topic_name): PartResponse(
            error_code=row.error_code, message=row.error_message, topic_id=known_topic_id(row.topic_id)
        )
        for row in reply.responses
    }


def results_per_target(
    group_id: str,
    asked: Sequence[ChangeTarget],
    *,
    error_code: int,
    message: str | None,
    said: Mapping[ChangeTarget, PartResponse],
    operation: str,
) -> tuple[ChangeResult, ...]:
    """One result for each part asked for, in the order asked for.

    An error on the whole request counts for every part; a part that the answer does not mention was not attempted.
    """
    if error_code != NONE:
        top = PartResponse(error_code=error_code, message=message)
        return tuple(_result(group_id, part, top, ErrorScope.TOP, operation) for part in asked)
    return tuple(
        _result(group_id, part, said[part], ErrorScope.PART, operation) if part in said else _absent(group_id, part)
        for part in asked
    )


def _result(group_id: str, part: ChangeTarget, said: PartResponse, scope: ErrorScope, operation: str) -> ChangeResult:
    code = said.error_code
    return ChangeResult(
        group_id=group_id,
        topic=part.topic,
        partition=part.partition,
        topic_id=said.topic_id,
        outcome=outcome_of(code, scope),
        error_code=code,
        error=error_text(code, said.message),
        error_scope=None if code == NONE else scope,
        advice=advice_for(code, scope, operation),
    )


def _absent(group_id: str, part: ChangeTarget) -> ChangeResult:
    return ChangeResult(
        group_id=group_id,
        topic=part.topic,
        partition=part.partition,
        outcome=Outcome.NOT_ATTEMPTED,
        error_code=None,
        error=_NOT_MENTIONED,
        error_scope=ErrorScope.ABSENT,
        advice="brokers of release 4.1 lose the error of the whole request: verify, and use a newer release",
    )
