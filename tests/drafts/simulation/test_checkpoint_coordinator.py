"""Generation iii at work: a coordinator writes, rolls over, removes, crashes, and a cleaner runs at any moment."""

from __future__ import annotations

import random

from drafts.random_walks import KEYS, RETENTION_MS, CheckpointWalk, Truth, told
from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_calls import Step, coordinator, scripts, take

from acktrail.model.records import RecordAt, Tombstone
from acktrail_drafts.draft_logs import replay_checkpoint_log
from acktrail_drafts.draft_records import Delta, DeltaTombstone, Rule
from acktrail_drafts.strict_replay import replay_strictly
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.release_rules import KAFKA_4_4, KAFKA_TRUNK, CoordinatorRules
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.drafts.checkpoint_coordinator import CheckpointCoordinator
from acktrail_simulation.drafts.compaction import LogCompaction
from acktrail_simulation.drafts.record_log import RecordLog

seeds = st.integers(0, 2**32)
lengths = st.integers(1, 40)
short = st.integers(1, 20)
ranges = st.sampled_from((1, 2, 3, 255))


@given(seeds, lengths, ranges, st.integers(0, 5))
def test_memory_is_what_the_log_says(seed: int, steps: int, highest: int, every: int) -> None:
    """R000-14, R000-30: after every record, run of the cleaner and restart, memory and the replay of what is left of
    the log both say what was done."""
    life = CheckpointWalk(random.Random(seed), highest=highest, every=every)
    for _ in range(steps):
        life.step()
        replayed = replay_checkpoint_log(life.coordinator.log.records, compacted=True)
        assert replayed.states == life.coordinator.states
        assert told(replayed.states.items()) == life.truth.told()
        assert {found.rule for found in replayed.violations} <= {Rule.DELTA_HAS_CHECKPOINT}


@given(seeds, lengths, ranges)
def test_what_it_writes_breaks_no_rule(seed: int, steps: int, highest: int) -> None:
    """R000-15 to R000-20, R000-37: without a cleaner every epoch, index and tombstone is where the rules want it, over
    roll-overs, longer ranges and removals; no index is used twice in an epoch."""
    life = CheckpointWalk(random.Random(seed), highest=highest, without="clean restart")
    for _ in range(steps):
        life.step()
    assert replay_checkpoint_log(life.coordinator.log.records).violations == ()


@given(seeds, short, ranges)
def test_compaction_at_any_moment_changes_no_state(seed: int, steps: int, highest: int) -> None:
    """R000-14, R000-29, R000-30: replay(compact(log)) = replay(log), however far the cleaner gets and whenever it runs,
    with tombstones there or gone; and each record key is left once below where it got to."""
    life = CheckpointWalk(random.Random(seed), highest=highest, without="clean")
    for _ in range(steps):
        life.step()
    log = life.coordinator.log
    whole = replay_checkpoint_log(log.records).states
    for end_offset in range(log.end_offset + 1):
        copy = RecordLog(records=log.records, end_offset=log.end_offset)
        compaction = LogCompaction(log=copy, clock=life.clock, tombstone_retention_ms=RETENTION_MS)
        for _ in range(3):
            compaction.run(end_offset)
            assert replay_checkpoint_log(copy.records, compacted=True).states == whole
            life.clock.advance(RETENTION_MS)
        closed = [placed.record for placed in copy.records if placed.offset < end_offset]
        keys = [(record.key, getattr(record, "delta_index", None)) for record in closed]
        assert len(keys) == len(set(keys))
        assert not any(isinstance(record, Tombstone | DeltaTombstone) for record in closed)


@given(seeds, short, ranges)
def test_a_crash_loses_what_was_never_written(seed: int, steps: int, highest: int) -> None:
    """R000-30, R000-37: a coordinator that starts with the log as it was after any record knows all that was written up
    to there; a removal counts from its first tombstone on, and is finished, wherever it was interrupted."""
    life = CheckpointWalk(random.Random(seed), highest=highest)
    for _ in range(steps):
        life.step()
    end = life.coordinator.log.end_offset
    for end_offset in range(life.compaction.cleaned_to, end + 1):
        expected = life.history[max(offset for offset in life.history if offset <= end_offset)]
        after = life.coordinator.restarted(end_offset=end_offset)
        assert told(after.states.items()) == expected
        assert all(track.state is not None or not track.live_delta_indices for track in after.tracks.values())
        replayed = replay_checkpoint_log(after.log.records, compacted=True)
        assert Rule.DELETION_COMPLETE not in {found.rule for found in replayed.violations}


@given(seeds, lengths, st.integers(0, 3), st.integers(4, 99))
def test_how_often_checkpoints_are_written_does_not_matter(seed: int, steps: int, often: int, seldom: int) -> None:
    """R000-22, R000-53: where one coordinator writes a checkpoint and another a delta, for the same writes, they hold
    the same windows after every record."""
    lives = [
        CheckpointWalk(random.Random(seed), every=every, highest=255, without="clean") for every in (often, seldom)
    ]
    for _ in range(steps):
        for life in lives:
            life.step()
        one, other = (told(life.coordinator.states.items()) for life in lives)
        assert one == other


def test_an_interrupted_removal_is_finished_without_its_first_tombstone() -> None:
    """R000-37: even where the checkpoint's tombstone was cleaned away, which takes its time, before the deltas' were
    written, the next coordinator takes away the deltas and begins the share partition afresh."""
    coordinator = CheckpointCoordinator(RecordLog(), deltas_per_checkpoint=9)
    truth = Truth(random.Random(1))
    request = StateWrite(key=KEYS[0], state_epoch=None, start_offset=truth.begin(KEYS[0]), batches=())
    for _ in range(5):
        coordinator.write(request)
        request = StateWrite(key=KEYS[0], state_epoch=None, start_offset=None, batches=truth.step(KEYS[0]))
    deltas = [placed.record.delta_index for placed in coordinator.log.records if isinstance(placed.record, Delta)]
    assert deltas
    end = coordinator.log.end_offset
    assert coordinator.delete(KEYS[0]) == 1 + len(set(deltas))

    log = coordinator.log.cut(end + 1)
    clock = SimulatedClock()
    compaction = LogCompaction(log=log, clock=clock, tombstone_retention_ms=RETENTION_MS)
    for wait_ms in (0, RETENTION_MS - 1, 1):
        clock.advance(wait_ms)
        assert isinstance(log.records[-1].record, Tombstone)
        compaction.run(log.end_offset)
    assert all(isinstance(placed.record, Delta) for placed in log.records)
    after = CheckpointCoordinator(log, deltas_per_checkpoint=9)
    gone = [placed.record.delta_index for placed in after.log.records if isinstance(placed.record, DeltaTombstone)]
    assert gone == sorted(set(deltas))
    assert after.states == {}
    assert after.delete(KEYS[0]) == 0
    after.write(StateWrite(key=KEYS[0], state_epoch=None, start_offset=7, batches=()))
    assert after.states[KEYS[0]].window.start_offset == 7


@given(scripts(prune=False), st.integers(0, 3), st.sampled_from((KAFKA_4_4, KAFKA_TRUNK)))
def test_its_log_breaks_no_rule(steps: list[Step], limit: int, rules: CoordinatorRules) -> None:
    """R002-06, R002-12: epochs step, updates name their snapshot, start offsets do not go back, batches are in order:
    strict replay of what Kafka 4.4 writes finds nothing but states that the leader chose to write."""
    found = coordinator(limit=limit, rules=rules)
    for step in steps:
        take(found, step)
    placed = [RecordAt(partition=0, offset=e.offset, record=e.record) for e in found.log.entries]
    strict = replay_strictly(placed)

    assert {finding.rule.value for finding in strict.violations} <= {"uninitialised_has_no_batches"}
    assert strict.states == found.memory.states
