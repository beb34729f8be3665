"""Fencing by state epoch, and what an initialise writes (Kafka: ``ShareCoordinatorShard``)."""

from __future__ import annotations

from acktrail.model.share_partition import SharePartition
from acktrail_drafts.draft_records import DraftSnapshot


def is_fenced(recorded_state_epoch: int, requested_state_epoch: int) -> bool:
    """Whether a Write, Initialize or Delete is refused (FENCED_STATE_EPOCH, 124): its state epoch is older."""
    return requested_state_epoch < recorded_state_epoch


def initialising_snapshot(
    key: SharePartition, before: DraftSnapshot | None, *, state_epoch: int, start_offset: int | None
) -> DraftSnapshot:
    """The snapshot that an Initialize writes: the next snapshot epoch (0 when new), the start asked for, no batches.

    Nothing of the old batches is kept: what was acknowledged beyond the start offset is delivered again.
    """
    return DraftSnapshot(
        key=key,
        state_epoch=state_epoch,
        snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
        start_offset=start_offset,
        batches=(),
    )
