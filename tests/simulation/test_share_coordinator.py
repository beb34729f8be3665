"""The simulated share coordinator: what it answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from samples.coordinator_random_calls import KEYS, TOPIC_IDS, coordinator
from simulation.coordinator_calls import KEY, batch, records, started, write

from acktrail.model.records import ShareSnapshot, ShareUpdate, Tombstone
from acktrail_simulation.coordinator.share_coordinator import UPDATES_PER_SNAPSHOT, Availability
from acktrail_simulation.error_codes import ErrorCode
from acktrail_simulation.messages.persister_messages import (
    PersisterRequest,
    PersisterResponse,
    ReadResponse,
    StateDelete,
    StateInitialize,
    StateRead,
    StateSummary,
    SummaryResponse,
)


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


def test_the_summary() -> None:
    """R002-54: epochs, start offset and complete count, without batches; of the unknown: nothing known, no error."""
    found = started()
    found.answer(write(4, batch(6, 7), done=2))

    assert found.answer(StateSummary(key=KEY)) == SummaryResponse(
        key=KEY, state_epoch=0, leader_epoch=0, start_offset=4, delivery_complete_count=2
    )
    assert found.answer(StateSummary(key=KEYS[1])) == SummaryResponse(
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
