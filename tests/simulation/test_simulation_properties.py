"""The simulated share coordinator and state topic: what they answer, who is asked, calls for several share partitions,
and laws that hold whatever they are asked. The simulated share-partition leader: where it begins, and what no life may
break."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from definitions.batch_rules import in_order, terminal_count
from hypothesis import example, given
from hypothesis import strategies as st
from samples.coordinator_random_calls import KEYS, TOPICS, Step, coordinator, requests, scripts, take
from samples.random_records import keys
from simulation.leader_random_walk import KEY, LedPartition, SimulatedLeader, held

from acktrail.model.batches import DeliveryState, prune_state_batches
from acktrail.model.records import StateRecord
from acktrail.model.replay import SharePartitionState, replay
from acktrail.model.share_partition import GroupId, SharePartition, state_partition_of
from acktrail_simulation.coordinator.coordinator_state import ShareCoordinatorState
from acktrail_simulation.coordinator.release_rules import KAFKA_4_3, KAFKA_4_4, KAFKA_TRUNK, CoordinatorRules
from acktrail_simulation.coordinator.share_coordinator import ShareCoordinator
from acktrail_simulation.coordinator.state_topic import ShareCoordinatorService, coordinator_key
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch, AcknowledgeType
from acktrail_simulation.leader.acquisition import AcquiredRecords, FetchLimits
from acktrail_simulation.leader.group_settings import OffsetReset, ShareGroupSettings
from acktrail_simulation.leader.partition_log import UserPartitionLog
from acktrail_simulation.leader.persisted_batches import durable_batches
from acktrail_simulation.leader.share_partition_leader import LeaderStatus
from acktrail_simulation.messages.persister_json import read_request, request_fields
from acktrail_simulation.messages.persister_messages import (
    Batched,
    PersisterRequest,
    PersisterResponse,
    StateInitialize,
    StateSummary,
    batched,
)


def records(found: ShareCoordinator) -> list[StateRecord]:
    return [entry.record for entry in found.log.entries]


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


def topic(partitions: int = 4) -> ShareCoordinatorService:
    found = ShareCoordinatorService(partitions=partitions, updates_per_snapshot=2)
    for topic_id, count in TOPICS.items():
        found.create_topic(topic_id, count)
    return found


@given(st.lists(requests(), max_size=20))
def test_a_call_is_its_entries(entries: list[PersisterRequest]) -> None:
    """R002-73: share partitions travel together, one call a group, and each fares as alone; all records of a share
    partition lie on one state partition, the one its hash names (R000-07, R000-11)."""
    together, alone = topic(), topic()
    for call in batched(entries):
        assert {entry.key.group_id for entry in call.entries} == {call.group_id}
        answers = together.answer_call(call).entries
        last = {entry.key: alone.answer(entry) for entry in call.entries}
        assert {answer.key: answer for answer in answers} == last
        assert len(answers) == len(last)
    assert sorted(map(str, entries)) == sorted(str(e) for call in batched(entries) for e in call.entries)
    assert together.states() == alone.states() == replay(placed.record for placed in together.placed())
    for placed in together.placed():
        assert placed.partition == state_partition_of(placed.record.key, 4)


@given(keys.filter(lambda key: key.partition >= 0))
@example(replace(KEYS[0], group_id=GroupId("a:b:AQIDBAUGBwgJCgsMDQ4PEA:1")))
def test_a_coordinator_key_is_read_from_the_right(key: SharePartition) -> None:
    """R000-10: whatever the group id holds, colons too, the key names its share partition."""
    assert coordinator_key(key.coordinator_key) == key


@given(st.lists(requests().filter(lambda request: request.key.partition >= 0), min_size=1, max_size=8))
def test_calls_are_spelt_and_read(entries: list[PersisterRequest]) -> None:
    """R002-72, R002-73: what a call says survives its JSON form."""
    for call in batched(entries):
        for kind in {type(entry) for entry in call.entries}:
            alike = tuple(entry for entry in call.entries if isinstance(entry, kind))
            assert read_request(kind, request_fields(Batched(group_id=call.group_id, entries=alike))) == alike


@pytest.mark.parametrize(
    ("reset", "expected"), [(OffsetReset.EARLIEST, 0), (OffsetReset.LATEST, 15), (OffsetReset.BY_DURATION, 10)]
)
def test_where_a_group_begins(reset: OffsetReset, expected: int) -> None:
    """R000-34, R002-35, R002-71: a start offset that was never written is the group's choice, and is written with the
    first change only."""
    led = LedPartition(UserPartitionLog(), ShareGroupSettings(offset_reset=reset, reset_duration_ms=10))
    for age in (50, 20, 5):
        led.log.append(5, timestamp_ms=led.clock.now_ms - age)
    led.coordinator.answer(StateInitialize(key=KEY, state_epoch=2, start_offset=None))
    assert led.led(1) is ErrorCode.NONE

    assert led.leader.cache.start_offset == expected
    assert led.coordinator.memory.states[KEY].start_offset is None
    assert min(offsets(drained(led)), default=led.log.end_offset) == expected
    assert (led.coordinator.memory.states[KEY].start_offset is None) == (expected == led.log.end_offset)


seeds = st.integers(0, 2**32)
lengths = st.integers(1, 120)


def offsets(found: list[AcquiredRecords]) -> set[int]:
    return {offset for part in found for offset in range(part.first_offset, part.last_offset + 1)}


CALM = frozenset({"fail", "log_start", "compact"})


@given(seeds, lengths, st.booleans())
def test_what_no_step_breaks(seed: int, steps: int, is_calm: bool) -> None:
    """R000-35, R002-59: an acknowledgement that was answered without error holds: through time-outs, failed writes, new
    leaders and compaction no member gets the record again, until the group is reset. No delivery exceeds the limit.
    Batches of every write ascend and do not overlap, none is acquired; the start offset that a leader writes never goes
    back."""
    world = SimulatedLeader(random.Random(seed), without=CALM if is_calm else frozenset())
    writes = noted_writes(world)
    for _ in range(steps):
        before, end = len(world.delivered), world.coordinator.log.end_offset
        kind = world.step()
        new = world.delivered[before:]
        assert not offsets(new) & world.done
        assert all(1 <= part.delivery_count <= world.settings.delivery_count_limit for part in new)
        if is_calm:
            assert kind not in ("fetch", "produce") or world.coordinator.log.end_offset == end
            the_record_lags_by_the_locks_alone(world, is_new=kind == "lead")
    starts: dict[int | None, int] = {}
    for write in writes:
        assert in_order(write.batches)
        assert all(b.delivery_state != DeliveryState.ACQUIRED and b.delivery_count >= 0 for b in write.batches)
        assert write.start_offset is not None
        assert write.start_offset >= starts.get(write.leader_epoch, 0)
        starts[write.leader_epoch] = write.start_offset


def noted_writes(world: SimulatedLeader) -> list[StateWrite]:
    """All that leaders will ask the coordinator to write."""
    writes: list[StateWrite] = []
    persist = world.leader.persister

    def noting(request: PersisterRequest) -> PersisterResponse:
        if isinstance(request, StateWrite):
            writes.append(request)
        return persist(request)

    world.persist = noting  # type: ignore[method-assign]
    world.leader.persister = noting
    return writes


def the_record_lags_by_the_locks_alone(world: SimulatedLeader, *, is_new: bool) -> None:
    """R000-02, R000-39, R000-42, R000-49: what a leader has in memory and what is durable differ by locks (acquired n
    is available n - 1) and by leading terminal records alone; a fetch writes nothing; a new leader begins where the
    durable state's effective start is, and its own start never lies outside the two durable ones."""
    state, leader = world.coordinator.memory.states[KEY], world.leader
    if leader.state_epoch != state.state_epoch or leader.status is not LeaderStatus.ACTIVE:
        return
    start = state.first_unfinished_offset
    assert state.start_offset is not None
    assert start is not None
    assert not is_new or leader.cache.start_offset == start
    assert state.start_offset <= leader.cache.start_offset <= start
    live = known(durable_batches(held(leader.cache)))
    assert known(prune_state_batches(state.batches, start)) == {o: part for o, part in live.items() if o >= start}
    assert state.delivery_complete_count == terminal_count(state.batches, state.start_offset)


def known(found: Any) -> dict[int, tuple[int, int]]:
    """Offset by offset, without those in their first attempt, which no record mentions."""
    return {
        offset: (batch.delivery_state, batch.delivery_count)
        for batch in found
        for offset in range(batch.first_offset, batch.last_offset + 1)
        if (batch.delivery_state, batch.delivery_count) != (0, 0)
    }


@given(seeds, lengths)
def test_nothing_is_lost(seed: int, steps: int) -> None:
    """R000-54, R001-06: whatever happened, once writes succeed and locks end, every record that is still in the log was
    delivered since the group began, and none is left undone."""
    world = SimulatedLeader(random.Random(seed), without=frozenset({"reset", "compact"}), max_record_locks=2_000)
    for _ in range(steps):
        world.step()
    world.failing = ErrorCode.NONE
    world.lead()
    world.delivered += drained(world)

    assert set(range(world.log.start_offset, world.log.end_offset)) <= offsets(world.delivered)
    assert is_drained(world)


def is_drained(world: LedPartition) -> bool:
    cache = world.leader.cache
    undone = [part for batch in cache.batches for *_, part in batch.parts() if not part.is_terminal]
    return cache.next_fetch_offset() == world.log.end_offset and not undone


def drained(world: LedPartition) -> list[AcquiredRecords]:
    """What one member gets until there is nothing more, accepting all."""
    found: list[AcquiredRecords] = []
    for _ in range(200):
        limits = FetchLimits(member_id="last", most_records=500, batch_size=500, now_ms=world.clock.now_ms)
        got = world.leader.fetch(limits, max_bytes=1_000)
        for part in got:
            said = AcknowledgementBatch(
                first_offset=part.first_offset, last_offset=part.last_offset, types=(AcknowledgeType.ACCEPT,)
            )
            assert world.leader.acknowledge("last", (said,)) is ErrorCode.NONE
        found += got
        if not got and is_drained(world):
            return found
        if not got:  # what the log start cut off is archived when its lock ends
            world.clock.advance(world.settings.record_lock_duration_ms)
            world.leader.end_locks()
    raise AssertionError("delivery does not come to an end")


@given(seeds, lengths)
def test_an_old_leader_is_fenced(seed: int, steps: int) -> None:
    """R000-33, R002-58: once another leader has loaded, what the old one still tells its members is an error, and
    nothing that is durable changes by it."""
    world = SimulatedLeader(random.Random(seed), without=frozenset({"reset", "lead", "fail"}))
    for _ in range(steps):
        world.step()
    old = world.leader
    if old.status is not LeaderStatus.ACTIVE:
        return
    world.lead()
    end = world.coordinator.log.end_offset
    for member in ("m1", "m2", "m3"):
        assert old.release(member) in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE)
    world.clock.advance(world.settings.record_lock_duration_ms)
    old.end_locks()

    assert world.coordinator.log.end_offset == end
