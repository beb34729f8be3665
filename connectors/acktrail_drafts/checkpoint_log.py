"""Replay of generation iii: checkpoints and deltas on a compacted state topic, in the order of the log.

For every share partition the newest checkpoint counts, with the deltas after it that carry its epoch. A checkpoint's
tombstone removes the state; the tombstones of its deltas follow, and those not yet written are pending.

The delta index (0 to 255) is one more for every delta, rolls over, and is never reset by a checkpoint. It only keeps
the keys of deltas apart under compaction; the log orders deltas. A coordinator may roll over before 255, and may extend
its range when it reaches the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, assert_never

from acktrail.model.records import RecordAt, Tombstone
from acktrail.model.share_partition import SharePartition
from acktrail_drafts.draft_records import (
    Checkpoint,
    CheckpointRecord,
    Delta,
    DeltaTombstone,
    Rule,
    Violation,
    batch_violations,
    overlay_state_batches,
    violations_of,
    window_violations,
)

HIGHEST_DELTA_INDEX: Final = 255


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
        rules = [*_broken_rules(track, record, compacted=compacted)]
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


def _broken_rules(track: CheckpointTrack, record: CheckpointRecord, *, compacted: bool) -> Iterator[Rule]:
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
