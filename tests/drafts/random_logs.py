"""Random logs such as the machinery of each generation would write, for property tests.

An offset that became terminal stays terminal and delivery counts never fall: that is what makes a checkpoint, which
forgets what lies below its start offset, as good as the delta it replaces.
"""

from __future__ import annotations

import random
from typing import Any

from drafts.random_walks import CheckpointWalk, ControlWalk
from hypothesis import strategies as st

from acktrail.model.batches import StateBatch
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_drafts.draft_records import (
    CheckpointRecord,
    ControlRecord,
    DraftRecord,
    DraftSnapshot,
    DraftUpdate,
)

__all__ = ["GROUPS", "KEYS", "checkpoint_logs", "control_logs", "delivery_steps", "draft_logs", "placed", "state_logs"]

KEYS = tuple(
    SharePartition(group_id=GroupId(group), topic_id=TopicId("AAECAwQFBgcICQoLDA0ODw"), partition=0)
    for group in ("G1", "G2")
)
GROUPS = tuple(GroupId(name) for name in ("G1", "G2", "G3"))
START = 100
WIDTH = 12
_KEPT = st.just("clean leave restart")
"""No record is taken away again."""


def placed(records: list[Any], *, first: int = 0, stride: int = 1) -> tuple[RecordAt[Any], ...]:
    """Records one after the other in one log."""
    return tuple(
        RecordAt(partition=0, offset=first + stride * index, record=record) for index, record in enumerate(records)
    )


class Progress:
    """What a leader has done to each offset of a small window, so that the next step is a legal one."""

    def __init__(self) -> None:
        self.state: dict[int, tuple[int, int]] = {}

    def step(self, draw: st.DrawFn) -> tuple[StateBatch, ...]:
        """Batches of one write: releases, acknowledgements and archivals of offsets that are not done yet."""
        open_offsets = [o for o in range(START, START + WIDTH) if self.state.get(o, (0, 0))[0] == 0]
        chosen = sorted(draw(st.sets(st.sampled_from(open_offsets), max_size=4))) if open_offsets else []
        found = []
        for offset in chosen:
            count = self.state.get(offset, (0, 0))[1] + 1
            state = draw(st.sampled_from((0, 2, 4)))
            self.state[offset] = (state, count)
            found.append(
                StateBatch(first_offset=offset, last_offset=offset, delivery_state=state, delivery_count=count)
            )
        return tuple(found)


@st.composite
def delivery_steps(draw: st.DrawFn) -> list[tuple[StateBatch, ...]]:
    """What one leader writes, write by write."""
    progress = Progress()
    return [progress.step(draw) for _ in range(draw(st.integers(0, 10)))]


def _all(progress: Progress) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(first_offset=o, last_offset=o, delivery_state=s, delivery_count=c)
        for o, (s, c) in sorted(progress.state.items())
    )


@st.composite
def draft_logs(draw: st.DrawFn) -> tuple[RecordAt[DraftRecord], ...]:
    """Records of two share partitions as generation iv's coordinator writes them."""
    progress = {key: Progress() for key in KEYS}
    epochs: dict[SharePartition, int] = {}
    records: list[DraftRecord] = []
    for _ in range(draw(st.integers(0, 20))):
        key = draw(st.sampled_from(KEYS))
        batches = progress[key].step(draw)
        if key not in epochs or draw(st.integers(0, 4)) == 0:
            epochs[key] = epochs.get(key, -1) + 1
            records.append(
                DraftSnapshot(
                    key=key,
                    state_epoch=1,
                    snapshot_epoch=epochs[key],
                    start_offset=START,
                    batches=_all(progress[key]),
                )
            )
        else:
            records.append(
                DraftUpdate(key=key, state_epoch=1, snapshot_epoch=epochs[key], start_offset=None, batches=batches)
            )
    return placed(records)


@st.composite
def state_logs(draw: st.DrawFn) -> tuple[RecordAt[StateRecord], ...]:
    """Shipped records of two share partitions in any order with any small epochs: what no broker would write, too."""
    small = st.integers(0, 3)
    records: list[StateRecord] = []
    for _ in range(draw(st.integers(0, 14))):
        key, kind = draw(st.sampled_from(KEYS)), draw(st.integers(0, 9))
        batches = Progress().step(draw)
        if kind == 0:
            records.append(Tombstone(key=key))
        elif kind < 4:
            records.append(
                ShareSnapshot(
                    key=key,
                    snapshot_epoch=draw(small),
                    state_epoch=draw(small),
                    leader_epoch=draw(small),
                    start_offset=draw(st.one_of(st.none(), st.integers(START - 2, START + 3))),
                    delivery_complete_count=None,
                    create_timestamp_ms=1,
                    write_timestamp_ms=2,
                    batches=batches,
                )
            )
        else:
            records.append(
                ShareUpdate(
                    key=key,
                    snapshot_epoch=draw(small),
                    leader_epoch=draw(st.one_of(st.none(), small)),
                    start_offset=draw(st.one_of(st.none(), st.integers(START - 2, START + 3))),
                    delivery_complete_count=draw(st.one_of(st.none(), small)),
                    batches=batches,
                )
            )
    return placed(records)


def control_logs(*, chained: bool) -> st.SearchStrategy[tuple[RecordAt[ControlRecord], ...]]:
    """What leaders of generation ii, or i, write about several groups, with records of users between them."""
    lives = st.builds(ControlWalk, st.integers(0, 2**32).map(random.Random), chained=st.just(chained), without=_KEPT)
    return st.builds(_lived, lives, st.integers(0, 40)).map(lambda life: life.leader.log.records)


def checkpoint_logs() -> st.SearchStrategy[tuple[RecordAt[CheckpointRecord], ...]]:
    """What coordinators of generation iii write about two share partitions."""
    highest = st.sampled_from((2, 4, 255))
    lives = st.builds(CheckpointWalk, st.integers(0, 2**32).map(random.Random), highest=highest, without=_KEPT)
    return st.builds(_lived, lives, st.integers(0, 40)).map(lambda life: life.coordinator.log.records)


def _lived(life: Any, steps: int) -> Any:
    for _ in range(steps):
        life.step()
    return life
