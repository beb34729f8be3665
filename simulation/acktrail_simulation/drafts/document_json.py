"""Records as JSON objects with the field names of the founding documents.

Batches are read as by ``batch_json``. Positions in errors are not byte positions here: the message names the field.
"""

from __future__ import annotations

from acktrail.errors import InputError
from acktrail.format.wire.primitives import none_if_absent
from acktrail.model.share_partition import GroupId, SharePartition
from acktrail_drafts.draft_records import (
    Checkpoint,
    ControlCheckpoint,
    ControlDelta,
    ControlRecord,
    Delta,
    DraftSnapshot,
    DraftUpdate,
)
from acktrail_simulation.messages.batch_json import Fields, number, one_of, read_batches


def read_control_record(fields: Fields) -> ControlRecord:
    """A control record of generations ii and i: a checkpoint where there is an ``EndOffset``, else a delta.

    Raises:
        InputError: as for `read_batches`.
    """
    group_id, epoch = GroupId(_text(fields, "GroupId")), _integer(fields, "CheckpointEpoch")
    batches = read_batches(fields)
    if "EndOffset" in fields:
        return ControlCheckpoint(
            group_id=group_id,
            checkpoint_epoch=epoch,
            start_offset=_integer(fields, "StartOffset"),
            end_offset=_integer(fields, "EndOffset"),
            batches=batches,
        )
    back_offset = _integer(fields, "BackOffset") if "BackOffset" in fields else None
    return ControlDelta(group_id=group_id, checkpoint_epoch=epoch, back_offset=back_offset, batches=batches)


def read_checkpoint_record(fields: Fields, key: SharePartition) -> Checkpoint | Delta:
    """A record of generation iii for `key`: a delta where there is a ``DeltaIndex``, else a checkpoint.

    Raises:
        InputError: as for `read_batches`.
    """
    epoch, start_offset, batches = _integer(fields, "CheckpointEpoch"), _start_offset(fields), read_batches(fields)
    if "DeltaIndex" in fields:
        return Delta(
            key=key,
            delta_index=_integer(fields, "DeltaIndex"),
            checkpoint_epoch=epoch,
            start_offset=start_offset,
            batches=batches,
        )
    return Checkpoint(key=key, checkpoint_epoch=epoch, start_offset=start_offset, batches=batches)


def read_draft_record(fields: Fields, key: SharePartition, *, update: bool) -> DraftSnapshot | DraftUpdate:
    """A record of generation iv for `key`; without ``StateEpoch`` it is one of the JSON schemas.

    Raises:
        InputError: as for `read_batches`.
    """
    record = DraftUpdate if update else DraftSnapshot
    return record(
        key=key,
        state_epoch=_integer(fields, "StateEpoch") if "StateEpoch" in fields else None,
        snapshot_epoch=_integer(fields, "SnapshotEpoch"),
        start_offset=_start_offset(fields),
        batches=read_batches(fields),
    )


def _start_offset(fields: Fields) -> int | None:
    return _optional(fields, "StartOffset")


def _optional(fields: Fields, name: str) -> int | None:
    return none_if_absent(_integer(fields, name)) if name in fields else None


def _integer(fields: Fields, name: str) -> int:
    return number(one_of(fields, (name,)), name)


def _text(fields: Fields, name: str) -> str:
    value = one_of(fields, (name,))
    if not isinstance(value, str):
        raise InputError(f"{name} is no string")
    return value
