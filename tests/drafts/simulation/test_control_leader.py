"""Generations ii and i at work: a leader writes control records and crashes, a cleaner thins them out."""

from __future__ import annotations

import random

import pytest
from drafts.random_walks import GROUPS, ControlWalk, told
from hypothesis import given
from hypothesis import strategies as st

from acktrail.errors import InputError
from acktrail_drafts.draft_logs import replay_back_chains, replay_control_log
from acktrail_drafts.draft_records import ControlCheckpoint
from acktrail_simulation.drafts.control_leader import ControlLeader
from acktrail_simulation.drafts.control_log_cleaner import checkpoint_offsets, cleaning, missing_records
from acktrail_simulation.drafts.record_log import RecordLog

seeds = st.integers(0, 2**32)
lengths = st.integers(1, 40)


@given(seeds, lengths, st.integers(0, 5))
def test_memory_is_what_the_log_says(seed: int, steps: int, every: int) -> None:
    """R000-47, R000-51, R001-14: after every record, cleaning and change of leader, the leader's memory and the replay
    of its log both say what was done, and the log breaks no rule."""
    life = ControlWalk(random.Random(seed), every=every)
    for _ in range(steps):
        life.step()
        replayed = replay_control_log(life.leader.log.records, cleaned=True)
        states = {group: state for group, state in replayed.states.items() if group in life.leader.states}
        assert states == life.leader.states
        assert told(states.items()) == life.truth.told()
        assert {found.rule for found in replayed.violations if found.subject in states} == set()


@given(seeds, lengths)
def test_a_crash_loses_what_was_never_written(seed: int, steps: int) -> None:
    """R000-55, R001-14: a leader that begins with the log as it was after any record knows all that was written up to
    there, and goes on from it."""
    life = ControlWalk(random.Random(seed), without="leave")
    for _ in range(steps):
        life.step()
    for end_offset in range(life.cleaned_to, life.leader.log.end_offset + 1):
        expected = life.history[max(offset for offset in life.history if offset <= end_offset)]
        after = life.leader.succeeded(end_offset=end_offset)
        assert told(after.states.items()) == expected
        for group in after.states:
            after.write(group, ())
        replayed = replay_control_log(after.log.records, cleaned=True)
        assert told(replayed.states.items()) == expected
        assert replayed.violations == ()


@given(seeds, lengths, st.integers(0, 3), st.integers(4, 99))
def test_how_often_checkpoints_are_written_does_not_matter(seed: int, steps: int, often: int, seldom: int) -> None:
    """R000-53: where one leader writes a checkpoint and another a delta, for the same changes, they stand at the same
    windows after every record."""
    lives = [ControlWalk(random.Random(seed), every=every, without="clean") for every in (often, seldom)]
    for _ in range(steps):
        for life in lives:
            life.step()
        one, other = ({g: s.window for g, s in life.leader.states.items()} for life in lives)
        assert one == other


@given(seeds, lengths)
def test_the_cleaner_takes_nothing_that_counts(seed: int, steps: int) -> None:
    """R000-58, R001-18 to R001-20: at whatever moment the cleaner runs, replay of what it leaves is replay of the log,
    for every group that is subscribed; nothing from a group's own checkpoint on is missing, and the cut is the earliest
    of the checkpoints, so that records of others between the two stay."""
    life = ControlWalk(random.Random(seed), without="clean")
    for _ in range(steps):
        life.step()
        leader = life.leader.succeeded()
        before = leader.log.records
        needed = [placed for placed in before if placed.record.group_id in leader.states]
        leader.clean()
        left = leader.log.records
        after = replay_control_log(left, cleaned=True).states
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
        life.step()
        leader = life.leader
        heads = life.file.caught_up(leader.log.records)
        assert heads == leader.heads
        chains = replay_back_chains(leader.log.records, heads)
        assert {group: found.state for group, found in chains.items()} == leader.states
        assert {found.chain.broken for found in chains.values()} <= {None}
        assert all(len(found.chain.offsets) <= leader.deltas_per_checkpoint + 1 for found in chains.values())


@given(seeds, lengths)
def test_only_generation_ii_is_chained(seed: int, steps: int) -> None:
    """R001-07: without BackOffset, generation i, the same log replays to the same states."""
    chained, scanned = (ControlWalk(random.Random(seed), chained=chained) for chained in (True, False))
    for _ in range(steps):
        chained.step()
        scanned.step()
    assert chained.leader.states == scanned.leader.states
    assert all(getattr(placed.record, "back_offset", None) is None for placed in scanned.leader.log.records)


def test_checkpoints_bound_what_is_read() -> None:
    """R000-55: no more deltas than asked for lie between two checkpoints, and epochs count checkpoints from 1."""
    life = ControlWalk(random.Random(3), without="clean leave succeed")
    for _ in range(150):
        life.step()
    for group in GROUPS:
        own = [placed.record for placed in life.leader.log.records if placed.record.group_id == group]
        kinds = "".join("C" if isinstance(record, ControlCheckpoint) else "d" for record in own)
        assert "dddd" not in kinds
        assert "ddd" in kinds
        epochs = [record.checkpoint_epoch for record in own if isinstance(record, ControlCheckpoint)]
        assert epochs == list(range(1, len(epochs) + 1))


def test_a_group_subscribes_once() -> None:
    """A second first checkpoint would begin the group anew."""
    leader = ControlLeader(RecordLog(), chained=True, deltas_per_checkpoint=1)
    leader.subscribe(GROUPS[0], 5)
    with pytest.raises(InputError):
        leader.subscribe(GROUPS[0], 5)
    assert leader.clean() == 0
