"""Changes to share groups, each sent once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from acktrail.broker.changes import ChangeResult, ConfigsChange, ErrorScope, NewStartOffset, Outcome
from acktrail.broker.client.broker_client import BrokerClient, NoResponse
from acktrail.broker.client.coordinators import Coordinators, SendResult
from acktrail.broker.client.error_codes import NONE
from acktrail.broker.groups.change_requests import (
    ChangeTarget,
    PartResponse,
    alter_request,
    altered_parts,
    delete_offsets_request,
    deleted_parts,
    results_per_target,
)
from acktrail.broker.groups.group_configs import alter_configs_request

__all__ = ["GroupWriter"]

_ON_GROUP: Final = "READ"
_DELETE: Final = "DELETE"
_ALTER_CONFIGS: Final = "ALTER_CONFIGS"


class GroupWriter:
    """Sends changes to the coordinators of groups. See `changes` for what becomes of them."""

    def __init__(self, client: BrokerClient, coordinators: Coordinators) -> None:
        self._client = client
        self._coordinators = coordinators

    def alter_offsets(self, group_id: str, offsets: Iterable[NewStartOffset]) -> tuple[ChangeResult, ...]:
        """Request 91. Raises InputError for what Kafka must not be sent; else as `Coordinators.send_once`."""
        wanted = tuple(offsets)
        parts = [ChangeTarget(topic=new.topic, partition=new.partition) for new in wanted]
        alter_request(group_id, wanted)
        told = self._coordinators.send_once(group_id, lambda: alter_request(group_id, wanted), _whole_error)
        return _results(group_id, parts, told, altered_parts, _ON_GROUP)

    def delete_offsets(self, group_id: str, topics: Sequence[str]) -> tuple[ChangeResult, ...]:
        """Request 92."""
        wanted = tuple(dict.fromkeys(topics))
        told = self._coordinators.send_once(group_id, lambda: delete_offsets_request(group_id, wanted), _whole_error)
        return _results(group_id, [ChangeTarget(topic=topic) for topic in wanted], told, deleted_parts, _DELETE)

    def delete_group(self, group_id: str) -> ChangeResult:
        """Request 42, for one group."""
        from kafka.protocol.admin import DeleteGroupsRequest

        def rows(reply: Any) -> dict[ChangeTarget, PartResponse]:
            return {
                ChangeTarget(): PartResponse(error_code=row.error_code, message=None)
                for row in reply.results
                if row.group_id == group_id
            }

        def whole_error(reply: Any) -> tuple[int, str | None]:
            said = rows(reply).get(ChangeTarget())
            return (NONE, None) if said is None else (said.error_code, said.message)

        told = self._coordinators.send_once(group_id, lambda: DeleteGroupsRequest(groups_names=[group_id]), whole_error)
        return _results(group_id, [ChangeTarget()], told, rows, _DELETE)[0]

    def alter_configs(self, change: ConfigsChange) -> ChangeResult:
        """Request 44 on a group, which any broker takes."""

        def rows(reply: Any) -> dict[ChangeTarget, PartResponse]:
            return {
                ChangeTarget(): PartResponse(error_code=row.error_code, message=row.error_message)
                for row in reply.responses
                if row.resource_name == change.group_id
            }

        told = self._send_anywhere(alter_configs_request(change))
        return _results(change.group_id, [ChangeTarget()], told, rows, _ALTER_CONFIGS)[0]

    def _send_anywhere(self, request: Any) -> SendResult:
        reply = self._client.send_once(request)
        if not isinstance(reply, NoResponse):
            return SendResult(error_code=NONE, message=None, reply=reply)
        error = self._client.explain(reply)
        if not reply.may_have_arrived:
            raise error
        return SendResult(error_code=NONE, message=None, reply=None, lost=error.message)


def _whole_error(reply: Any) -> tuple[int, str | None]:
    return reply.error_code, reply.error_message


def _results(
    group_id: str,
    parts: Sequence[ChangeTarget],
    told: SendResult,
    read: Callable[[Any], dict[ChangeTarget, PartResponse]],
    operation: str,
) -> tuple[ChangeResult, ...]:
    if told.lost is not None:
        return tuple(_lost(group_id, part, told.lost) for part in parts)
    said = {} if told.reply is None or told.error_code != NONE else read(told.reply)
    return results_per_target(
        group_id, parts, error_code=told.error_code, message=told.message, said=said, operation=operation
    )


def _lost(group_id: str, part: ChangeTarget, reason: str) -> ChangeResult:
    return ChangeResult(
        group_id=group_id,
        topic=part.topic,
        partition=part.partition,
        outcome=Outcome.UNKNOWN,
        error_code=None,
        error=f"no answer: {reason}",
        error_scope=ErrorScope.NO_ANSWER,
        advice="it was sent and may have been done: verify before anything else",
    )
