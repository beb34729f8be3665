"""Random logs such as the machinery of each generation would write, for property tests.

An offset that became terminal stays terminal and delivery counts never fall: that is what makes a checkpoint, which
forgets what lies below its start offset, as good as the delta it replaces.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from acktrail.model.batches import StateBatch
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_drafts.checkpoint_log import CheckpointTrack, advance_track
from acktrail_drafts.draft_records import (
    Checkpoint,
    CheckpointRecord,
    ControlCheckpoint,
    ControlDelta,
    ControlRecord,
    Delta,
    DeltaTombstone,
    DraftRecord,
    DraftSnapshot,
    DraftUpdate,
)
from acktrail_simulation.drafts.complete_records import checkpoint_of

__all__ = ["GROUPS", "KEYS", "checkpoint_logs", "control_logs", "delivery_steps", "draft_logs", "placed", "state_logs"]

KEYS = tuple(
    SharePartition(group_id=GroupId(group), topic_id=TopicId("AAECAwQFBgcICQoLDA0ODw"), partition=0)
    for group in ("G1", "G2")
)
GROUPS = tuple(GroupId(name) for name in ("G1", "G2", "G3"))
START = 100
WIDTH = 12


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


@st.composite
def control_logs(draw: st.DrawFn, *, chained: bool) -> tuple[RecordAt[ControlRecord], ...]:
    """Several groups' control records on one topic partition, user records between them (offsets have gaps)."""
    progress = {group: Progress() for group in GROUPS}
    epochs = dict.fromkeys(GROUPS, 0)
    last: dict[GroupId, int] = {}
    starts = dict.fromkeys(GROUPS, START)
    found: list[RecordAt[ControlRecord]] = []
    offset = 0
    for _ in range(draw(st.integers(0, 25))):
        group = draw(st.sampled_from(GROUPS))
        offset += draw(st.integers(1, 3))
        batches = progress[group].step(draw)
        record: ControlRecord
        if epochs[group] == 0 or draw(st.integers(0, 4)) == 0:
            epochs[group] += 1
            record = _full_control(group, epochs[group], starts[group], progress[group])
        else:
            record = ControlDelta(
                group_id=group,
                checkpoint_epoch=epochs[group],
                back_offset=last[group] if chained else None,
                batches=batches,
            )
        last[group] = offset
        found.append(RecordAt(partition=0, offset=offset, record=record))
    return tuple(found)


def _full_control(group: GroupId, epoch: int, start: int, progress: Progress) -> ControlCheckpoint:
    batches = _all(progress)
    end = max([start, *(batch.last_offset + 1 for batch in batches)])
    return ControlCheckpoint(
        group_id=group, checkpoint_epoch=epoch, start_offset=start, end_offset=end, batches=batches
    )


def _all(progress: Progress) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(first_offset=o, last_offset=o, delivery_state=s, delivery_count=c)
        for o, (s, c) in sorted(progress.state.items())
    )


@st.composite
def checkpoint_logs(draw: st.DrawFn, *, removals: bool = True) -> tuple[RecordAt[CheckpointRecord], ...]:
    """Coordinators' records of two share partitions: a checkpoint at the latest when the index would be used twice."""
    highest = draw(st.sampled_from((2, 4, 255)))
    progress = {key: Progress() for key in KEYS}
    tracks = dict.fromkeys(KEYS, CheckpointTrack())
    index = dict.fromkeys(KEYS, 0)
    records: list[CheckpointRecord] = []
    for _ in range(draw(st.integers(0, 25))):
        key = draw(st.sampled_from(KEYS))
        if removals and tracks[key].state is not None and draw(st.integers(0, 11)) == 0:
            for gone in _removal(draw, key, tracks[key]):
                records.append(gone)
                tracks[key] = advance_track(tracks[key], gone)
            progress[key] = Progress()
            continue
        record = _next_record(draw, key, tracks[key], progress[key].step(draw), index[key])
        if isinstance(record, Delta):
            index[key] = 0 if record.delta_index == highest else record.delta_index + 1
        records.append(record)
        tracks[key] = advance_track(tracks[key], record)
    return placed(records)


def _removal(draw: st.DrawFn, key: SharePartition, track: CheckpointTrack) -> list[CheckpointRecord]:
    """A checkpoint's tombstone, then those of its deltas, perhaps interrupted."""
    live = sorted(track.live_delta_indices)
    done = live[: draw(st.integers(0, len(live)))]
    return [Tombstone(key=key), *(DeltaTombstone(key=key, delta_index=i) for i in done)]


def _next_record(
    draw: st.DrawFn, key: SharePartition, track: CheckpointTrack, batches: tuple[StateBatch, ...], index: int
) -> CheckpointRecord:
    if track.state is None:
        epoch = 0 if track.last_epoch is None else track.last_epoch + 1
        return Checkpoint(key=key, checkpoint_epoch=epoch, start_offset=START, batches=batches)
    epoch = track.state.checkpoint_epoch
    start = draw(st.sampled_from((None, track.state.window.start_offset)))
    delta = Delta(key=key, delta_index=index, checkpoint_epoch=epoch, start_offset=start, batches=batches)
    if index in track.used_delta_indices or draw(st.integers(0, 4)) == 0:
        state = advance_track(track, delta).state
        assert state is not None
        return checkpoint_of(state, epoch + 1)
    return delta


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
