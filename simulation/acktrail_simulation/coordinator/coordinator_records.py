"""The record that a share coordinator writes for a call that passed its checks (``ShareCoordinatorShard``)."""

from __future__ import annotations

from collections.abc import Iterable

from acktrail.format.wire.primitives import absent_if_none, none_if_absent
from acktrail.model.batches import StateBatch, combine_state_batches
from acktrail.model.records import ShareSnapshot, ShareUpdate
from acktrail.model.replay import SharePartitionState
from acktrail_simulation.coordinator.coordinator_state import ShareCoordinatorState
from acktrail_simulation.coordinator.release_rules import CoordinatorRules
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.messages.persister_messages import StateInitialize, StateRead


def initializing_snapshot(
    memory: ShareCoordinatorState, request: StateInitialize, rules: CoordinatorRules, now_ms: int
) -> ShareSnapshot | None:
    """The fresh snapshot of an initialize: the next snapshot epoch, leader epoch 0, no batches; None when it would
    repeat itself (Kafka's trunk).

    Nothing of the old batches is kept: what was acknowledged above the start offset is delivered again.
    """
    before = memory.states.get(request.key)
    repeated = (
        before is not None
        and before.start_offset == request.start_offset
        and memory.state_epochs.get(request.key) == request.state_epoch
    )
    if rules.idempotent_initialize and repeated:
        return None
    return ShareSnapshot(
        key=request.key,
        snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
        state_epoch=absent_if_none(request.state_epoch),
        leader_epoch=0,
        start_offset=request.start_offset,
        delivery_complete_count=None if request.start_offset is None else 0,
        create_timestamp_ms=now_ms,
        write_timestamp_ms=now_ms,
        batches=(),
    )


def writing_record(
    memory: ShareCoordinatorState, request: StateWrite, rules: CoordinatorRules, now_ms: int
) -> ShareSnapshot | ShareUpdate:
    """The record of a write: a snapshot when one is due, else an update. It keeps the leader epoch and state epoch
    there are: only a read raises the one, only an initialize the other.
    """
    leader_epoch = memory.states[request.key].leader_epoch
    return _record(memory, request, rules, leader_epoch=leader_epoch, now_ms=now_ms)


def reading_record(
    memory: ShareCoordinatorState, request: StateRead, rules: CoordinatorRules, now_ms: int
) -> ShareSnapshot | ShareUpdate | None:
    """The record of a read: none for the leader epoch that is known, else one with the new epoch and no batches."""
    known = memory.leader_epochs.get(request.key) == request.leader_epoch
    if known or (rules.unchecked_epochs and request.leader_epoch is None):
        return None
    state = memory.states[request.key]
    unchanged = StateWrite(
        key=request.key,
        state_epoch=state.state_epoch,
        leader_epoch=request.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        batches=(),
    )
    return _record(memory, unchanged, rules, leader_epoch=request.leader_epoch, now_ms=now_ms)


def cold_snapshots(
    states: Iterable[SharePartitionState], *, now_ms: int, cold_after_ms: int
) -> tuple[ShareSnapshot, ...]:
    """The snapshots of what had none for `cold_after_ms`: the state as it is, its creation time kept.

    None at all when every state's newest snapshot is such a one: then the whole shard is quiet. They come in the order
    of their keys; Kafka's order is that of a hash map.
    """
    found = sorted(states, key=lambda state: state.key)
    if all((state.create_timestamp_ms or 0) != (state.write_timestamp_ms or 0) for state in found):
        return ()
    return tuple(
        _snapshot(
            state,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            batches=state.batches,
            created_ms=state.create_timestamp_ms or 0,
            written_ms=now_ms,
        )
        for state in found
        if now_ms - (state.write_timestamp_ms or 0) >= cold_after_ms
    )


def _record(
    memory: ShareCoordinatorState,
    request: StateWrite,
    rules: CoordinatorRules,
    *,
    leader_epoch: int | None,
    now_ms: int,
) -> ShareSnapshot | ShareUpdate:
    state = memory.states[request.key]
    is_snapshot = memory.is_due_for_snapshot(request.key)
    start_offset, complete_count = _progress(state, request, rules, is_snapshot=is_snapshot)
    if is_snapshot:
        return _snapshot(
            state,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            batches=combine_state_batches(state.batches, request.batches, start_offset),
            created_ms=now_ms,
            written_ms=now_ms,
        )
    return ShareUpdate(
        key=state.key,
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=complete_count,
        batches=combine_state_batches((), request.batches, start_offset),
    )


def _progress(
    state: SharePartitionState, request: StateWrite, rules: CoordinatorRules, *, is_snapshot: bool
) -> tuple[int | None, int | None]:
    """Start offset and complete count of the record. Kafka compares its -1 like any offset, so absent is -1 here."""
    asked, held = absent_if_none(request.start_offset), absent_if_none(state.start_offset)
    count, held_count = absent_if_none(request.delivery_complete_count), absent_if_none(state.delivery_complete_count)
    if not rules.guarded_progress:
        return none_if_absent(held if is_snapshot and request.start_offset is None else asked), none_if_absent(count)
    if asked < held:
        count = held_count
    elif asked == held:
        count = max(count, held_count)
    return none_if_absent(max(asked, held)), none_if_absent(count)


def _snapshot(
    state: SharePartitionState,
    *,
    leader_epoch: int | None,
    start_offset: int | None,
    delivery_complete_count: int | None,
    batches: tuple[StateBatch, ...],
    created_ms: int,
    written_ms: int,
) -> ShareSnapshot:
    return ShareSnapshot(
        key=state.key,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch or 0,  # where only updates were seen Kafka holds 0
        leader_epoch=absent_if_none(leader_epoch),
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        create_timestamp_ms=created_ms,
        write_timestamp_ms=written_ms,
        batches=batches,
    )
