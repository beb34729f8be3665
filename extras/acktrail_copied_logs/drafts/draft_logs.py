"""Replay of generations i to iii.

Generations i and ii are control records of one topic partition, scanned forwards or by chains backwards.
A checkpoint replaces a group's state; a delta with the checkpoint's epoch is applied to it; a delta with another epoch
is skipped. The start offset moves only over terminal batches, for no delta carries one. In generation ii the share
snapshot file says where each group's newest control record lies, so nothing has to be scanned: back offsets lead from
there, link by link, to the checkpoint.

Generation iii has checkpoints and deltas on a compacted state topic, in the order of the log. For every share partition
the newest checkpoint counts, with the deltas after it that carry its epoch. A checkpoint's tombstone removes the state;
the tombstones of its deltas follow, and those not yet written are pending. The delta index (0 to 255) is one more for
every delta, rolls over, and is never reset by a checkpoint. It only keeps the keys of deltas apart under compaction;
the log orders deltas. A coordinator may roll over before 255, and may extend its range when it reaches the end.

Example: a checkpoint of epoch 2 at start offset 110, a delta of epoch 2 with (110, 112, acknowledged), one of epoch 1
with (113, 119, acknowledged): delivery continues at 113, and the last delta is a violation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

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
    violations_of,
    window_violations,
)

HIGHEST_DELTA_INDEX: Final = 255


def replay_control_log(
    records: Iterable[RecordAt[ControlRecord]], *, cleaned: bool = False
) -> StrictReplay[GroupId, ControlCheckpoint]:
    """The state of every group with a checkpoint after `records`, which come in offset order. A state's `start_offset`
    is the checkpoint's own, its `end_offset` the highest recorded.

    `cleaned`: a cleaner may have been there. Then a group's log may begin in the middle of an epoch: deltas before its
    first checkpoint and skipped checkpoint epochs are no violations.
    """
    states: dict[GroupId, ControlCheckpoint] = {}
    violations: list[Violation] = []
    for record_at in records:
        record, state = record_at.record, states.get(record_at.record.group_id)
        kind = "checkpoint" if isinstance(record, ControlCheckpoint) else "delta"
        rules = _broken_rules(state, record, cleaned=cleaned)
        violations += violations_of(record_at, rules, record.group_id, f"{kind} of epoch {record.checkpoint_epoch}")
        if isinstance(record, ControlCheckpoint):
            states[record.group_id] = record
        elif state is not None and record.checkpoint_epoch == state.checkpoint_epoch:
            states[record.group_id] = apply_control_delta(state, record)
    return StrictReplay(states=states, violations=tuple(violations))


def apply_control_delta(state: ControlCheckpoint, delta: ControlDelta) -> ControlCheckpoint:
    """`state` with a delta of its epoch applied; the end offset grows with the delta's batches."""
    return replace(
        state,
        end_offset=max([state.end_offset, *(batch.last_offset + 1 for batch in delta.batches)]),
        batches=overlay_state_batches(state.batches, delta.batches, state.start_offset),
    )


def _broken_rules(state: ControlCheckpoint | None, record: ControlRecord, *, cleaned: bool) -> Iterator[Rule]:
    if isinstance(record, ControlCheckpoint):
        # Epochs of these generations start at 1 and grow by one; none is specified after 65,535: a violation.
        step = record.checkpoint_epoch - (0 if state is None else state.checkpoint_epoch)
        if step != 1 and not (cleaned and step > 0):
            yield Rule.CHECKPOINT_EPOCH_STEP
        yield from window_violations(record.start_offset, record.end_offset, record.batches)
        return
    if state is None and not cleaned:
        yield Rule.DELTA_HAS_CHECKPOINT
    elif state is not None and record.checkpoint_epoch != state.checkpoint_epoch:
        yield Rule.DELTA_EPOCH_MATCHES
    yield from batch_violations(record.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReplay:
    """One group's recovery. `offsets` were met on the way back, newest first; `broken` says what stopped it, None: it
    ends at its checkpoint. `state` is that of a forward scan where the chain is broken; None: that met no checkpoint
    either."""

    offsets: tuple[int, ...]
    broken: str | None
    state: ControlCheckpoint | None
    violations: tuple[Violation, ...]


def head_index(records: Iterable[RecordAt[ControlRecord]]) -> dict[GroupId, int]:
    """The share snapshot file's contents: each group's newest control record, for records in offset order."""
    return {record_at.record.group_id: record_at.offset for record_at in records}


def _walk_back(log: Mapping[int, ControlRecord], group_id: GroupId, head: int) -> tuple[tuple[int, ...], str | None]:
    """Follow the back offsets of `group_id` from `head`, by offset in `log`, to their checkpoint: those met, and what
    stopped it. Every back offset must be lower than its record's own offset, so the walk ends for any log."""
    offsets: list[int] = []
    broken = _missing(log, group_id, head)
    offset, epoch = head, log[head].checkpoint_epoch if broken is None else 0
    while broken is None:
        record = log[offset]
        offsets.append(offset)
        if record.checkpoint_epoch != epoch:
            broken = "epoch differs from the checkpoint"
        elif isinstance(record, ControlCheckpoint):
            break
        elif record.back_offset is None:
            broken = f"{offset} has no BackOffset"
        elif record.back_offset >= offset:
            broken = "BackOffset is not lower"
        else:
            offset = record.back_offset
            broken = _missing(log, group_id, offset)
    return tuple(offsets), broken


def _missing(log: Mapping[int, ControlRecord], group_id: GroupId, offset: int) -> str | None:
    record = log.get(offset)
    if record is None:
        return f"{offset} missing"
    return None if record.group_id == group_id else f"{offset} belongs to another group"


def replay_back_chains(
    records: Sequence[RecordAt[ControlRecord]], heads: Mapping[GroupId, int]
) -> dict[GroupId, ChainReplay]:
    """Every group's state by its chain; where a chain is broken, by a forward scan, with a violation."""
    log = {record_at.offset: record_at.record for record_at in records}
    partition = records[0].partition if records else 0
    scan = replay_control_log(records, cleaned=True)
    replays = {}
    for group_id, head in heads.items():
        offsets, broken = _walk_back(log, group_id, head)
        linked = [RecordAt(partition=partition, offset=offset, record=log[offset]) for offset in reversed(offsets)]
        place = {"partition": partition, "offset": head}
        found = Violation(rule=Rule.CHAIN_UNBROKEN, subject=group_id, detail=f"broken: {broken}", **place)
        state = (scan if broken else replay_control_log(linked)).states.get(group_id)
        violations = (found,) if broken else ()
        replays[group_id] = ChainReplay(offsets=offsets, broken=broken, state=state, violations=violations)
    return replays


def is_delta_index_step(before: int | None, index: int) -> bool:
    """Whether `index` may follow `before`; None: it is the first of its share partition."""
    if index == 0:
        return before != 0
    return before is not None and index == before + 1 <= HIGHEST_DELTA_INDEX


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTrack:
    """What the records of one key left behind.

    `state` None: none yet, or removed (`is_deleted`). `last_epoch` is the newest checkpoint's, also after its removal;
    `last_delta_index` is the newest delta's. `live_delta_indices` are the delta keys that hold a value, and
    `used_delta_indices` those used since the newest checkpoint.
    """

    state: Checkpoint | None = None
    is_deleted: bool = False
    last_epoch: int | None = None
    last_delta_index: int | None = None
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


def replay_checkpoint_log(
    records: Iterable[RecordAt[CheckpointRecord]], *, compacted: bool = False
) -> CheckpointReplay:
    """The track of every share partition after `records`, which come in log order within a state partition.

    `compacted`: a cleaner may have been there. Then skipped epochs and indices are no violations, nor is a delta that a
    later checkpoint makes void: the cleaner took the checkpoint it belonged to.
    """
    tracks: dict[SharePartition, CheckpointTrack] = {}
    homes: dict[SharePartition, int] = {}
    newest: dict[SharePartition, RecordAt[CheckpointRecord]] = {}
    violations: list[Violation] = []
    for record_at in records:
        record, key = record_at.record, record_at.record.key
        track = tracks.get(key, _FRESH)
        rules = [*_broken_by_checkpoint(track, record, compacted=compacted)]
        if homes.setdefault(key, record_at.partition) != record_at.partition:
            rules.append(Rule.ONE_STATE_PARTITION_PER_KEY)
        violations += violations_of(record_at, rules, key, _described(record))
        tracks[key], newest[key] = advance_track(track, record), record_at
    if compacted:
        known = {key for key, track in tracks.items() if track.state is not None or track.is_deleted}
        violations = [v for v in violations if v.rule is not Rule.DELTA_HAS_CHECKPOINT or v.subject not in known]
    for key, track in tracks.items():
        if left := track.pending_delta_tombstones:
            detail = f"no tombstone yet for delta indices {[*left]}"
            violations += violations_of(newest[key], [Rule.DELETION_COMPLETE], key, detail)
    return CheckpointReplay(tracks=tracks, violations=tuple(violations))


def advance_track(track: CheckpointTrack, record: CheckpointRecord) -> CheckpointTrack:
    """The track after one record of its key; a delta changes the state only with the epoch of its checkpoint."""
    match record:
        case Checkpoint():
            epoch = record.checkpoint_epoch
            return replace(track, state=record, is_deleted=False, last_epoch=epoch, used_delta_indices=frozenset())
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
                live_delta_indices=track.live_delta_indices | {record.delta_index},
                used_delta_indices=track.used_delta_indices | {record.delta_index},
            )
        case DeltaTombstone():
            return replace(track, live_delta_indices=track.live_delta_indices - {record.delta_index})
        case _:
            assert_never(record)


def _broken_by_checkpoint(track: CheckpointTrack, record: CheckpointRecord, *, compacted: bool) -> Iterator[Rule]:
    if isinstance(record, Checkpoint):
        before = -1 if track.last_epoch is None else track.last_epoch
        expected = (0, before + 1) if track.is_deleted else (before + 1,)
        if record.checkpoint_epoch not in expected and not (compacted and record.checkpoint_epoch > before):
            yield Rule.CHECKPOINT_EPOCH_STEP
        if record.start_offset is None:
            yield Rule.CHECKPOINT_HAS_START
        yield from window_violations(record.start_offset, None, record.batches)
    elif isinstance(record, Delta):
        yield from _broken_by_delta(track, record, compacted=compacted)
    elif isinstance(record, DeltaTombstone) and track.state is not None:
        yield Rule.DELETION_ORDER


def _broken_by_delta(track: CheckpointTrack, record: Delta, *, compacted: bool) -> Iterator[Rule]:
    if track.state is None:
        yield Rule.DELTA_HAS_CHECKPOINT
    elif record.checkpoint_epoch != track.state.checkpoint_epoch:
        yield Rule.DELTA_EPOCH_MATCHES
    if not compacted and not is_delta_index_step(track.last_delta_index, record.delta_index):
        yield Rule.DELTA_INDEX_STEP
    if record.delta_index in track.used_delta_indices:
        yield Rule.DELTA_INDEX_NOT_REUSED
    yield from batch_violations(record.batches)


def _described(record: CheckpointRecord) -> str:
    index = getattr(record, "delta_index", None)
    name = "checkpoint" if index is None else f"delta {index}"
    if isinstance(record, Checkpoint | Delta):
        return f"{name} of epoch {record.checkpoint_epoch}"
    return f"{name} tombstone"
