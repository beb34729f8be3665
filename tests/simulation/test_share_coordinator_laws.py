"""The simulated share coordinator: laws that hold whatever it is asked."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_calls import Step, coordinator, requests, scripts, take
from simulation.coordinator_calls import KEY, ageless, records, started

from acktrail.model.records import ShareSnapshot, ShareUpdate
from acktrail.model.replay import SharePartitionState, replay
from acktrail.model.share_partition import SharePartition
from acktrail_simulation.coordinator.coordinator_state import ShareCoordinatorState
from acktrail_simulation.coordinator.release_rules import KAFKA_4_3, KAFKA_4_4, KAFKA_TRUNK, CoordinatorRules
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.messages.persister_messages import PersisterRequest, StateInitialize, StateRead, StateSummary

ALL_RULES = st.sampled_from((KAFKA_4_3, KAFKA_4_4, KAFKA_TRUNK))
limits = st.integers(0, 3)


@given(scripts(prune=False), limits, ALL_RULES)
def test_a_restart_knows_what_memory_knew(steps: list[Step], limit: int, rules: CoordinatorRules) -> None:
    """R000-30, R000-32: after every step, replaying the log gives the coordinator's own states, and loading it gives
    all that it holds in memory."""
    found = coordinator(limit=limit, rules=rules)
    for step in steps:
        take(found, step)
        assert replay(records(found)) == found.memory.states
        assert ShareCoordinatorState.loaded(found.log.placed(), updates_per_snapshot=limit) == found.memory


@given(scripts(most=40), limits)
def test_pruning_loses_no_state(steps: list[Step], limit: int) -> None:
    """R000-14: whatever was pruned, what is left replays to the states in memory, and every live key's newest snapshot
    is still there."""
    found = coordinator(limit=limit)
    for step in steps:
        take(found, step)
        assert replay(records(found)) == found.memory.states
        assert all(offset >= found.log.start_offset for offset in found.memory.snapshot_offsets.values())


@given(scripts(), limits, st.data())
def test_a_crash_loses_only_what_was_never_written(steps: list[Step], limit: int, data: st.DataObject) -> None:
    """A coordinator that crashed between any two records starts again with the state it had between them."""
    found = coordinator(limit=limit)
    known: dict[int, dict[SharePartition, SharePartitionState]] = {}
    for step in steps:
        take(found, step)
        known[found.log.end_offset] = deepcopy(found.memory.states)
    crash = data.draw(st.integers(found.log.start_offset, found.log.end_offset))
    again = found.restarted(end_offset=crash)

    if crash in known and found.log.start_offset == 0:
        assert again.memory.states == known[crash]
    assert again.memory.states == replay(records(found)[: crash - found.log.start_offset])


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
