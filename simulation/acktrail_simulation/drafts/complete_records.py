"""The complete record that a writer may write instead of the partial one that led to a state, by generation."""

from __future__ import annotations

from dataclasses import replace

from acktrail.model.batches import StateBatch, prune_state_batches
from acktrail_copied_logs.drafts.draft_records import Checkpoint, ControlCheckpoint, DraftSnapshot, DraftUpdate


def live_batches(state: Checkpoint | ControlCheckpoint | DraftSnapshot | DraftUpdate) -> tuple[StateBatch, ...]:
    """The batches from the first unfinished offset on; none: nothing is in flight."""
    return prune_state_batches(state.batches, state.first_unfinished_offset)


def checkpoint_of(state: Checkpoint, checkpoint_epoch: int) -> Checkpoint:
    """Generation iii: the checkpoint of `state`."""
    start, batches = state.first_unfinished_offset, live_batches(state)
    return replace(state, checkpoint_epoch=checkpoint_epoch, start_offset=start, batches=batches)


def control_checkpoint_of(state: ControlCheckpoint, checkpoint_epoch: int) -> ControlCheckpoint:
    """Generations i and ii: the checkpoint of `state`."""
    start, batches = state.first_unfinished_offset, live_batches(state)
    assert start is not None
    return replace(state, checkpoint_epoch=checkpoint_epoch, start_offset=start, batches=batches)


def snapshot_of(state: DraftSnapshot | DraftUpdate, snapshot_epoch: int) -> DraftSnapshot:
    """Generation iv: the snapshot of `state`."""
    return DraftSnapshot(
        key=state.key,
        state_epoch=state.state_epoch,
        snapshot_epoch=snapshot_epoch,
        start_offset=state.first_unfinished_offset,
        batches=live_batches(state),
    )
