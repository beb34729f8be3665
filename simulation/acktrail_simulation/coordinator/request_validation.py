"""Why a share coordinator refuses a call: its checks, in Kafka's order (``ShareCoordinatorShard.maybeGet…Error``)."""

from __future__ import annotations

from collections.abc import Mapping

from acktrail.model.share_partition import SharePartition, TopicId
from acktrail_simulation.coordinator.coordinator_state import ShareCoordinatorState
from acktrail_simulation.coordinator.release_rules import CoordinatorRules
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import MESSAGES, ErrorCode
from acktrail_simulation.messages.persister_messages import PersisterRequest, StateInitialize, StateRead

Refusal = tuple[ErrorCode, str]
"""An error, and Kafka's words with it."""


def refusal_of(
    memory: ShareCoordinatorState,
    request: PersisterRequest,
    rules: CoordinatorRules,
    partition_counts: Mapping[TopicId, int] | None,
) -> Refusal | None:
    """The first check that `request` fails; None: it passes. Nothing is changed.

    `partition_counts`: the topics that exist, with their partitions; None: the coordinator has no metadata yet.
    """
    if (fault := _malformed(memory, request, rules)) is not None:
        return ErrorCode.INVALID_REQUEST, fault
    error = _fenced(memory, request)
    if error is ErrorCode.NONE and not _exists(request.key, partition_counts):
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None if error is ErrorCode.NONE else (error, MESSAGES[error])


def _malformed(memory: ShareCoordinatorState, request: PersisterRequest, rules: CoordinatorRules) -> str | None:
    if request.key.partition < 0:
        return "The partition id cannot be a negative number."
    for name, epoch in () if rules.unchecked_epochs else _epochs(request):
        if epoch is None or epoch < 0:
            return f"The {name} epoch cannot be a negative number."
    if isinstance(request, StateRead | StateWrite) and request.key not in memory.states:
        kind = "Read" if isinstance(request, StateRead) else "Write"
        return f"{kind} operation on uninitialized share partition not allowed."
    return None


def _epochs(request: PersisterRequest) -> tuple[tuple[str, int | None], ...]:
    match request:
        case StateWrite():
            return ("leader", request.leader_epoch), ("state", request.state_epoch)
        case StateRead():
            return (("leader", request.leader_epoch),)
        case StateInitialize():
            return (("state", request.state_epoch),)
        case _:
            return ()


def _fenced(memory: ShareCoordinatorState, request: PersisterRequest) -> ErrorCode:
    """A lower epoch than the highest seen is fenced, an equal or higher one passes; leader epochs come first."""
    key = request.key
    if isinstance(request, StateRead | StateWrite) and _is_lower(request.leader_epoch, memory.leader_epochs.get(key)):
        return ErrorCode.FENCED_LEADER_EPOCH
    if isinstance(request, StateInitialize | StateWrite) and _is_lower(
        request.state_epoch, memory.state_epochs.get(key)
    ):
        return ErrorCode.FENCED_STATE_EPOCH
    return ErrorCode.NONE


def _is_lower(epoch: int | None, highest: int | None) -> bool:
    return epoch is not None and highest is not None and epoch < highest


def _exists(key: SharePartition, partition_counts: Mapping[TopicId, int] | None) -> bool:
    return partition_counts is not None and key.partition < partition_counts.get(key.topic_id, 0)
