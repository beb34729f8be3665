"""The laws of lives: what leaders and coordinators of each generation write, roll over, remove and lose in a
crash, with cleaners that thin it out, says at every moment what was done to every offset."""

from __future__ import annotations

import random
from operator import itemgetter

import pytest
from extras.copied_logs.drafts.draft_lives import LIVES, RETENTION_MS, CheckpointWalk, ControlWalk, told, windows
from hypothesis import given
from hypothesis import strategies as st

from acktrail.model.records import Tombstone
from acktrail_copied_logs.dialects import Policy
from acktrail_copied_logs.drafts.draft_dialects import DRAFTS
from acktrail_copied_logs.drafts.draft_logs import replay_checkpoint_log, replay_control_log
from acktrail_copied_logs.drafts.draft_records import DeltaTombstone, Rule, draft_state_json
from acktrail_simulation.drafts.back_chains import replay_back_chains
from acktrail_simulation.drafts.compaction import LogCompaction
from acktrail_simulation.drafts.control_log_cleaner import checkpoint_offsets, cleaning, missing_records
from acktrail_simulation.drafts.record_encoders import encode_in
from acktrail_simulation.drafts.record_log import RecordLog

seeds = st.integers(0, 2**32)
lengths = st.integers(1, 40)
short = st.integers(1, 20)
ranges = st.sampled_from((1, 2, 3, 255))


@pytest.mark.parametrize("name", LIVES)
@given(seed=seeds, steps=lengths, highest=ranges, every=st.integers(0, 5))
def test_memory_is_what_the_log_says(name: str, seed: int, steps: int, highest: int, every: int) -> None:
    """R000-14, R000-30, R000-44, R000-47, R000-51, R000-58, R001-07, R001-14, R001-38: after every record, cleaning,
    compaction, roll-over, removal and restart, memory and the dialect's replay of what is left of the log both say what
    was done to every offset, and what is there breaks no rule. All is in its bytes: generation ii alone is chained."""
    life = LIVES[name](random.Random(seed), every=every, **{"highest": highest} if name == "iii" else {})
    for _ in range(steps):
        life.live()
        replayed = DRAFTS[name].replay(life.log.records, Policy.STRICT)
        there = {getattr(key, "group_id", key) for key in life.states}
        rows = [row for row in replayed.states if name == "iii" or row["group"] in there]
        expected = [draft_state_json(state, 0) for state in life.states.values()]
        assert sorted(rows, key=itemgetter("group")) == sorted(expected, key=itemgetter("group"))
        assert told(life.states.items()) == life.truth.told()
        rules = {found["rule"] for found in replayed.findings if name == "iii" or found["group"] in there}
        assert rules <= ({Rule.DELTA_HAS_CHECKPOINT, Rule.DELTA_INDEX_NOT_RESET} if name == "iii" else set())
    records = [found.record for found in life.log.records]
    assert [DRAFTS[name].decode(*encode_in(name, record)) for record in records] == records


@pytest.mark.parametrize("name", LIVES)
@given(seed=seeds, steps=lengths, often=st.integers(0, 3), seldom=st.integers(4, 99))
def test_how_often_checkpoints_are_written_does_not_matter(
    name: str, seed: int, steps: int, often: int, seldom: int
) -> None:
    """R000-22, R000-53, R001-12: where one writes a checkpoint and another a delta, for the same changes, they stand at
    the same windows after every record."""
    widest = {"highest": 255} if name == "iii" else {}
    lives = [LIVES[name](random.Random(seed), every=every, without="clean", **widest) for every in (often, seldom)]
    for _ in range(steps):
        one, other = (windows(life.live().states) for life in lives)
        assert one == other


@given(seeds, lengths)
def test_a_leaders_crash_loses_what_was_never_written(seed: int, steps: int) -> None:
    """R000-55, R001-14: a leader that begins with the log as it was after any record knows all that was written up to
    there, and goes on from it."""
    life = ControlWalk(random.Random(seed), without="leave").live(steps)
    for end_offset in range(life.cleaned_to, life.leader.log.end_offset + 1):
        expected = life.true_at(end_offset)
        after = life.leader.succeeded(end_offset=end_offset)
        assert told(after.states.items()) == expected
        for group in after.states:
            after.write(group, ())
        replayed = replay_control_log(after.log.records)
        assert told(replayed.states.items()) == expected
        assert replayed.violations == ()


@given(seeds, lengths)
def test_the_cleaner_takes_nothing_that_counts(seed: int, steps: int) -> None:
    """R000-58, R001-18 to R001-20: at whatever moment the cleaner runs, replay of what it leaves is replay of the log,
    for every group that is subscribed; nothing from a group's own checkpoint on is missing, and the cut is the earliest
    of the checkpoints, so that records of others between the two stay."""
    life = ControlWalk(random.Random(seed), without="clean")
    for _ in range(steps):
        life.live()
        leader = life.leader.succeeded()
        before = leader.log.records
        needed = [placed for placed in before if placed.record.group_id in leader.states]
        leader.clean()
        left = leader.log.records
        after = replay_control_log(left).states
        assert {group: after[group] for group in leader.states} == leader.states
        assert missing_records(needed, [placed for placed in left if placed in needed]) == ()
        stay = {offset for kinds in cleaning(needed).values() for offset in (*kinds.below_own, *kinds.needed)}
        assert stay <= {placed.offset for placed in left}
        known = [offset for offset in checkpoint_offsets(needed).values() if offset is not None]
        assert all(placed.offset >= min(known) for placed in left if known)


@given(seeds, lengths)
def test_an_old_share_snapshot_file_is_enough(seed: int, steps: int) -> None:
    """R001-03, R001-04, R001-07, R001-10, R001-14: from a share snapshot file of any age and what the log holds since,
    each chain leads back to its checkpoint, over no more records than are written between two checkpoints, and gives
    the leader's own state; also after the cleaner, and for groups that joined since."""
    life = ControlWalk(random.Random(seed), without="leave")
    for _ in range(steps):
        life.live()
        leader = life.leader
        heads = life.file.caught_up(leader.log.records)
        assert heads == leader.heads
        chains = replay_back_chains(leader.log.records, heads)
        assert {group: found.state for group, found in chains.items()} == leader.states
        assert {found.broken for found in chains.values()} <= {None}
        assert all(len(found.offsets) <= leader.deltas_per_checkpoint + 1 for found in chains.values())


@given(seeds, lengths, ranges)
def test_what_it_writes_breaks_no_rule(seed: int, steps: int, highest: int) -> None:
    """R000-15 to R000-20, R000-37: without a cleaner every epoch, index and tombstone is where the rules want it, over
    roll-overs, longer ranges and removals; no index is used twice in an epoch. That a short range ended just before a
    checkpoint cannot be told from an index that began again there."""
    life = CheckpointWalk(random.Random(seed), highest=highest, without="clean restart").live(steps)
    rules = {found.rule for found in replay_checkpoint_log(life.coordinator.log.records).violations}
    assert rules <= ({Rule.DELTA_INDEX_NOT_RESET} if highest < 255 else set())


@given(seeds, short, ranges)
def test_compaction_at_any_moment_changes_no_state(seed: int, steps: int, highest: int) -> None:
    """R000-14, R000-29, R000-30: replay(compact(log)) = replay(log), however far the cleaner gets and whenever it runs,
    with tombstones there or gone; and each record key is left once below where it got to."""
    life = CheckpointWalk(random.Random(seed), highest=highest, without="clean").live(steps)
    log = life.coordinator.log
    whole = replay_checkpoint_log(log.records).states
    for end_offset in range(log.end_offset + 1):
        copy = RecordLog(records=log.records, end_offset=log.end_offset)
        compaction = LogCompaction(log=copy, clock=life.clock, tombstone_retention_ms=RETENTION_MS)
        for _ in range(3):
            compaction.run(end_offset)
            assert replay_checkpoint_log(copy.records).states == whole
            life.clock.advance(RETENTION_MS)
        closed = [placed.record for placed in copy.records if placed.offset < end_offset]
        keys = [(record.key, getattr(record, "delta_index", None)) for record in closed]
        assert len(keys) == len(set(keys))
        assert not any(isinstance(record, Tombstone | DeltaTombstone) for record in closed)


@given(seeds, short, ranges)
def test_a_coordinators_crash_loses_what_was_never_written(seed: int, steps: int, highest: int) -> None:
    """R000-30, R000-37: a coordinator that starts with the log as it was after any record knows all that was written up
    to there; a removal counts from its first tombstone on, and is finished, wherever it was interrupted."""
    life = CheckpointWalk(random.Random(seed), highest=highest).live(steps)
    end = life.coordinator.log.end_offset
    for end_offset in range(life.compaction.cleaned_to, end + 1):
        expected = life.true_at(end_offset)
        after = life.coordinator.restarted(end_offset=end_offset)
        assert told(after.states.items()) == expected
        assert all(track.state is not None or not track.live_delta_indices for track in after.tracks.values())
        replayed = replay_checkpoint_log(after.log.records)
        assert Rule.DELETION_COMPLETE not in {found.rule for found in replayed.violations}
