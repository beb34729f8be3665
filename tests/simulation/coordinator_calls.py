"""A simulated share coordinator under a test's hands: short calls, and what its log holds."""

from __future__ import annotations

from dataclasses import replace

from samples.coordinator_random_calls import KEYS, coordinator

from acktrail.model.batches import StateBatch
from acktrail.model.records import StateRecord
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import SharePartition
from acktrail_simulation.coordinator.release_rules import KAFKA_4_4, CoordinatorRules
from acktrail_simulation.coordinator.share_coordinator import ShareCoordinator
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.messages.persister_messages import StateInitialize

__all__ = ["KEY", "ageless", "batch", "records", "started", "write"]

KEY = KEYS[0]


def batch(first: int, last: int, state: int = 2, count: int = 1) -> StateBatch:
    return StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)


def write(
    start: int | None,
    *batches: StateBatch,
    key: SharePartition = KEY,
    leader: int = 0,
    state_epoch: int = 0,
    done: int = 0,
) -> StateWrite:
    return StateWrite(
        key=key,
        state_epoch=state_epoch,
        leader_epoch=leader,
        start_offset=start,
        delivery_complete_count=done,
        batches=batches,
    )


def started(*, limit: int = 2, rules: CoordinatorRules = KAFKA_4_4, start: int | None = 0) -> ShareCoordinator:
    found = coordinator(limit=limit, rules=rules)
    found.answer(StateInitialize(key=KEY, state_epoch=0, start_offset=start))
    return found


def records(found: ShareCoordinator) -> list[StateRecord]:
    return [entry.record for entry in found.log.entries]


def ageless(state: SharePartitionState) -> SharePartitionState:
    """Without what a snapshot sets anew."""
    return replace(state, snapshot_epoch=0, create_timestamp_ms=None, write_timestamp_ms=None)
