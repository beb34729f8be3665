"""Records and write requests as JSON objects with the field names of the founding documents.

Batches are read as by ``batch_json``. Positions in errors are not byte positions here: the message names the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from acktrail.errors import InputError
from acktrail.format.wire.primitives import none_if_absent
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_drafts.draft_records import (
    Checkpoint,
    ControlCheckpoint,
    ControlDelta,
    ControlRecord,
    Delta,
    DraftSnapshot,
    DraftUpdate,
)
from acktrail_simulation.coordinator.state_write import StateWrite
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


def read_head_index(fields: Fields) -> dict[GroupId, int]:
    """Generation ii's share snapshot file, as an object from group id to the offset of its newest control record.

    The document prints no contents; this is the least that does what it says.

    Raises:
        InputError: for an offset that is no integer.
    """
    return {GroupId(group): _integer(fields, group) for group in fields}


def read_write_request(fields: Fields) -> tuple[StateWrite, ...]:
    """The writes of a ``WriteShareGroupStateRequest``, one share partition a request (generation iii and the example
    tables) or batched under ``Topics`` and ``Partitions`` (generation iv and shipped).

    Raises:
        InputError: as for `read_batches`, and for lists that are none.
    """
    group_id = GroupId(_text(fields, "GroupId"))
    if "Topics" not in fields:
        return (_write(group_id, fields, fields),)
    return tuple(
        _write(group_id, topic, partition)
        for topic in _objects(fields, "Topics")
        for partition in _objects(topic, "Partitions")
    )


def _write(group_id: GroupId, topic: Fields, partition: Fields) -> StateWrite:
    return StateWrite(
        key=SharePartition(
            group_id=group_id,
            topic_id=TopicId(_text(topic, "TopicId")),
            partition=_integer(partition, "Partition"),
        ),
        state_epoch=_integer(partition, "StateEpoch") if "StateEpoch" in partition else None,
        start_offset=_start_offset(partition),
        batches=read_batches(partition),
        leader_epoch=_optional(partition, "LeaderEpoch"),
        delivery_complete_count=_optional(partition, "DeliveryCompleteCount"),
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


def _objects(fields: Fields, name: str) -> tuple[Fields, ...]:
    found = one_of(fields, (name,))
    if not isinstance(found, Sequence) or not all(isinstance(entry, Mapping) for entry in found):
        raise InputError(f"{name} is no list of objects")
    return tuple(found)
