"""Records and states of the drafted generations as JSON, with the names of the shipped ones where the meaning is equal.

`snapshot_epoch` is the checkpoint epoch. Fields that a generation does not have are -1 for an epoch and null for the
delivery complete count; the topic id of a control record is null, since it names only its group and is stored on the
topic partition itself.
"""

from __future__ import annotations

from acktrail.drafts.checkpoint_log import CheckpointState
from acktrail.drafts.control_log import ControlState
from acktrail.drafts.draft_records import (
    Checkpoint,
    CheckpointTombstone,
    ControlCheckpoint,
    ControlDelta,
    Delta,
    DeltaTombstone,
    DraftSnapshot,
    DraftUpdate,
)
from acktrail.drafts.snapshot_log import DraftState
from acktrail.model.share_partition import GroupId
from acktrail.model.strict.offset_window import OffsetWindow
from acktrail.wire.dialects.batch_arrays import absent_if_none, batches_form
from acktrail.wire.raw_record import RawRecord
from acktrail.wire.state_key import key_form


def draft_content(record: object, raw: RawRecord) -> dict[str, object] | None:
    """The content of a drafted record; None for a record of a shipped release."""
    match record:
        case DraftSnapshot() | DraftUpdate():
            return _draft(record)
        case Checkpoint() | Delta() | CheckpointTombstone() | DeltaTombstone():
            return _checkpoint(record)
        case ControlCheckpoint() | ControlDelta():
            return _control(record, raw.state_partition)
        case _:
            return None


def draft_state_json(state: DraftState) -> dict[str, object]:
    """Generation iv, in the form of ``state_json``."""
    return {
        **key_form(state.key),
        "state_epoch": absent_if_none(state.state_epoch),
        "snapshot_epoch": state.snapshot_epoch,
        **_window(state.window),
    }


def checkpoint_state_json(state: CheckpointState) -> dict[str, object]:
    """Generation iii, in the form of ``state_json``."""
    return {
        **key_form(state.key),
        "state_epoch": -1,
        "snapshot_epoch": state.checkpoint_epoch,
        **_window(state.window),
    }


def control_state_json(state: ControlState, partition: int) -> dict[str, object]:
    """Generations ii and i, in the form of ``state_json``; `partition` is that of the log."""
    return {
        **_group(state.group_id, partition),
        "state_epoch": -1,
        "snapshot_epoch": state.checkpoint_epoch,
        **_window(state.window),
    }


def _window(window: OffsetWindow) -> dict[str, object]:
    return {
        "leader_epoch": -1,
        "start_offset": absent_if_none(window.start_offset),
        "delivery_complete_count": None,
        "batches": batches_form(window.batches),
    }


def _group(group_id: GroupId, partition: int) -> dict[str, object]:
    return {"group": group_id, "topic_id": None, "partition": partition}


def _draft(record: DraftSnapshot | DraftUpdate) -> dict[str, object]:
    return {
        "type": "snapshot" if isinstance(record, DraftSnapshot) else "update",
        **key_form(record.key),
        "snapshot_epoch": record.snapshot_epoch,
        "state_epoch": absent_if_none(record.state_epoch),
        "start_offset": absent_if_none(record.start_offset),
        "batches": batches_form(record.batches),
    }


def _checkpoint(record: Checkpoint | Delta | CheckpointTombstone | DeltaTombstone) -> dict[str, object]:
    index = {"delta_index": record.delta_index} if isinstance(record, Delta | DeltaTombstone) else {}
    if isinstance(record, CheckpointTombstone | DeltaTombstone):
        return {"type": "delta_tombstone" if index else "tombstone", **key_form(record.key), **index}
    return {
        "type": "delta" if index else "checkpoint",
        **key_form(record.key),
        **index,
        "checkpoint_epoch": record.checkpoint_epoch,
        "start_offset": absent_if_none(record.start_offset),
        "batches": batches_form(record.batches),
    }


def _control(record: ControlCheckpoint | ControlDelta, partition: int) -> dict[str, object]:
    form = {**_group(record.group_id, partition), "checkpoint_epoch": record.checkpoint_epoch}
    batches = batches_form(record.batches)
    if isinstance(record, ControlCheckpoint):
        offsets = {"start_offset": record.start_offset, "end_offset": record.end_offset}
        return {"type": "checkpoint", **form, **offsets, "batches": batches}
    back = {} if record.back_offset is None else {"back_offset": record.back_offset}
    return {"type": "delta", **form, **back, "batches": batches}
