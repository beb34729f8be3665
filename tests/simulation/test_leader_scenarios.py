"""The simulated share-partition leader: what it does step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from samples.golden_vectors import example
from simulation.leader_random_walk import KEY, LeaderFixture, held, spread

from acktrail.model.batches import DeliveryState, prune_state_batches
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgeType
from acktrail_simulation.leader.group_settings import OffsetReset, ShareGroupSettings
from acktrail_simulation.messages.persister_messages import PersisterResponse, StateInitialize


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
    desk.led(1)
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
    desk.led(1)

    assert desk.leader.cache.start_offset == expected
    assert desk.coordinator.memory.states[KEY].start_offset is None
    if desk.fetch():
        desk.say(expected, expected, AcknowledgeType.ACCEPT)
        assert desk.coordinator.memory.states[KEY].start_offset == expected
