"""Why a share coordinator refuses a call: its checks, in Kafka's order (``ShareCoordinatorShard.maybeGet…Error``)."""

from __future__ import annotations

from collections.abc import Mapping

from acktrail.model.share_partition import SharePartition, TopicId
from acktrail_simulation.coordinator.coordinator_state import ShareCoordinatorState
from acktrail_simulation.coordinator.release_rules import CoordinatorRules
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.messages.persister_messages import PersisterRequest, StateInitialize, StateRead


def validation_error(
    memory: ShareCoordinatorState,
    request: PersisterRequest,
    rules: CoordinatorRules,
    partition_counts: Mapping[TopicId, int] | None,
) -> ErrorCode:
    """The error of the first check that `request` fails; NONE when it passes. Nothing is changed.

    `partition_counts`: the topics that exist, with their partitions; None: the coordinator has no metadata yet.
    """
    checks = (_malformed(memory, request, rules), _fenced(memory, request))
    found = next((error for error in checks if error is not ErrorCode.NONE), ErrorCode.NONE)
    if found is ErrorCode.NONE and not _exists(request.key, partition_counts):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return found


def _malformed(memory: ShareCoordinatorState, request: PersisterRequest, rules: CoordinatorRules) -> ErrorCode:
    broken = request.key.partition < 0 or (not rules.unchecked_epochs and _lacks_epoch(request))
    needs_state = isinstance(request, StateRead | StateWrite)
    if broken or (needs_state and request.key not in memory.states):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _lacks_epoch(request: PersisterRequest) -> bool:
    return any(epoch is None or epoch < 0 for epoch in _epochs(request))


def _epochs(request: PersisterRequest) -> tuple[int | None, ...]:
    match request:
        case StateWrite():
            return request.leader_epoch, request.state_epoch
        case StateRead():
            return (request.leader_epoch,)
        case StateInitialize():
            return (request.state_epoch,)
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
