"""The simulated share coordinator: when it writes snapshots, and what may be pruned then."""

from __future__ import annotations

from copy import deepcopy

from samples.coordinator_random_calls import COLD_AFTER_MS, KEYS
from simulation.coordinator_calls import KEY, ageless, batch, records, started, write

from acktrail.model.records import ShareSnapshot
from acktrail_simulation.coordinator.share_coordinator import UPDATES_PER_SNAPSHOT
from acktrail_simulation.messages.persister_messages import StateDelete, StateInitialize


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
