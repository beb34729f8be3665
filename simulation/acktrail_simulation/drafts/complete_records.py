"""The complete record that a writer may write instead of the partial one that led to a state, by generation."""

from __future__ import annotations

from acktrail_copied_logs.drafts.draft_records import Checkpoint, ControlCheckpoint, DraftSnapshot, DraftUpdate


def checkpoint_of(state: Checkpoint, checkpoint_epoch: int) -> Checkpoint:
    """Generation iii: the checkpoint of `state`."""
    window = state.window
    return Checkpoint(
        key=state.key,
        checkpoint_epoch=checkpoint_epoch,
        start_offset=window.start_offset,
        batches=window.batches,
    )


def control_checkpoint_of(state: ControlCheckpoint, checkpoint_epoch: int) -> ControlCheckpoint:
    """Generations i and ii: the checkpoint of `state`."""
    window = state.window
    return ControlCheckpoint(
        group_id=state.group_id,
        checkpoint_epoch=checkpoint_epoch,
        start_offset=state.start_offset if window.start_offset is None else window.start_offset,
        end_offset=state.end_offset if window.end_offset is None else window.end_offset,
        batches=window.batches,
    )


def snapshot_of(state: DraftSnapshot | DraftUpdate, snapshot_epoch: int) -> DraftSnapshot:
    """Generation iv: the snapshot of `state`."""
    window = state.window
    return DraftSnapshot(
        key=state.key,
        state_epoch=state.state_epoch,
        snapshot_epoch=snapshot_epoch,
        start_offset=window.start_offset,
        batches=window.batches,
    )
