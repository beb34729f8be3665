"""Records as JSON objects with the field names of the founding documents.

Batches are read as by ``batch_json``.
"""

from __future__ import annotations

from acktrail.format.wire.primitives import none_if_absent
from acktrail.model.share_partition import GroupId, SharePartition
from acktrail_copied_logs.drafts.draft_records import Checkpoint, ControlCheckpoint, ControlDelta, ControlRecord, Delta
from acktrail_simulation.messages.batch_json import Fields, read_batches


def read_control_record(fields: Fields) -> ControlRecord:
    """A control record of generations ii and i: a checkpoint where there is an ``EndOffset``, else a delta."""
    group_id, epoch = GroupId(fields["GroupId"]), fields["CheckpointEpoch"]
    batches = read_batches(fields)
    if "EndOffset" in fields:
        return ControlCheckpoint(
            group_id=group_id,
            checkpoint_epoch=epoch,
            start_offset=fields["StartOffset"],
            end_offset=fields["EndOffset"],
            batches=batches,
        )
    back_offset = fields.get("BackOffset")
    return ControlDelta(group_id=group_id, checkpoint_epoch=epoch, back_offset=back_offset, batches=batches)


def read_checkpoint_record(fields: Fields, key: SharePartition) -> Checkpoint | Delta:
    """A record of generation iii for `key`: a delta where there is a ``DeltaIndex``, else a checkpoint."""
    epoch, start_offset, batches = fields["CheckpointEpoch"], _start_offset(fields), read_batches(fields)
    if "DeltaIndex" in fields:
        return Delta(
            key=key,
            delta_index=fields["DeltaIndex"],
            checkpoint_epoch=epoch,
            start_offset=start_offset,
            batches=batches,
        )
    return Checkpoint(key=key, checkpoint_epoch=epoch, start_offset=start_offset, batches=batches)


def _start_offset(fields: Fields) -> int | None:
    return none_if_absent(fields.get("StartOffset", -1))
