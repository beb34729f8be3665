"""The simulated share coordinator: its laws, and what it answers."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
from coordinator_scripts import COLD_AFTER_MS, KEYS, TOPIC_IDS, Step, coordinator, requests, scripts, take
from hypothesis import given
from hypothesis import strategies as st

from acktrail.model.delivery import StateBatch
from acktrail.model.generations.records import Placed
from acktrail.model.generations.strict_log import replay_strictly
from acktrail.model.generations.writes import StateWrite
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState, replay
from acktrail.model.share_partition import SharePartition
from acktrail.simulation.coordinator_memory import CoordinatorMemory
from acktrail.simulation.coordinator_rules import KAFKA_4_3, KAFKA_4_4, KAFKA_TRUNK, CoordinatorRules
from acktrail.simulation.error_codes import ErrorCode
from acktrail.simulation.persister_calls import (
    PersisterAnswer,
    PersisterRequest,
    ReadAnswer,
    StateDelete,
    StateInitialize,
    StateRead,
    StateSummary,
    SummaryAnswer,
)
from acktrail.simulation.share_coordinator import UPDATES_PER_SNAPSHOT, Availability, ShareCoordinator

KEY = KEYS[0]
ALL_RULES = st.sampled_from((KAFKA_4_3, KAFKA_4_4, KAFKA_TRUNK))
limits = st.integers(0, 3)


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


@given(scripts(prune=False), limits, ALL_RULES)
def test_a_restart_knows_what_memory_knew(steps: list[Step], limit: int, rules: CoordinatorRules) -> None:
    """R000-30, R000-32: after every step, replaying the log gives the coordinator's own states, and loading it gives
    all that it holds in memory."""
    found = coordinator(limit=limit, rules=rules)
    for step in steps:
        take(found, step)
        assert replay(records(found)) == found.memory.states
        assert CoordinatorMemory.loaded(found.log.placed(), updates_per_snapshot=limit) == found.memory


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


def ageless(state: SharePartitionState) -> SharePartitionState:
    """Without what a snapshot sets anew."""
    return replace(state, snapshot_epoch=0, create_timestamp_ms=None, write_timestamp_ms=None)


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


@given(scripts(prune=False), limits, st.sampled_from((KAFKA_4_4, KAFKA_TRUNK)))
def test_its_log_breaks_no_rule(steps: list[Step], limit: int, rules: CoordinatorRules) -> None:
    """R002-06, R002-12: epochs step, updates name their snapshot, start offsets do not go back, batches are in order:
    strict replay of what Kafka 4.4 writes finds nothing but states that the leader chose to write."""
    found = coordinator(limit=limit, rules=rules)
    for step in steps:
        take(found, step)
    placed = [Placed(partition=0, offset=e.offset, record=e.record) for e in found.log.entries]
    strict = replay_strictly(placed)

    assert {finding.rule.value for finding in strict.findings} <= {"uninitialised_has_no_batches"}
    assert strict.states == found.memory.states


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


def test_only_a_snapshot_at_the_limit_resets_the_count() -> None:
    """A cold snapshot or a reset in between does not put off the snapshot that is due."""
    found = started(limit=2)
    found.answer(write(0, batch(0, 0)))
    found.clock.advance(COLD_AFTER_MS)
    assert len(found.snapshot_cold()) == 1
    found.answer(write(0, batch(1, 1)))
    found.answer(write(0, batch(2, 2)))

    assert [type(record).__name__ for record in records(found)] == [
        "ShareSnapshot",
        "ShareUpdate",
        "ShareSnapshot",
        "ShareUpdate",
        "ShareSnapshot",
    ]


def test_cold_snapshots() -> None:
    """What had no snapshot for a while is snapshotted as it is, creation time kept; a shard where all is cold is left
    alone until something new comes."""
    found = started()
    found.answer(StateInitialize(key=KEYS[1], state_epoch=1, start_offset=3))
    found.answer(write(0, batch(0, 4), done=5))
    found.clock.advance(COLD_AFTER_MS - 1)
    assert found.snapshot_cold() == ()
    found.clock.advance(1)
    before = deepcopy(found.memory.states)
    cold = found.snapshot_cold()

    assert [record.key for record in cold] == [KEY, KEYS[1]]
    for record in cold:
        after = found.memory.states[record.key]
        assert (record.create_timestamp_ms, record.write_timestamp_ms) == (1_000, found.clock.now_ms)
        assert after.snapshot_epoch == before[record.key].snapshot_epoch + 1
        assert ageless(after) == ageless(before[record.key])
    found.clock.advance(10 * COLD_AFTER_MS)
    assert found.snapshot_cold() == ()
    found.answer(StateInitialize(key=KEYS[2], state_epoch=1, start_offset=None))
    assert [record.key for record in found.snapshot_cold()] == [KEY, KEYS[1]]


def test_pruning_follows_the_slowest_key() -> None:
    """The log is cut at the oldest snapshot that is some live key's newest; a deleted key holds nothing any more."""
    found = started(limit=0)
    found.answer(StateInitialize(key=KEYS[1], state_epoch=0, start_offset=0))
    for offset in range(4):
        found.answer(write(0, batch(offset, offset)))
    assert found.prune() == 1
    assert [type(r).__name__ for r in records(found)] == ["ShareSnapshot"] * 5
    found.answer(StateDelete(key=KEYS[1]))
    assert found.prune() == 4
    assert (found.log.start_offset, found.log.end_offset) == (5, 7)
    assert [type(r).__name__ for r in records(found)] == ["ShareSnapshot", "Tombstone"]
    assert found.prune() == 0
    found.answer(write(0, batch(4, 4)))
    assert found.prune() == 2
    assert found.log.start_offset == 7


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        pytest.param(write(0, key=replace(KEY, partition=-1)), ErrorCode.INVALID_REQUEST, id="negative partition"),
        pytest.param(replace(write(0), leader_epoch=None), ErrorCode.INVALID_REQUEST, id="write without leader epoch"),
        pytest.param(replace(write(0), state_epoch=None), ErrorCode.INVALID_REQUEST, id="write without state epoch"),
        pytest.param(StateRead(key=KEY, leader_epoch=None), ErrorCode.INVALID_REQUEST, id="read without leader epoch"),
        pytest.param(
            StateInitialize(key=KEY, state_epoch=None, start_offset=0),
            ErrorCode.INVALID_REQUEST,
            id="initialize without state epoch",
        ),
        pytest.param(write(0, key=KEYS[1]), ErrorCode.INVALID_REQUEST, id="write, never initialized"),
        pytest.param(StateRead(key=KEYS[1], leader_epoch=0), ErrorCode.INVALID_REQUEST, id="read, never initialized"),
        pytest.param(write(0, leader=3), ErrorCode.FENCED_LEADER_EPOCH, id="an older leader writes"),
        pytest.param(
            write(0, leader=3, state_epoch=1), ErrorCode.FENCED_LEADER_EPOCH, id="both older: the leader comes first"
        ),
        pytest.param(write(0, leader=4, state_epoch=1), ErrorCode.FENCED_STATE_EPOCH, id="an older group epoch writes"),
        pytest.param(StateRead(key=KEY, leader_epoch=3), ErrorCode.FENCED_LEADER_EPOCH, id="an older leader reads"),
        pytest.param(
            StateInitialize(key=KEY, state_epoch=1, start_offset=0),
            ErrorCode.FENCED_STATE_EPOCH,
            id="an older group epoch initializes",
        ),
        pytest.param(
            StateInitialize(key=replace(KEY, partition=2), state_epoch=2, start_offset=0),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            id="a partition that is not there",
        ),
        pytest.param(
            StateDelete(key=replace(KEY, topic_id=KEY.topic_id[::-1])),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            id="a topic that is not there",
        ),
        pytest.param(write(0, leader=4, state_epoch=2), ErrorCode.NONE, id="equal epochs"),
        pytest.param(write(0, leader=9, state_epoch=9), ErrorCode.NONE, id="higher epochs"),
        pytest.param(StateDelete(key=KEYS[1]), ErrorCode.NONE, id="delete what is not there"),
        pytest.param(StateSummary(key=KEYS[1]), ErrorCode.NONE, id="summary of what is not there"),
    ],
)
def test_answers(request_: PersisterRequest, error: ErrorCode) -> None:
    """R002-58: each call's error, in the order of Kafka 4.4's checks."""
    found = coordinator()
    found.answer(StateInitialize(key=KEY, state_epoch=2, start_offset=0))
    found.answer(StateRead(key=KEY, leader_epoch=4))

    assert found.answer(request_).error is error


def test_higher_epochs_pass_and_are_not_kept() -> None:
    """Only a read raises the leader epoch, only an initialize the state epoch."""
    found = started()
    found.answer(write(0, batch(0, 0), leader=9, state_epoch=9))

    assert (found.memory.leader_epochs[KEY], found.memory.state_epochs[KEY]) == (0, 0)
    assert found.answer(write(0, batch(1, 1), leader=0, state_epoch=0)).error is ErrorCode.NONE


def test_a_read_raises_the_leader_epoch_once() -> None:
    """R000-33: a new leader's read writes an update with its epoch and no batches; the same leader's next one nothing.
    After a reset the snapshot says leader epoch 0 and the highest seen still fences."""
    found = started()
    found.answer(write(0, batch(3, 4), done=2))
    answer = found.answer(StateRead(key=KEY, leader_epoch=5))
    update = records(found)[-1]

    assert answer == ReadAnswer(key=KEY, state_epoch=0, start_offset=0, batches=(batch(3, 4),))
    assert isinstance(update, ShareUpdate)
    assert (update.leader_epoch, update.start_offset, update.delivery_complete_count) == (5, 0, 2)
    assert update.batches == ()
    end = found.log.end_offset
    assert found.answer(StateRead(key=KEY, leader_epoch=5)) == answer
    assert found.log.end_offset == end
    found.answer(StateInitialize(key=KEY, state_epoch=1, start_offset=9))
    assert (found.memory.states[KEY].leader_epoch, found.memory.leader_epochs[KEY]) == (0, 5)
    assert found.answer(StateRead(key=KEY, leader_epoch=4)).error is ErrorCode.FENCED_LEADER_EPOCH


def test_an_initialize_begins_afresh() -> None:
    """The next snapshot epoch, no batches, complete count 0, or unknown like the start offset; it may go back."""
    found = started()
    found.answer(write(0, batch(0, 9), done=10))
    found.answer(StateInitialize(key=KEY, state_epoch=0, start_offset=None))
    state = found.memory.states[KEY]
    assert (state.snapshot_epoch, state.start_offset, state.delivery_complete_count, state.batches) == (
        1,
        None,
        None,
        (),
    )
    found.answer(StateInitialize(key=KEY, state_epoch=1, start_offset=4))
    state = found.memory.states[KEY]
    assert (state.snapshot_epoch, state.start_offset, state.delivery_complete_count) == (2, 4, 0)
    found.answer(StateDelete(key=KEY))
    found.answer(StateInitialize(key=KEY, state_epoch=0, start_offset=4))
    assert found.memory.states[KEY].snapshot_epoch == 0


@pytest.mark.parametrize(("rules", "written"), [(KAFKA_4_4, 2), (KAFKA_TRUNK, 1)])
def test_a_repeated_initialize(rules: CoordinatorRules, written: int) -> None:
    """Up to 4.4 it writes the same snapshot again, on trunk nothing; another start offset is written by both."""
    found = started(rules=rules)
    assert found.answer(StateInitialize(key=KEY, state_epoch=0, start_offset=0)).error is ErrorCode.NONE
    assert found.log.end_offset == written
    found.answer(StateInitialize(key=KEY, state_epoch=0, start_offset=1))
    assert found.log.end_offset == written + 1


@pytest.mark.parametrize(
    ("asked", "done", "of_4_3", "of_4_4"),
    [
        pytest.param(5, 1, (5, 1), (20, 3), id="behind"),
        pytest.param(20, 1, (20, 1), (20, 3), id="equal, fewer done"),
        pytest.param(20, 7, (20, 7), (20, 7), id="equal, more done"),
        pytest.param(30, 1, (30, 1), (30, 1), id="ahead"),
        pytest.param(None, 1, (None, 1), (20, 3), id="not said"),
    ],
)
def test_progress(asked: int | None, done: int, of_4_3: tuple[int, int], of_4_4: tuple[int, int]) -> None:
    """Since 4.4 start offset and complete count do not go back within a state; before, they are as the leader says."""
    for rules, expected in ((KAFKA_4_3, of_4_3), (KAFKA_4_4, of_4_4)):
        found = started(rules=rules, limit=9)
        found.answer(write(20, batch(25, 27), done=3))
        found.answer(write(asked, batch(2, 2, 0), done=done))
        update = records(found)[-1]
        assert isinstance(update, ShareUpdate)
        assert (update.start_offset, update.delivery_complete_count) == expected
        assert all(b.first_offset >= (expected[0] or 0) for b in update.batches)


def test_before_4_4_a_snapshot_keeps_a_start_that_is_not_said() -> None:
    """An update says -1 as the leader does; the snapshot in its place says the start offset there is."""
    found = started(rules=KAFKA_4_3, limit=0, start=20)
    found.answer(write(None, batch(2, 2), batch(25, 27), done=3))

    snapshot = records(found)[-1]
    assert isinstance(snapshot, ShareSnapshot)
    assert (snapshot.start_offset, snapshot.batches) == (20, (batch(25, 27),))


def test_before_4_4_an_epoch_that_is_not_given_is_not_checked() -> None:
    """-1 passes for any epoch, and a read with it writes nothing."""
    found = started(rules=KAFKA_4_3)
    found.answer(StateRead(key=KEY, leader_epoch=5))
    end = found.log.end_offset

    assert found.answer(StateRead(key=KEY, leader_epoch=None)).error is ErrorCode.NONE
    assert found.log.end_offset == end
    assert found.answer(replace(write(1), leader_epoch=None, state_epoch=None)).error is ErrorCode.NONE
    assert found.memory.states[KEY].leader_epoch == 5


def test_the_summary() -> None:
    """R002-54: epochs, start offset and complete count, without batches; of the unknown: nothing known, no error."""
    found = started()
    found.answer(write(4, batch(6, 7), done=2))

    assert found.answer(StateSummary(key=KEY)) == SummaryAnswer(
        key=KEY, state_epoch=0, leader_epoch=0, start_offset=4, delivery_complete_count=2
    )
    assert found.answer(StateSummary(key=KEYS[1])) == SummaryAnswer(
        key=KEYS[1], state_epoch=0, leader_epoch=0, start_offset=None, delivery_complete_count=None
    )


def test_deleting() -> None:
    """R000-36: a tombstone once, nothing for what is not there; a deleted topic's keys get one each, others none."""
    found = started()
    for key in KEYS[1:]:
        found.answer(StateInitialize(key=key, state_epoch=0, start_offset=0))
    found.answer(StateDelete(key=KEY))
    found.answer(StateDelete(key=KEY))
    assert records(found)[3:] == [Tombstone(key=KEY)]
    assert found.forget_topics(TOPIC_IDS[1:]) == (Tombstone(key=KEYS[2]),)
    assert set(found.memory.states) == {KEYS[1]}
    assert found.answer(StateRead(key=KEY, leader_epoch=0)).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("availability", "error"),
    [
        (Availability.ACTIVE, ErrorCode.NONE),
        (Availability.LOADING, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (Availability.INACTIVE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (Availability.MOVED, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_who_is_not_ready_answers_so(availability: Availability, error: ErrorCode) -> None:
    """R000-32: until the log is read to its end, or elsewhere, no call is served, also none that is wrong in itself."""
    found = started()
    found.availability = availability

    assert found.answer(StateSummary(key=KEY)).error is error
    if error is not ErrorCode.NONE:
        assert found.answer(write(0, key=replace(KEY, partition=-1))) == PersisterAnswer(
            key=replace(KEY, partition=-1), error=error
        )


def test_without_metadata_no_topic_is_known() -> None:
    """A coordinator that has seen no metadata yet knows no topic; what is wrong in itself is still said first."""
    found = started()
    found.partition_counts = None

    assert found.answer(write(0)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found.answer(write(0, leader=-1)).error is ErrorCode.INVALID_REQUEST
