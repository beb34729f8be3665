"""Replay of generation iii: checkpoints and deltas on a compacted state topic, in the order of the log.

For every share partition the newest checkpoint counts, with the deltas after it that carry its epoch. A checkpoint's
tombstone removes the state; the tombstones of its deltas follow, and those not yet written are pending.

The delta index (0 to 255) is one more for every delta, rolls over, and is never reset by a checkpoint. It only keeps
the keys of deltas apart under compaction; the log orders deltas. A coordinator may roll over before 255, and may extend
its range when it reaches the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never

from acktrail.drafts.batch_merging import Merging, merge_state_batches
from acktrail.drafts.draft_records import Checkpoint, CheckpointRecord, CheckpointTombstone, Delta, DeltaTombstone
from acktrail.model.delivery import StateBatch
from acktrail.model.share_partition import SharePartition
from acktrail.model.strict.offset_window import OffsetWindow, effective_window
from acktrail.model.strict.violations import Violation

HIGHEST_DELTA_INDEX: Final = 255


class IndexStep(StrEnum):
    """What one step from an index to the next is."""

    OK = "ok"
    ROLLED_OVER_EARLY = "rolled_over_early"
    """Back to 0 before 255: legal, and the range's highest index is the one before."""
    INVALID_UINT8 = "invalid_uint8"
    INVALID_SKIP = "invalid_skip"
    INVALID_REGRESSION = "invalid_regression"
    INVALID_REUSE = "invalid_reuse"

    @property
    def is_valid(self) -> bool:
        return self in (IndexStep.OK, IndexStep.ROLLED_OVER_EARLY)


def delta_index_step(before: int | None, index: int) -> IndexStep:
    """What it is when `index` follows `before`; None: `index` is the first of its share partition."""
    if not 0 <= index <= HIGHEST_DELTA_INDEX:
        return IndexStep.INVALID_UINT8
    if before is None:
        return IndexStep.OK if index == 0 else IndexStep.INVALID_SKIP
    if index == before + 1 or (index, before) == (0, HIGHEST_DELTA_INDEX):
        return IndexStep.OK
    if index == before:
        return IndexStep.INVALID_REUSE
    if index == 0:
        return IndexStep.ROLLED_OVER_EARLY
    return IndexStep.INVALID_SKIP if index > before else IndexStep.INVALID_REGRESSION


def next_delta_index(last: int | None, highest: int | None = None) -> int:
    """The index of the next delta: one more than `last`, or 0 at the end of the range.

    `highest` is the highest index of a range that was seen to roll over early; None: 255.
    """
    if last is None:
        return 0
    end = HIGHEST_DELTA_INDEX if highest is None else highest
    return 0 if last == end or last >= HIGHEST_DELTA_INDEX else last + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """The state of a share partition. `start_offset` is as recorded; None: not initialised."""

    key: SharePartition
    checkpoint_epoch: int
    start_offset: int | None
    batches: tuple[StateBatch, ...]

    @property
    def window(self) -> OffsetWindow:
        """Where delivery continues; its end is a lower bound, since these records have no end offset."""
        return effective_window(self.start_offset, self.batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTrack:
    """What the records of one key left behind.

    `state` None: none yet, or removed (`is_deleted`). `last_delta_index` is the newest delta's, `highest_delta_index`
    the end of a range that rolled over early. `live_delta_indices` are the delta keys that hold a value, and
    `used_delta_indices` those used since the newest checkpoint. `last_epoch` is the newest checkpoint's, also after
    its removal.
    """

    state: CheckpointState | None = None
    is_deleted: bool = False
    last_epoch: int | None = None
    last_delta_index: int | None = None
    highest_delta_index: int | None = None
    live_delta_indices: frozenset[int] = frozenset()
    used_delta_indices: frozenset[int] = frozenset()

    @property
    def pending_delta_tombstones(self) -> tuple[int, ...]:
        """Indices of the deltas that a removal has still to take away, ascending."""
        return tuple(sorted(self.live_delta_indices)) if self.is_deleted else ()

    @property
    def next_delta_index(self) -> int:
        """The delta index that the coordinator uses next."""
        return next_delta_index(self.last_delta_index, self.highest_delta_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReplay:
    """The track of every key that has a record, the log offsets that were applied, and the violations in log order."""

    tracks: Mapping[SharePartition, CheckpointTrack]
    applied: tuple[tuple[int, int], ...]
    violations: tuple[Violation, ...]

    @property
    def states(self) -> dict[SharePartition, CheckpointState]:
        """The state of every share partition that has one."""
        return {key: track.state for key, track in self.tracks.items() if track.state is not None}


def advance_track(
    track: CheckpointTrack, record: CheckpointRecord, *, merging: Merging = Merging.OVERLAY
) -> CheckpointTrack:
    """The track after one record of its key."""
    match record:
        case Checkpoint():
            state = CheckpointState(
                key=record.key,
                checkpoint_epoch=record.checkpoint_epoch,
                start_offset=record.start_offset,
                batches=record.batches,
            )
            return replace(
                track,
                state=state,
                is_deleted=False,
                last_epoch=record.checkpoint_epoch,
                used_delta_indices=frozenset(),
            )
        case CheckpointTombstone():
            return replace(track, state=None, is_deleted=True, used_delta_indices=frozenset())
        case Delta():
            return _with_delta(track, record, merging)
        case DeltaTombstone():
            return replace(track, live_delta_indices=track.live_delta_indices - {record.delta_index})
        case _:
            assert_never(record)


def is_applied(track: CheckpointTrack, record: CheckpointRecord) -> bool:
    """Whether `record` changes the state of `track`: a delta only with the epoch of its checkpoint."""
    if isinstance(record, Delta):
        return track.state is not None and record.checkpoint_epoch == track.state.checkpoint_epoch
    return isinstance(record, Checkpoint)


def _with_delta(track: CheckpointTrack, delta: Delta, merging: Merging) -> CheckpointTrack:
    state = track.state
    if state is not None and is_applied(track, delta):
        start_offset = state.start_offset if delta.start_offset is None else delta.start_offset
        batches = merge_state_batches(merging, state.batches, delta.batches, start_offset)
        state = replace(state, start_offset=start_offset, batches=batches)
    return replace(
        track,
        state=state,
        last_delta_index=delta.delta_index,
        highest_delta_index=_highest(track, delta.delta_index),
        live_delta_indices=track.live_delta_indices | {delta.delta_index},
        used_delta_indices=track.used_delta_indices | {delta.delta_index},
    )


def _highest(track: CheckpointTrack, index: int) -> int | None:
    """A range is learnt where it rolls over early, and forgotten where it is seen to be longer."""
    if delta_index_step(track.last_delta_index, index) is IndexStep.ROLLED_OVER_EARLY:
        return track.last_delta_index
    longer = track.highest_delta_index is not None and index > track.highest_delta_index
    return None if longer else track.highest_delta_index
