"""The simulated share-partition leader: what it begins with, and what becomes of gaps and of a log start that moves."""

from __future__ import annotations

import pytest
from samples.leader_fixture import LeaderFixture, spread
from samples.leader_random_walk import KEY

from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.leader.acknowledgement_batches import AcknowledgeType
from acktrail_simulation.leader.acquisition import FetchLimits
from acktrail_simulation.leader.group_settings import OffsetReset
from acktrail_simulation.leader.share_partition_cache import SharePartitionCache
from acktrail_simulation.leader.share_partition_leader import LeaderStatus, SharePartitionLeader
from acktrail_simulation.messages.persister_messages import StateInitialize


def test_gaps_that_a_new_leader_finds_are_fetched_again() -> None:
    """R002-14: what was handed out and never settled is a gap in the state: available with count 0."""
    desk = LeaderFixture(5, 5, 5)
    desk.fetch()
    desk.say(5, 9, AcknowledgeType.ACCEPT)
    desk.led(1)
    assert desk.fetch() == [(0, 4, 1), (10, 14, 1)]


def test_vanished_records_are_archived() -> None:
    """What was released and then compacted away does not hold up the start offset."""
    desk = LeaderFixture(3, 3)
    desk.fetch()
    desk.say(0, 2, AcknowledgeType.RELEASE)
    desk.log.compact(range(3))
    assert desk.fetch() == []
    desk.say(3, 5, AcknowledgeType.ACCEPT)
    assert desk.leader.cache.start_offset == 6


def test_a_gap_that_vanished_holds_the_start() -> None:
    """As in Kafka 4.4: where compaction took all of a loaded gap at the start, the start offset stays below it although
    everything above is done."""
    desk = LeaderFixture(5, 5)
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
    desk = LeaderFixture(1, 2, 1, max_record_locks=2)
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
    desk = LeaderFixture(5, 5, 5)
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
    desk = LeaderFixture(5, 5)
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
        SharePartitionCache.loaded(5, spread(batches))


def test_a_leader_that_cannot_load_fails() -> None:
    """It serves nothing; a fenced epoch is told as "not the leader"."""
    desk = LeaderFixture(3)
    desk.led(4)
    old = SharePartitionLeader(
        KEY, leader_epoch=3, log=desk.log, persister=desk.coordinator.answer, clock=desk.clock, settings=desk.settings
    )
    assert old.load() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert old.status is LeaderStatus.FAILED
    limits = FetchLimits(member_id="m", most_records=5, batch_size=5, now_ms=0)
    assert old.fetch(limits, max_bytes=100) == ()
    assert old.acquire(limits, 0, desk.log.batches) == ()
