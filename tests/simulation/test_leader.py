"""The simulated share-partition leader: what it does step by step, and what no life may break."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from definitions.batch_laws import in_order, terminal_count
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import example
from simulation.leader_random_walk import KEY, LeaderFixture, SimulatedLeader, held, spread

from acktrail.model.batches import DeliveryState, prune_state_batches
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgementBatch, AcknowledgeType
from acktrail_simulation.leader.acquisition import AcquiredRecords, FetchLimits
from acktrail_simulation.leader.group_settings import OffsetReset, ShareGroupSettings
from acktrail_simulation.leader.persisted_batches import durable_batches
from acktrail_simulation.leader.share_partition_leader import LeaderStatus
from acktrail_simulation.messages.persister_messages import PersisterRequest, PersisterResponse, StateInitialize


def test_the_twelve_row_example_of_the_founding_document() -> None:
    """R000-01, R000-35, R000-39, R002-13: the leader taken through the documents' example holds after each row the
    row's states and offsets, and what it wrote recovers to the row's durable state."""
    desk = LeaderFixture(10, 3, 6, 1, 1, start=100, record_lock_duration_ms=100)
    seven = [(110, 110, 2), (120, 120, 1)]
    steps: list[Callable[[], object]] = [
        lambda: None,
        lambda: desk.fetch("1", most=10) == [(100, 109, 1)],
        lambda: desk.say(100, 109, 1, member="1"),
        lambda: fetch_of_row_4(desk),
        lambda: desk.say(110, 110, 2, member="1"),
        lambda: desk.say(119, 119, 1, member="3"),
        lambda: desk.fetch("1") == seven or desk.fetch("1"),
        lambda: desk.wait(60),
        lambda: desk.say(113, 118, 1, member="2"),
        lambda: desk.fetch("3"),
        lambda: desk.say(110, 110, 1, member="1"),
        lambda: desk.say(111, 112, 1, member="3"),
    ]
    for row, take in zip(example("EX-iv-write-rpc")["rows"], steps, strict=True):
        take()
        cache = desk.leader.cache
        assert cache.start_offset == row["spso"], row["step"]
        assert (cache.end_offset + 1 if cache.batches else cache.end_offset) == row["speo"], row["step"]
        live = [(b["first"], b["last"], b["state"], b["delivery_count"] or 1) for b in row["batches"]]
        assert joined(held(cache)) == joined(spread(live))
        state = desk.coordinator.memory.states[KEY]
        start = state.first_unfinished_offset
        after = row["durable_after"]
        assert start == after["spso_effective"], row["step"]
        durable = [(b["first"], b["last"], b["state"], b["delivery_count"]) for b in after["batches"]]
        assert joined(prune_state_batches(state.batches, start)) == joined(spread(durable)), row["step"]


def fetch_of_row_4(desk: LeaderFixture) -> None:
    assert desk.fetch("1", most=3) == [(110, 112, 1)]
    desk.clock.advance(50)
    assert desk.fetch("2", most=6) == [(113, 118, 1)]
    assert desk.fetch("3", most=1) == [(119, 119, 1)]


def joined(found: Any) -> dict[int, tuple[int, int]]:
    """Offset by offset; the documents do not tell the counts of what is acknowledged."""
    return {
        offset: (b.delivery_state, 0 if b.delivery_state == 2 else b.delivery_count)
        for b in found
        for offset in range(b.first_offset, b.last_offset + 1)
    }


@pytest.mark.parametrize("limit", [2, 3, 5])
def test_the_delivery_limit(limit: int) -> None:
    """R001-25, R002-17: a record that is never accepted is delivered so often, then archived with that count."""
    desk = LeaderFixture(1, delivery_count_limit=limit)
    for attempt in range(1, limit + 1):
        assert desk.fetch() == [(0, 0, attempt)]
        desk.wait(desk.settings.record_lock_duration_ms)

    assert desk.fetch() == []
    assert desk.durable() == [(0, 0, DeliveryState.ARCHIVED, limit)]
    assert desk.leader.cache.start_offset == 1
    assert ShareGroupSettings().delivery_count_limit == 5


def test_expired_locks_release_records() -> None:
    """R001-26, R002-18: a record is its member's until the lock ends, 30 seconds by default; a renewal begins it anew
    and writes nothing; a late acknowledgement is refused."""
    desk = LeaderFixture(4)
    assert desk.settings.record_lock_duration_ms == 30_000
    desk.fetch("a")
    assert desk.fetch("b") == []
    desk.wait(29_999)
    assert desk.say(0, 3, AcknowledgeType.RENEW, member="a") is ErrorCode.NONE
    end = desk.coordinator.log.end_offset
    assert desk.wait(29_999) == 0
    assert desk.coordinator.log.end_offset == end
    assert desk.wait(1) == 1
    assert desk.durable() == [(0, 3, 0, 1)]
    assert desk.say(0, 3, 1, member="a") is ErrorCode.INVALID_RECORD_STATE
    assert desk.fetch("b") == [(0, 3, 2)]


def test_record_locks_are_limited() -> None:
    """R001-28, R002-20: with so many records between start and end nothing new is handed out; what is released is."""
    desk = LeaderFixture(5, 5, 5, max_record_locks=10)
    assert desk.fetch() == [(0, 9, 1)]
    assert not desk.leader.can_acquire
    assert desk.fetch() == []
    desk.say(3, 3, AcknowledgeType.RELEASE)
    assert desk.fetch() == [(3, 3, 2)]
    desk.say(0, 4, AcknowledgeType.ACCEPT)
    assert desk.fetch() == [(10, 14, 1)]


def test_acknowledgement_types() -> None:
    """R001-23, R002-66: gap 0, accept 1, release 2, reject 3, renew 4; a batch has one for all or one for each."""
    desk = LeaderFixture(5)
    desk.fetch()
    assert [kind.value for kind in AcknowledgeType] == [0, 1, 2, 3, 4]
    assert desk.say(0, 4, 1, 0, 2, 3, 4) is ErrorCode.NONE
    assert desk.durable() == [(0, 0, 2, 1), (1, 1, 4, 1), (2, 2, 0, 1), (3, 3, 4, 1)]
    assert desk.leader.cache.start_offset == 2
    assert desk.fetch("b") == [(2, 2, 2)]
    assert desk.say(4, 4, 1) is ErrorCode.NONE


def test_a_failed_write_is_rolled_back() -> None:
    """R000-46: what the coordinator did not write is not told as done: the member still holds the records."""
    desk = LeaderFixture(5)
    desk.fetch()
    working = desk.leader.persister
    desk.leader.persister = lambda request: PersisterResponse(key=KEY, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert desk.say(0, 2, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.leader.cache.delivery_complete_count == 0
    desk.leader.persister = working
    assert desk.say(0, 4, 1) is ErrorCode.NONE
    assert desk.leader.cache.start_offset == 5


def test_gaps_that_a_new_leader_finds_are_fetched_again() -> None:
    """R002-14: what was handed out and never settled is a gap in the state: available with count 0."""
    desk = LeaderFixture(5, 5, 5)
    desk.fetch()
    desk.say(5, 9, AcknowledgeType.ACCEPT)
    assert desk.led(1) is ErrorCode.NONE
    assert desk.fetch() == [(0, 4, 1), (10, 14, 1)]


@pytest.mark.parametrize(
    ("reset", "expected"), [(OffsetReset.EARLIEST, 0), (OffsetReset.LATEST, 15), (OffsetReset.BY_DURATION, 10)]
)
def test_where_a_group_begins(reset: OffsetReset, expected: int) -> None:
    """R000-34, R002-35, R002-71: a start offset that was never written is the group's choice, and is written with the
    first change only."""
    desk = LeaderFixture(offset_reset=reset, reset_duration_ms=10)
    for age in (50, 20, 5):
        desk.log.append(5, timestamp_ms=desk.clock.now_ms - age)
    desk.coordinator.answer(StateInitialize(key=KEY, state_epoch=2, start_offset=None))
    assert desk.led(1) is ErrorCode.NONE

    assert desk.leader.cache.start_offset == expected
    assert desk.coordinator.memory.states[KEY].start_offset is None
    if desk.fetch():
        desk.say(expected, expected, AcknowledgeType.ACCEPT)
        assert desk.coordinator.memory.states[KEY].start_offset == expected


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


def is_drained(world: SimulatedLeader) -> bool:
    cache = world.leader.cache
    undone = [part for batch in cache.batches for *_, part in batch.parts() if not part.is_terminal]
    return cache.next_fetch_offset() == world.log.end_offset and not undone


def drained(world: SimulatedLeader) -> list[AcquiredRecords]:
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
