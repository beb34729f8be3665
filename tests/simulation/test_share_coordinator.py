"""The simulated share coordinator: what it answers, and laws that hold whatever it is asked."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_calls import KEYS, Step, coordinator, requests, scripts, take

from acktrail.model.batches import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord
from acktrail.model.replay import SharePartitionState, replay
from acktrail.model.share_partition import SharePartition
from acktrail_simulation.coordinator.coordinator_state import ShareCoordinatorState
from acktrail_simulation.coordinator.release_rules import KAFKA_4_3, KAFKA_4_4, KAFKA_TRUNK, CoordinatorRules
from acktrail_simulation.coordinator.share_coordinator import UPDATES_PER_SNAPSHOT, Availability, ShareCoordinator
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.messages.persister_messages import (
    PersisterRequest,
    PersisterResponse,
    ReadResponse,
    StateInitialize,
    StateRead,
    StateSummary,
)

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


def test_a_read_raises_the_leader_epoch_once() -> None:
    """R000-33: a new leader's read writes an update with its epoch and no batches; the same leader's next one nothing.
    After a reset the snapshot says leader epoch 0 and the highest seen still fences."""
    found = started()
    found.answer(write(0, batch(3, 4), done=2))
    answer = found.answer(StateRead(key=KEY, leader_epoch=5))
    update = records(found)[-1]

    assert answer == ReadResponse(key=KEY, state_epoch=0, start_offset=0, batches=(batch(3, 4),))
    assert isinstance(update, ShareUpdate)
    assert (update.leader_epoch, update.start_offset, update.delivery_complete_count) == (5, 0, 2)
    assert update.batches == ()
    end = found.log.end_offset
    assert found.answer(StateRead(key=KEY, leader_epoch=5)) == answer
    assert found.log.end_offset == end
    found.answer(StateInitialize(key=KEY, state_epoch=1, start_offset=9))
    assert (found.memory.states[KEY].leader_epoch, found.memory.leader_epochs[KEY]) == (0, 5)
    assert found.answer(StateRead(key=KEY, leader_epoch=4)).error is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("availability", "error"),
    [
        (Availability.ACTIVE, ErrorCode.NONE),
        (Availability.LOADING, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (Availability.INACTIVE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (Availability.MOVED, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_coordinator_that_loads_refuses_calls(availability: Availability, error: ErrorCode) -> None:
    """R000-32: until the log is read to its end, or elsewhere, no call is served, also none that is wrong in itself."""
    found = started()
    found.availability = availability

    assert found.answer(StateSummary(key=KEY)).error is error
    if error is not ErrorCode.NONE:
        assert found.answer(write(0, key=replace(KEY, partition=-1))) == PersisterResponse(
            key=replace(KEY, partition=-1), error=error
        )


def test_the_snapshot_after_so_many_updates() -> None:
    """R000-23: the write that finds the limit reached is a snapshot, with all that was before it; 500 by default."""
    found = started(limit=3)
    for offset in range(9):
        found.answer(write(0, batch(offset, offset), done=offset + 1))

    kinds = ["s" if isinstance(record, ShareSnapshot) else "u" for record in records(found)]
    assert "".join(kinds) == "suuusuuusu"
    third = records(found)[8]
    assert isinstance(third, ShareSnapshot)
    assert (third.snapshot_epoch, third.batches, third.delivery_complete_count) == (2, (batch(0, 7),), 8)
    assert third.create_timestamp_ms == third.write_timestamp_ms
    assert UPDATES_PER_SNAPSHOT == 500
    every = started(limit=0)
    every.answer(write(0, batch(0, 0)))
    assert all(isinstance(record, ShareSnapshot) for record in records(every))


ALL_RULES = st.sampled_from((KAFKA_4_3, KAFKA_4_4, KAFKA_TRUNK))
limits = st.integers(0, 3)


@given(scripts(most=40), limits, ALL_RULES, st.data())
def test_what_is_left_of_the_log_is_what_memory_knows(
    steps: list[Step], limit: int, rules: CoordinatorRules, data: st.DataObject
) -> None:
    """R000-14, R000-30, R000-32: after every step, whatever was pruned, replaying the log gives the coordinator's own
    states, and every live key's newest snapshot is there; loading a whole log gives all that is in memory. One that
    crashed between any two records starts again with the state that it had between them."""
    found = coordinator(limit=limit, rules=rules)
    known: dict[int, dict[SharePartition, SharePartitionState]] = {}
    for step in steps:
        take(found, step)
        assert replay(records(found)) == found.memory.states
        assert all(offset >= found.log.start_offset for offset in found.memory.snapshot_offsets.values())
        if not found.log.start_offset:
            assert ShareCoordinatorState.loaded(found.log.placed(), updates_per_snapshot=limit) == found.memory
        known[found.log.end_offset] = deepcopy(found.memory.states)
    crash = data.draw(st.integers(found.log.start_offset, found.log.end_offset))
    again = found.restarted(end_offset=crash)
    assert again.memory.states == replay(records(found)[: crash - found.log.start_offset])
    if crash in known and not found.log.start_offset:
        assert again.memory.states == known[crash]


@given(scripts(), requests(), limits, ALL_RULES)
def test_what_is_refused_changes_nothing(
    steps: list[Step], request: PersisterRequest, limit: int, rules: CoordinatorRules
) -> None:
    """R002-58: an answer with an error has written no record and left memory as it was; so has a summary."""
    found = coordinator(limit=limit, rules=rules)
    for step in steps:
        take(found, step)
    before, end = deepcopy(found.memory), found.log.end_offset
    answer = found.answer(request)

    if answer.error is not ErrorCode.NONE or isinstance(request, StateSummary):
        assert (found.memory, found.log.end_offset) == (before, end)


@given(st.lists(requests().filter(lambda request: isinstance(request, StateWrite)), max_size=6), limits)
def test_a_fenced_writer_changes_nothing_that_is_read(writes: list[StateWrite], limit: int) -> None:
    """R002-58: once a newer leader has read, or the group has begun afresh, the state that is read stays what it is,
    whatever the older writer sends."""
    newer_leader, newer_group = started(limit=limit), started(limit=limit)
    newer_leader.answer(StateRead(key=KEY, leader_epoch=7))
    newer_group.answer(StateInitialize(key=KEY, state_epoch=7, start_offset=9))
    for found, leader_epoch in ((newer_leader, 7), (newer_group, 0)):
        read = found.answer(StateRead(key=KEY, leader_epoch=leader_epoch))
        for older in writes:
            answer = found.answer(replace(older, key=KEY, leader_epoch=min(older.leader_epoch or 0, 3), state_epoch=3))
            assert answer.error in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
            assert found.answer(StateRead(key=KEY, leader_epoch=leader_epoch)) == read


@given(scripts(prune=False), st.data())
def test_any_update_may_be_a_snapshot(steps: list[Step], data: st.DataObject) -> None:
    """R000-22, R000-53: an update replaced by a snapshot of the state it led to leaves every state as it was, but for
    its snapshot epoch and times."""
    found = coordinator(limit=100)
    for step in steps:
        take(found, step)
    log = records(found)
    updates = [index for index, record in enumerate(log) if isinstance(record, ShareUpdate)]
    if not updates:
        return
    chosen = data.draw(st.sampled_from(updates))
    state = replay(log[: chosen + 1])[log[chosen].key]
    assert state.state_epoch is not None
    assert state.leader_epoch is not None
    log[chosen] = ShareSnapshot(
        key=state.key,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp_ms=1,
        write_timestamp_ms=1,
        batches=state.batches,
    )

    assert {k: ageless(s) for k, s in replay(log).items()} == {k: ageless(s) for k, s in found.memory.states.items()}
