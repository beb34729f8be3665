"""Replay of generations i to iii.

Generations i and ii are control records of one topic partition.
A checkpoint replaces a group's state; a delta with the checkpoint's epoch is applied to it; a delta with another epoch
is skipped. The start offset moves only over terminal batches, for no delta carries one. In generation ii each delta has
the offset of its group's record before it, so that a new leader finds the checkpoint without a scan; a copied log is
scanned, and each of these back offsets is compared.

Generation iii has checkpoints and deltas on a compacted state topic, in the order of the log. For every share partition
the newest checkpoint counts, with the deltas after it that carry its epoch. A checkpoint's tombstone removes the state;
the tombstones of its deltas follow, and those not yet written are pending. The delta index (0 to 255) is one more for
every delta, rolls over, and is never reset by a checkpoint. It only keeps the keys of deltas apart under compaction;
the log orders deltas. A coordinator may roll over before 255, and may extend its range when it reaches the end.

Example: a checkpoint of epoch 2 at start offset 110, a delta of epoch 2 with (110, 112, acknowledged), one of epoch 1
with (113, 119, acknowledged): delivery continues at 113, and the last delta is a violation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from acktrail.model.records import RecordAt, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition
from acktrail_copied_logs.drafts.draft_records import (
    Checkpoint,
    CheckpointRecord,
    ControlCheckpoint,
    ControlDelta,
    ControlRecord,
    Delta,
    DeltaTombstone,
    Rule,
    StrictReplay,
    Violation,
    batch_violations,
    overlay_state_batches,
    undoes_delivery,
    violations_of,
    window_violations,
)

HIGHEST_DELTA_INDEX: Final = 255


def replay_control_log(records: Iterable[RecordAt[ControlRecord]]) -> StrictReplay[GroupId, ControlCheckpoint]:
    """The state of every group with a checkpoint after `records`, which come in offset order. A state's `start_offset`
    is the checkpoint's own, its `end_offset` the highest recorded.

    A cleaner may have been there where a group's log does not begin with the checkpoint of epoch 1: then skipped
    checkpoint epochs are no violations, nor are deltas before a checkpoint of a later epoch.
    """
    records = [*records]
    superseded = _superseded(records)
    log = {record_at.offset: record_at.record for record_at in records}
    states: dict[GroupId, ControlCheckpoint] = {}
    firsts: dict[GroupId, ControlRecord] = {}
    newest: dict[tuple[GroupId, int], int] = {}
    violations: list[Violation] = []
    for record_at in records:
        record, group_id = record_at.record, record_at.record.group_id
        state, first = states.get(group_id), firsts.setdefault(group_id, record)
        is_void, before = record_at in superseded, newest.get((group_id, record.checkpoint_epoch))
        newest[group_id, record.checkpoint_epoch] = record_at.offset
        if isinstance(record, ControlCheckpoint):
            is_whole = isinstance(first, ControlCheckpoint) and first.checkpoint_epoch == 1
            rules = _broken_by_control_checkpoint(state, record, is_whole=is_whole)
            violations += violations_of(record_at, rules, group_id, f"checkpoint of epoch {record.checkpoint_epoch}")
            states[group_id] = record
            continue
        rules = _broken_by_change(state, record, is_void=is_void)
        violations += violations_of(record_at, rules, group_id, f"delta of epoch {record.checkpoint_epoch}")
        broken = None if is_void and before is None else _broken_link(log, record_at.offset, record, before)
        if broken is not None:
            violations += violations_of(record_at, [Rule.CHAIN_UNBROKEN], group_id, f"broken: {broken}")
        if state is not None and record.checkpoint_epoch == state.checkpoint_epoch:
            states[group_id] = apply_control_delta(state, record)
    return StrictReplay(states=states, violations=tuple(violations))


def _superseded(records: Sequence[RecordAt[Any]]) -> set[RecordAt[Any]]:
    """The deltas before a checkpoint of a later epoch, or before a removal: a cleaner may have taken the checkpoint
    that they belong to, and they count for nothing."""
    following: dict[SharePartition | GroupId, float] = {}
    found = set[RecordAt[Any]]()
    for record_at in reversed(records):
        record = record_at.record
        subject = record.group_id if isinstance(record, ControlCheckpoint | ControlDelta) else record.key
        if isinstance(record, ControlCheckpoint | Checkpoint):
            following[subject] = record.checkpoint_epoch
        elif isinstance(record, Tombstone):
            following[subject] = math.inf
        elif isinstance(record, ControlDelta | Delta) and record.checkpoint_epoch < following.get(subject, -1):
            found.add(record_at)
    return found


def apply_control_delta(state: ControlCheckpoint, delta: ControlDelta) -> ControlCheckpoint:
    """`state` with a delta of its epoch applied; the end offset grows with the delta's batches."""
    return replace(
        state,
        end_offset=max([state.end_offset, *(batch.last_offset + 1 for batch in delta.batches)]),
        batches=overlay_state_batches(state.batches, delta.batches, state.start_offset),
    )


def _broken_by_control_checkpoint(
    state: ControlCheckpoint | None, record: ControlCheckpoint, *, is_whole: bool
) -> Iterator[Rule]:
    # Epochs of these generations start at 1 and grow by one; none is specified after 65,535: a violation.
    step = record.checkpoint_epoch - (0 if state is None else state.checkpoint_epoch)
    if step < 1 or (is_whole and step > 1):
        yield Rule.CHECKPOINT_EPOCH_STEP
    yield from window_violations(record.start_offset, record.end_offset, record.batches)


def _broken_by_change(
    state: ControlCheckpoint | Checkpoint | None, record: ControlDelta | Delta, *, is_void: bool
) -> Iterator[Rule]:
    """The rules that a delta of generations i to iii breaks after `state`; None: no checkpoint is before it, which a
    delta `is_void` may lack."""
    if state is None:
        if not is_void:
            yield Rule.DELTA_HAS_CHECKPOINT
        yield from batch_violations(record.batches)
    elif record.checkpoint_epoch != state.checkpoint_epoch:
        yield Rule.DELTA_EPOCH_MATCHES
        yield from batch_violations(record.batches)
    else:
        yield from window_violations(state.start_offset, None, record.batches)
        if undoes_delivery(state.batches, record.batches):
            yield Rule.DELIVERY_NOT_UNDONE


def _broken_link(log: Mapping[int, ControlRecord], offset: int, delta: ControlDelta, before: int | None) -> str | None:
    """What is wrong with the back offset of the `delta` at `offset`, whose group has the record `before` as the newest
    one of its epoch. None: nothing, or it has no back offset (generation i)."""
    back = delta.back_offset
    if back is None or back == before:
        return None
    target = log.get(back)
    if back >= offset:
        return "BackOffset is not lower"
    if target is None:
        return f"{back} missing"
    if target.group_id != delta.group_id:
        return f"{back} belongs to another group"
    if target.checkpoint_epoch != delta.checkpoint_epoch:
        return "epoch differs from the checkpoint"
    return f"{back} skips {before}"


def is_delta_index_step(before: int | None, index: int) -> bool:
    """Whether `index` may follow `before`; None: it is the first of its share partition."""
    if index == 0:
        return before != 0
    return before is not None and index == before + 1 <= HIGHEST_DELTA_INDEX


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTrack:
    """What the records of one key left behind.

    `state` None: none yet, or removed (`is_deleted`). `last_epoch` is the newest checkpoint's, also after its removal;
    `last_delta_index` is the newest delta's, `range_end` the one after which the index last began again at 0 (the range
    may be extended, and never shrinks). `live_delta_indices` are the delta keys that hold a value, and
    `used_delta_indices` those used since the newest checkpoint.
    """

    state: Checkpoint | None = None
    is_deleted: bool = False
    last_epoch: int | None = None
    last_delta_index: int | None = None
    range_end: int | None = None
    live_delta_indices: frozenset[int] = frozenset()
    used_delta_indices: frozenset[int] = frozenset()

    @property
    def pending_delta_tombstones(self) -> tuple[int, ...]:
        """Indices of the deltas that a removal has still to take away, ascending."""
        return tuple(sorted(self.live_delta_indices)) if self.is_deleted else ()


_FRESH: Final = CheckpointTrack()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReplay:
    """The track of every key that has a record, and the violations in log order."""

    tracks: Mapping[SharePartition, CheckpointTrack]
    violations: tuple[Violation, ...]

    @property
    def states(self) -> dict[SharePartition, Checkpoint]:
        """The state of every share partition that has one."""
        return {key: track.state for key, track in self.tracks.items() if track.state is not None}


def replay_checkpoint_log(records: Iterable[RecordAt[CheckpointRecord]]) -> CheckpointReplay:
    """The track of every share partition after `records`, which come in log order within a state partition.

    A cleaner may have been in a state partition where an offset is missing. There skipped epochs are no violations, nor
    are deltas before a checkpoint of a later epoch or a removal; between two deltas after one checkpoint no index may
    be missing: only a record of a later epoch can take the place of one of them.
    """
    records = [*records]
    superseded, compacted = _superseded(records), _compacted(records)
    tracks: dict[SharePartition, CheckpointTrack] = {}
    homes: dict[SharePartition, int] = {}
    newest: dict[SharePartition, RecordAt[CheckpointRecord]] = {}
    violations: list[Violation] = []
    for record_at in records:
        record, key = record_at.record, record_at.record.key
        track, is_compacted = tracks.get(key, _FRESH), record_at.partition in compacted
        if isinstance(record, Delta):
            is_void = is_compacted and record_at in superseded
            rules = [*_broken_by_change(track.state, record, is_void=is_void)]
            rules += _broken_by_index(track, record.delta_index, is_compacted=is_compacted)
        else:
            rules = [*_broken_by_checkpoint(track, record, is_compacted=is_compacted)]
        if homes.setdefault(key, record_at.partition) != record_at.partition:
            rules.append(Rule.ONE_STATE_PARTITION_PER_KEY)
        violations += violations_of(record_at, rules, key, _described(record))
        tracks[key], newest[key] = advance_track(track, record), record_at
    for key, track in tracks.items():
        if left := track.pending_delta_tombstones:
            detail = f"no tombstone yet for delta indices {[*left]}"
            violations += violations_of(newest[key], [Rule.DELETION_COMPLETE], key, detail)
    return CheckpointReplay(tracks=tracks, violations=tuple(violations))


def _compacted(records: Sequence[RecordAt[Any]]) -> set[int]:
    """The state partitions in which an offset is missing."""
    counts = Counter(record_at.partition for record_at in records)
    newest = {record_at.partition: record_at.offset for record_at in records}
    return {partition for partition, count in counts.items() if count != newest[partition] + 1}


def advance_track(track: CheckpointTrack, record: CheckpointRecord) -> CheckpointTrack:
    """The track after one record of its key; a delta changes the state only with the epoch of its checkpoint."""
    match record:
        case Checkpoint():
            return replace(
                track,
                state=record,
                is_deleted=False,
                last_epoch=record.checkpoint_epoch,
                # A coordinator need not know the index from before a removal.
                range_end=track.last_delta_index if track.is_deleted else track.range_end,
                used_delta_indices=frozenset(),
            )
        case Tombstone():
            return replace(track, state=None, is_deleted=True, used_delta_indices=frozenset())
        case Delta():
            state = track.state
            if state is not None and record.checkpoint_epoch == state.checkpoint_epoch:
                start = state.start_offset if record.start_offset is None else record.start_offset
                batches = overlay_state_batches(state.batches, record.batches, start)
                state = replace(state, start_offset=start, batches=batches)
            return replace(
                track,
                state=state,
                last_delta_index=record.delta_index,
                range_end=track.range_end if record.delta_index else track.last_delta_index,
                live_delta_indices=track.live_delta_indices | {record.delta_index},
                used_delta_indices=track.used_delta_indices | {record.delta_index},
            )
        case DeltaTombstone():
            return replace(track, live_delta_indices=track.live_delta_indices - {record.delta_index})
        case _:
            assert_never(record)


def _broken_by_checkpoint(
    track: CheckpointTrack, record: Checkpoint | Tombstone | DeltaTombstone, *, is_compacted: bool
) -> Iterator[Rule]:
    if isinstance(record, Checkpoint):
        before = -1 if track.last_epoch is None else track.last_epoch
        expected = (0, before + 1) if track.is_deleted else (before + 1,)
        if record.checkpoint_epoch not in expected and not (is_compacted and record.checkpoint_epoch > before):
            yield Rule.CHECKPOINT_EPOCH_STEP
        if record.start_offset is None:
            yield Rule.CHECKPOINT_HAS_START
        yield from window_violations(record.start_offset, None, record.batches)
    elif isinstance(record, DeltaTombstone) and track.state is not None:
        yield Rule.DELETION_ORDER


def _broken_by_index(track: CheckpointTrack, index: int, *, is_compacted: bool) -> Iterator[Rule]:
    """The rules that the index of a delta breaks. It may begin again at 0 at the end of its range only, which is not
    known before the index did so once within an epoch."""
    last, end, is_first = track.last_delta_index, track.range_end, not track.used_delta_indices
    if index in track.used_delta_indices:
        yield Rule.DELTA_INDEX_NOT_REUSED
    if (is_compacted and (is_first or track.state is None)) or (index == 0 and last == end):
        return
    if not is_delta_index_step(last, index) or (index == 0 and end is not None and last is not None and last < end):
        yield Rule.DELTA_INDEX_STEP
    elif index == 0 and is_first and last not in (None, HIGHEST_DELTA_INDEX):
        yield Rule.DELTA_INDEX_NOT_RESET


def _described(record: CheckpointRecord) -> str:
    index = getattr(record, "delta_index", None)
    name = "checkpoint" if index is None else f"delta {index}"
    if isinstance(record, Checkpoint | Delta):
        return f"{name} of epoch {record.checkpoint_epoch}"
    return f"{name} tombstone"
