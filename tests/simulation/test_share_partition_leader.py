"""The simulated share-partition leader: what no life may break, and what it does step by step."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from golden_vectors import example
from hypothesis import given
from hypothesis import strategies as st
from leader_world import KEY, World

from acktrail.model.batches import first_disorder
from acktrail.model.delivery import DeliveryState, StateBatch
from acktrail.model.generations.projection import durable_batches
from acktrail.model.generations.window import effective_window
from acktrail.model.generations.writes import StateWrite
from acktrail.simulation.acknowledgements import AcknowledgementBatch, AcknowledgeType, are_well_formed
from acktrail.simulation.acquisition import AcquiredRecords, AcquireMode, FetchTerms
from acktrail.simulation.clock import SimulatedClock
from acktrail.simulation.error_codes import ErrorCode
from acktrail.simulation.group_settings import OffsetReset, ShareGroupSettings
from acktrail.simulation.in_flight import TRANSITIONS, InFlight, acquired, archived, settled
from acktrail.simulation.leader_cache import LeaderCache
from acktrail.simulation.persister_calls import PersisterAnswer, PersisterRequest, StateInitialize
from acktrail.simulation.share_coordinator import ShareCoordinator
from acktrail.simulation.share_partition_leader import LeaderStatus, SharePartitionLeader
from acktrail.simulation.user_log import UserLog

seeds = st.integers(0, 2**32)
lengths = st.integers(1, 120)


def offsets(found: list[AcquiredRecords]) -> set[int]:
    return {offset for part in found for offset in range(part.first_offset, part.last_offset + 1)}


@given(seeds, lengths)
def test_what_is_done_is_never_delivered_again(seed: int, steps: int) -> None:
    """R000-35: an acknowledgement that was answered without error holds: through time-outs, failed writes, new leaders
    and compaction no member gets the record again, until the group is reset. No delivery exceeds the limit."""
    world = World(random.Random(seed))
    for _ in range(steps):
        before = len(world.delivered)
        world.step()
        new = world.delivered[before:]
        assert not offsets(new) & world.done
        assert all(1 <= part.delivery_count <= world.settings.delivery_count_limit for part in new)


@given(seeds, lengths)
def test_nothing_is_lost(seed: int, steps: int) -> None:
    """R000-54, R001-06: whatever happened, once writes succeed and locks end, every record that is still in the log was
    delivered since the group began, and none is left undone."""
    world = World(random.Random(seed), without=frozenset({"reset", "compact"}), max_record_locks=2_000)
    for _ in range(steps):
        world.step()
    world.failing = ErrorCode.NONE
    world.lead()
    world.delivered += drained(world)

    assert set(range(world.log.start_offset, world.log.end_offset)) <= offsets(world.delivered)
    assert is_drained(world)


def is_drained(world: World) -> bool:
    cache = world.leader.cache
    undone = [part for batch in cache.batches for *_, part in batch.parts() if not part.is_terminal]
    return cache.next_fetch_offset() == world.log.end_offset and not undone


def drained(world: World) -> list[AcquiredRecords]:
    """What one member gets until there is nothing more, accepting all."""
    found: list[AcquiredRecords] = []
    for _ in range(200):
        terms = FetchTerms(member_id="last", most_records=500, batch_size=500, now_ms=world.clock.now_ms)
        got = world.leader.fetch(terms, max_bytes=1_000)
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


CALM = frozenset({"fail", "log_start", "compact"})


@given(seeds, lengths)
def test_the_record_lags_by_the_locks_alone(seed: int, steps: int) -> None:
    """R000-02, R000-39, R000-42, R000-49: what a leader has in memory and what is durable differ by locks (acquired n
    is available n - 1) and by leading terminal records alone; a fetch writes nothing; a new leader begins where the
    durable state's effective start is, and its own start never lies outside the two durable ones."""
    world = World(random.Random(seed), without=CALM)
    for _ in range(steps):
        end = world.coordinator.log.end_offset
        kind = world.step()
        if kind in ("fetch", "produce"):
            assert world.coordinator.log.end_offset == end
        state = world.coordinator.memory.states[KEY]
        if world.leader.state_epoch != state.state_epoch or world.leader.status is not LeaderStatus.ACTIVE:
            continue
        if kind == "lead":
            assert world.leader.cache.start_offset == state.effective_start_offset
        window = effective_window(state.start_offset, state.batches)
        assert state.start_offset is not None
        assert window.start_offset is not None
        assert state.start_offset <= world.leader.cache.start_offset <= window.start_offset
        live = known(durable_batches(held(world.leader.cache)))
        assert known(window.batches) == {o: part for o, part in live.items() if o >= window.start_offset}
        assert state.delivery_complete_count == state.terminal_offsets


def held(cache: LeaderCache) -> list[StateBatch]:
    return [
        StateBatch(first_offset=first, last_offset=last, delivery_state=part.state, delivery_count=part.delivery_count)
        for batch in cache.batches
        for first, last, part in batch.parts()
        if last >= cache.start_offset
    ]


def known(found: Any) -> dict[int, tuple[int, int]]:
    """Offset by offset, without those in their first attempt, which no record mentions."""
    return {
        offset: (batch.delivery_state, batch.delivery_count)
        for batch in found
        for offset in range(batch.first_offset, batch.last_offset + 1)
        if (batch.delivery_state, batch.delivery_count) != (0, 0)
    }


@given(seeds, lengths)
def test_what_is_written_is_in_order(seed: int, steps: int) -> None:
    """R002-59: batches of every write ascend and do not overlap, none is acquired; the start offset that a leader
    writes never goes back."""
    world = World(random.Random(seed))
    writes: list[StateWrite] = []
    persist = world.leader.persister

    def noting(request: PersisterRequest) -> PersisterAnswer:
        if isinstance(request, StateWrite):
            writes.append(request)
        return persist(request)

    world._persist = noting  # type: ignore[method-assign]
    world.leader.persister = noting
    for _ in range(steps):
        world.step()
    starts: dict[int | None, int] = {}
    for write in writes:
        assert first_disorder(write.batches) is None
        assert all(b.delivery_state != DeliveryState.ACQUIRED and b.delivery_count >= 0 for b in write.batches)
        assert write.start_offset is not None
        assert write.start_offset >= starts.get(write.leader_epoch, 0)
        starts[write.leader_epoch] = write.start_offset


@given(seeds, lengths)
def test_an_old_leader_is_fenced(seed: int, steps: int) -> None:
    """R000-33, R002-58: once another leader has loaded, what the old one still tells its members is an error, and
    nothing that is durable changes by it."""
    world = World(random.Random(seed), without=frozenset({"reset", "lead", "fail"}))
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


class Desk:
    """A leader over a log of batches, with three members who come at will."""

    def __init__(self, *sizes: int, start: int = 0, **settings: Any) -> None:
        self.clock = SimulatedClock()
        self.log = UserLog(start_offset=start, end_offset=start)
        for size in sizes:
            self.log.append(size)
        self.coordinator = ShareCoordinator(partition_counts={KEY.topic_id: 1}, clock=self.clock)
        self.coordinator.answer(StateInitialize(key=KEY, state_epoch=1, start_offset=start))
        self.settings = ShareGroupSettings(**settings)
        self.leader = self.led(0)

    def led(self, epoch: int) -> SharePartitionLeader:
        self.leader = SharePartitionLeader(
            KEY,
            leader_epoch=epoch,
            log=self.log,
            persister=self.coordinator.answer,
            clock=self.clock,
            settings=self.settings,
        )
        assert self.leader.load() is ErrorCode.NONE
        return self.leader

    def fetch(self, member: str = "m", most: int = 500, **terms: Any) -> list[tuple[int, int, int]]:
        found = self.leader.fetch(
            FetchTerms(
                member_id=member, most_records=most, **{"batch_size": 500, "now_ms": self.clock.now_ms, **terms}
            ),
            max_bytes=10_000,
        )
        return [(part.first_offset, part.last_offset, part.delivery_count) for part in found]

    def say(self, first: int, last: int, *types: int, member: str = "m") -> ErrorCode:
        return self.leader.acknowledge(
            member, (AcknowledgementBatch(first_offset=first, last_offset=last, types=types),)
        )

    def wait(self, milliseconds: int) -> int:
        self.clock.advance(milliseconds)
        return self.leader.end_locks()

    def durable(self) -> list[tuple[int, int, int, int]]:
        state = self.coordinator.memory.states[KEY]
        return [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in state.batches]


def test_the_twelve_rows() -> None:
    """R000-01, R000-35, R000-39, R002-13: the leader taken through the documents' example holds after each row the
    row's states and offsets, and what it wrote recovers to the row's durable state."""
    desk = Desk(10, 3, 6, 1, 1, start=100, record_lock_duration_ms=100)
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
        window = effective_window(state.start_offset, state.batches)
        after = row["durable_after"]
        assert window.start_offset == after["spso_effective"], row["step"]
        durable = [(b["first"], b["last"], b["state"], b["delivery_count"]) for b in after["batches"]]
        assert joined(window.batches) == joined(spread(durable)), row["step"]


def fetch_of_row_4(desk: Desk) -> None:
    assert desk.fetch("1", most=3) == [(110, 112, 1)]
    desk.clock.advance(50)
    assert desk.fetch("2", most=6) == [(113, 118, 1)]
    assert desk.fetch("3", most=1) == [(119, 119, 1)]


def spread(found: list[tuple[int, int, int, int]]) -> list[StateBatch]:
    return [
        StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in found
    ]


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
    desk = Desk(1, delivery_count_limit=limit)
    for attempt in range(1, limit + 1):
        assert desk.fetch() == [(0, 0, attempt)]
        desk.wait(desk.settings.record_lock_duration_ms)

    assert desk.fetch() == []
    assert desk.durable() == [(0, 0, DeliveryState.ARCHIVED, limit)]
    assert desk.leader.cache.start_offset == 1
    assert ShareGroupSettings().delivery_count_limit == 5


def test_a_bad_record_is_isolated() -> None:
    """From half the limit on what was handed out comes in halves, at last alone, so that the good ones are accepted."""
    desk = Desk(16, delivery_count_limit=6)
    sizes = []
    for _ in range(100):
        got = desk.fetch()
        if not got:
            break
        sizes.append(sum(last - first + 1 for first, last, _ in got))
        for first, last, _ in got:
            if first <= 5 <= last:
                desk.say(first, last, 2)
            else:
                desk.say(first, last, 1)

    assert sizes == [16, 16, 16, 8, 4, 4, 1, 1, 1, 1, 8]
    archived_offsets = {
        offset
        for entry in desk.coordinator.log.entries
        for batch in getattr(entry.record, "batches", ())
        if batch.delivery_state == DeliveryState.ARCHIVED
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }
    assert archived_offsets == {5}
    assert desk.leader.cache.start_offset == 16


def test_locks() -> None:
    """R001-26, R002-18: a record is its member's until the lock ends, 30 seconds by default; a renewal begins it anew
    and writes nothing; a late acknowledgement is refused."""
    desk = Desk(4)
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


def test_renewing_can_be_switched_off() -> None:
    """A group may forbid it: then the acknowledgement is refused and the lock ends when it would have."""
    desk = Desk(2, renew_enabled=False)
    desk.fetch()
    assert desk.say(0, 1, AcknowledgeType.RENEW) is ErrorCode.INVALID_RECORD_STATE
    assert desk.say(0, 0, AcknowledgeType.RENEW) is ErrorCode.INVALID_RECORD_STATE
    assert desk.wait(30_000) == 2


def test_record_locks_are_limited() -> None:
    """R001-28, R002-20: with so many records between start and end nothing new is handed out; what is released is."""
    desk = Desk(5, 5, 5, max_record_locks=10)
    assert desk.fetch() == [(0, 9, 1)]
    assert not desk.leader.can_acquire
    assert desk.fetch() == []
    desk.say(3, 3, AcknowledgeType.RELEASE)
    assert desk.fetch() == [(3, 3, 2)]
    desk.say(0, 4, AcknowledgeType.ACCEPT)
    assert desk.fetch() == [(10, 14, 1)]


def test_acknowledgement_types() -> None:
    """R001-23, R002-66: gap 0, accept 1, release 2, reject 3, renew 4; a batch has one for all or one for each."""
    desk = Desk(5)
    desk.fetch()
    assert [kind.value for kind in AcknowledgeType] == [0, 1, 2, 3, 4]
    assert desk.say(0, 4, 1, 0, 2, 3, 4) is ErrorCode.NONE
    assert desk.durable() == [(0, 0, 2, 1), (1, 1, 4, 1), (2, 2, 0, 1), (3, 3, 4, 1)]
    assert desk.leader.cache.start_offset == 2
    assert desk.fetch("b") == [(2, 2, 2)]
    assert desk.say(4, 4, 1) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("batches", "renewing", "fine"),
    [
        pytest.param([(0, 4, (1,)), (5, 9, (2,))], False, True, id="in order"),
        pytest.param([(0, 4, (1,)), (4, 9, (2,))], False, True, id="one shared offset slips through"),
        pytest.param([(0, 4, (1,)), (3, 9, (2,))], False, False, id="overlapping"),
        pytest.param([(5, 9, (1,)), (0, 4, (2,))], False, False, id="descending"),
        pytest.param([(4, 3, (1,))], False, False, id="inverted"),
        pytest.param([(0, 4, ())], False, False, id="no type"),
        pytest.param([(0, 4, (1, 1))], False, False, id="too few types"),
        pytest.param([(0, 1, (1, 3))], False, True, id="a type each"),
        pytest.param([(0, 1, (5,))], False, False, id="an unknown type"),
        pytest.param([(0, 1, (-1,))], False, False, id="a negative type"),
        pytest.param([(0, 1, (4,))], False, False, id="renewing unannounced"),
        pytest.param([(0, 1, (4,))], True, True, id="renewing announced"),
        pytest.param([], False, True, id="nothing"),
    ],
)
def test_well_formed_acknowledgements(
    batches: list[tuple[int, int, tuple[int, ...]]], renewing: bool, fine: bool
) -> None:
    """R002-59, R002-60, R002-66: batches ascend, types are there and known; a broker lets one shared offset pass."""
    said = [AcknowledgementBatch(first_offset=first, last_offset=last, types=types) for first, last, types in batches]

    assert are_well_formed(said, renewing=renewing) is fine


def test_what_cannot_be_acknowledged() -> None:
    """R002-55: INVALID_RECORD_STATE for what the member does not hold, INVALID_REQUEST for what nobody was given; of
    one request all or nothing. Below the start offset nothing is wrong and nothing happens."""
    desk = Desk(5, 5, 5)
    desk.fetch("a", most=5)
    desk.fetch("b", most=5)
    assert desk.say(0, 4, 1, member="b") is ErrorCode.INVALID_RECORD_STATE
    assert desk.say(0, 9, 1, member="a") is ErrorCode.INVALID_RECORD_STATE
    assert desk.say(5, 12, 1, member="b") is ErrorCode.INVALID_REQUEST
    assert desk.say(11, 12, 1, member="b") is ErrorCode.INVALID_REQUEST
    assert desk.say(0, 0, 9, member="a") is ErrorCode.INVALID_REQUEST
    assert desk.durable() == []
    assert desk.say(0, 4, 1, member="a") is ErrorCode.NONE
    assert desk.say(0, 4, 1, member="a") is ErrorCode.NONE
    assert desk.durable() == [(0, 4, 2, 1)]


def test_a_failed_write_is_taken_back() -> None:
    """R000-46: what the coordinator did not write is not told as done: the member still holds the records."""
    desk = Desk(5)
    desk.fetch()
    working = desk.leader.persister
    desk.leader.persister = lambda request: PersisterAnswer(key=KEY, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert desk.say(0, 2, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.leader.cache.delivery_complete_count == 0
    desk.leader.persister = working
    assert desk.say(0, 4, 1) is ErrorCode.NONE
    assert desk.leader.cache.start_offset == 5


def test_the_dead_letter_queue() -> None:
    """Rejected and worn-out records are archiving until the queue has them, then archived; both are written. A new
    leader goes on with what is left archiving."""
    desk = Desk(2, delivery_count_limit=2, dead_letter_queue=True)
    desk.fetch()
    desk.say(0, 0, AcknowledgeType.REJECT)
    desk.say(1, 1, AcknowledgeType.RELEASE)
    desk.fetch()
    desk.say(1, 1, AcknowledgeType.RELEASE)
    states = [
        (b.first_offset, b.delivery_state)
        for entry in desk.coordinator.log.entries
        for b in getattr(entry.record, "batches", ())
    ]
    assert states == [(0, 3), (0, 4), (1, 0), (1, 3), (1, 4)]
    assert [b.first_offset for b in desk.leader.dead_letters] == [0, 1]

    left = Desk(2, dead_letter_queue=True)
    left.fetch()
    write = left.leader.persister
    left.leader.persister = lambda request: (
        PersisterAnswer(key=KEY, error=ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(request, StateWrite) and request.batches[0].delivery_state == DeliveryState.ARCHIVED
        else write(request)
    )
    assert left.say(0, 0, AcknowledgeType.REJECT) is ErrorCode.NONE
    assert left.durable() == [(0, 0, 3, 1)]
    again = left.led(1)
    assert [b.first_offset for b in again.dead_letters] == [0]
    assert left.durable() == [(0, 0, 4, 1)]
    assert again.cache.start_offset == 1


def test_acquisition_limits() -> None:
    """A fetch ends with a record batch, beyond its limit if need be; mode record_limit does not, and the rest stays
    available. A large one is told in parts."""
    desk = Desk(10, 10, 10)
    assert desk.fetch(most=5) == [(0, 9, 1)]
    exact = Desk(10, 10)
    assert exact.fetch(most=5, mode=AcquireMode.RECORD_LIMIT) == [(0, 4, 1)]
    assert exact.fetch("b", most=3, mode=AcquireMode.RECORD_LIMIT) == [(5, 7, 1)]
    assert exact.fetch("b") == [(8, 9, 1), (10, 19, 1)]
    parts = Desk(10, 10, 10)
    assert parts.fetch(batch_size=10) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]
    assert Desk(10).fetch(most=0) == []


def test_gaps_that_a_new_leader_finds_are_fetched_again() -> None:
    """R002-14: what was handed out and never settled is a gap in the state: available with count 0."""
    desk = Desk(5, 5, 5)
    desk.fetch()
    desk.say(5, 9, AcknowledgeType.ACCEPT)
    desk.led(1)
    assert desk.fetch() == [(0, 4, 1), (10, 14, 1)]


def test_vanished_records_are_archived() -> None:
    """What was released and then compacted away does not hold up the start offset."""
    desk = Desk(3, 3)
    desk.fetch()
    desk.say(0, 2, AcknowledgeType.RELEASE)
    desk.log.compact(range(3))
    assert desk.fetch() == []
    desk.say(3, 5, AcknowledgeType.ACCEPT)
    assert desk.leader.cache.start_offset == 6


def test_a_gap_that_vanished_holds_the_start() -> None:
    """As in Kafka 4.4: where compaction took all of a loaded gap at the start, the start offset stays below it although
    everything above is done."""
    desk = Desk(5, 5)
    desk.fetch()
    desk.say(5, 9, AcknowledgeType.ACCEPT)
    desk.led(1)
    desk.log.compact(range(5))
    desk.log.append(5)
    assert desk.fetch() == [(10, 14, 1)]
    desk.say(10, 14, AcknowledgeType.ACCEPT)
    assert desk.leader.cache.start_offset == 0
    assert desk.leader.cache.delivery_complete_count == 10


def test_the_log_start_may_leave_a_full_leader_stuck() -> None:
    """As in Kafka 4.4: the log start passes the one record that was not done, and nobody moves the start offset over
    what is; a leader that is full then hands out nothing more."""
    desk = Desk(1, 2, 1, max_record_locks=2)
    assert desk.fetch() == [(0, 2, 1)]
    desk.say(1, 2, AcknowledgeType.ACCEPT)
    desk.say(0, 0, AcknowledgeType.RELEASE)
    desk.log.delete_before(1)
    for epoch in (1, 2):
        assert [desk.fetch(), desk.fetch(), desk.fetch()] == [[], [], []]
        assert (desk.leader.cache.start_offset, desk.leader.cache.end_offset) == (1, 2)
        desk.led(epoch)


def test_the_log_start_passes_a_loaded_gap() -> None:
    """What retention took of a loaded gap is not waited for; Kafka 4.4's leader reads below the log start for ever."""
    desk = Desk(5, 5, 5)
    desk.fetch()
    desk.say(10, 14, AcknowledgeType.ACCEPT)
    desk.led(1)
    desk.log.delete_before(3)
    assert desk.fetch() == []
    assert desk.leader.cache.next_fetch_offset() == 3
    assert desk.fetch() == [(3, 9, 1)]
    desk.say(3, 9, AcknowledgeType.ACCEPT)
    desk.log.append(1)
    assert desk.fetch() == [(15, 15, 1)]
    desk.say(15, 15, AcknowledgeType.ACCEPT)
    assert desk.leader.cache.start_offset == 16


def test_the_log_start_moves() -> None:
    """Records below the new start are archived in memory, which is written with the next change; a lock below
    it ends archived."""
    desk = Desk(5, 5)
    desk.fetch()
    desk.say(0, 1, AcknowledgeType.RELEASE)
    desk.log.delete_before(3)
    assert desk.fetch() == []
    assert desk.leader.cache.start_offset == 3
    desk.say(5, 9, AcknowledgeType.ACCEPT)
    assert desk.coordinator.memory.states[KEY].start_offset == 3
    desk.wait(30_000)
    assert desk.durable() == [(3, 4, 0, 1), (5, 9, 2, 1)]


@pytest.mark.parametrize(
    ("reset", "expected"), [(OffsetReset.EARLIEST, 0), (OffsetReset.LATEST, 15), (OffsetReset.BY_DURATION, 10)]
)
def test_where_a_group_begins(reset: OffsetReset, expected: int) -> None:
    """R000-34, R002-35, R002-71: a start offset that was never written is the group's choice, and is written with the
    first change only."""
    desk = Desk(offset_reset=reset, reset_duration_ms=10)
    for age in (50, 20, 5):
        desk.log.append(5, timestamp_ms=desk.clock.now_ms - age)
    desk.coordinator.answer(StateInitialize(key=KEY, state_epoch=2, start_offset=None))
    desk.led(1)

    assert desk.leader.cache.start_offset == expected
    assert desk.coordinator.memory.states[KEY].start_offset is None
    if desk.fetch():
        desk.say(expected, expected, AcknowledgeType.ACCEPT)
        assert desk.coordinator.memory.states[KEY].start_offset == expected


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([(4, 6, 2, 1)], id="below the start"),
        pytest.param([(9, 8, 2, 1)], id="inverted"),
        pytest.param([(9, 9, 7, 1)], id="a state nobody knows"),
    ],
)
def test_a_state_that_no_leader_loads(batches: list[tuple[int, int, int, int]]) -> None:
    """Kafka's leader fails to load batches below the start, with their ends exchanged, or in an unknown state."""
    with pytest.raises(ValueError, match=r"."):
        LeaderCache.loaded(5, spread(batches))


def test_a_leader_that_cannot_load_fails() -> None:
    """It serves nothing; a fenced epoch is told as "not the leader"."""
    desk = Desk(3)
    desk.led(4)
    old = SharePartitionLeader(
        KEY, leader_epoch=3, log=desk.log, persister=desk.coordinator.answer, clock=desk.clock, settings=desk.settings
    )
    assert old.load() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert old.status is LeaderStatus.FAILED
    terms = FetchTerms(member_id="m", most_records=5, batch_size=5, now_ms=0)
    assert old.fetch(terms, max_bytes=100) == ()
    assert old.acquire(terms, 0, desk.log.batches) == ()


@given(st.sampled_from(DeliveryState), st.sampled_from(DeliveryState), st.integers(0, 6))
def test_transitions(before: DeliveryState, after: DeliveryState, count: int) -> None:
    """Only the transitions of the table are made; terminal states are never left; an acquisition counts, a
    release at the limit archives."""
    settings = ShareGroupSettings(delivery_count_limit=5)
    one = InFlight(state=before, delivery_count=count)
    allowed = after in TRANSITIONS[before]
    if after is DeliveryState.ACQUIRED:
        if allowed:
            now_held = acquired(one, "m", lock_expires_ms=9)
            assert (now_held.state, now_held.delivery_count, now_held.member_id) == (after, count + 1, "m")
        else:
            with pytest.raises(ValueError, match="do not become"):
                acquired(one, "m", lock_expires_ms=9)
    elif before is DeliveryState.ACQUIRED:
        found = settled(one, after, settings)
        worn = after is DeliveryState.AVAILABLE and count >= 5
        assert found == InFlight(state=DeliveryState.ARCHIVED if worn else after, delivery_count=count)
    elif after is DeliveryState.ARCHIVED and allowed:
        assert archived(one).is_terminal
    assert not TRANSITIONS[DeliveryState.ACKNOWLEDGED] | TRANSITIONS[DeliveryState.ARCHIVED]
