"""Generation iii: ShareCheckpoint and ShareDelta on a compacted ``__share_group_state``.

A key is int16 version, string group id, 16-byte topic id, int32 partition and, for a delta, uint8 delta index. The
document prints version 0 for both although it uses the version to distinguish them: a delta is written as version 1
and read as either. A value is int16 version 0, uint16 checkpoint epoch, int64 start offset (-1 not updated) and an
int32 counted array of batches; not flexible. A null value is a tombstone of its key.
"""

from __future__ import annotations

from typing import Final

from acktrail.drafts.draft_records import Checkpoint, CheckpointRecord, CheckpointTombstone, Delta, DeltaTombstone
from acktrail.errors import MalformedRecord
from acktrail.model.share_partition import GroupId, SharePartition, topic_id_bytes, topic_id_text
from acktrail.wire.dialects.batch_arrays import (
    UINT8,
    UINT16,
    absent_if_none,
    end_of_message,
    group_id_bytes,
    none_if_absent,
    packed,
    read_batch_array,
    read_version,
    write_batch_array,
)
from acktrail.wire.primitives import INT16, INT32, INT64, read_bytes, read_integer, read_string

__all__ = ["decode", "encode"]

_CHECKPOINT_VERSION: Final = 0
_DELTA_VERSION: Final = 1
_VALUE_VERSION: Final = 0
_TOPIC_ID_BYTES: Final = 16


def decode(key: bytes | None, value: bytes | None) -> CheckpointRecord:
    """The record encoded in a key and a value.

    Raises:
        UnsupportedRecord: for an unknown version of key or value.
        MalformedRecord: for bytes that are not such a record, with the byte position.
    """
    share_partition, delta_index = _read_key(key)
    if value is None:
        if delta_index is None:
            return CheckpointTombstone(key=share_partition)
        return DeltaTombstone(key=share_partition, delta_index=delta_index)
    return _read_value(share_partition, delta_index, value)


def encode(record: CheckpointRecord) -> tuple[bytes, bytes | None]:
    """Key and value of `record`.

    Raises:
        ValueError: for a number that does not fit its field (a delta index above 255, an epoch above 65,535).
    """
    match record:
        case CheckpointTombstone():
            return _key_bytes(record.key, None), None
        case DeltaTombstone():
            return _key_bytes(record.key, record.delta_index), None
        case Checkpoint():
            return _key_bytes(record.key, None), _value_bytes(record)
        case Delta():
            return _key_bytes(record.key, record.delta_index), _value_bytes(record)


def _read_key(key: bytes | None) -> tuple[SharePartition, int | None]:
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    version, position = read_version(key, "key", (_CHECKPOINT_VERSION, _DELTA_VERSION))
    group_id, position = read_string(key, position, "key")
    topic_id, position = read_bytes(key, position, _TOPIC_ID_BYTES, "key")
    partition, position = read_integer(key, position, INT32, "key")
    delta_index = None
    if version == _DELTA_VERSION or position < len(key):
        delta_index, position = read_integer(key, position, UINT8, "key")
    end_of_message(key, position, "key")
    share_partition = SharePartition(group_id=GroupId(group_id), topic_id=topic_id_text(topic_id), partition=partition)
    return share_partition, delta_index


def _read_value(share_partition: SharePartition, delta_index: int | None, value: bytes) -> Checkpoint | Delta:
    _, position = read_version(value, "value", (_VALUE_VERSION,))
    epoch, position = read_integer(value, position, UINT16, "value")
    start_offset, position = read_integer(value, position, INT64, "value")
    batches, position = read_batch_array(value, position)
    end_of_message(value, position, "value")
    if delta_index is None:
        return Checkpoint(
            key=share_partition, checkpoint_epoch=epoch, start_offset=none_if_absent(start_offset), batches=batches
        )
    return Delta(
        key=share_partition,
        delta_index=delta_index,
        checkpoint_epoch=epoch,
        start_offset=none_if_absent(start_offset),
        batches=batches,
    )


def _key_bytes(share_partition: SharePartition, delta_index: int | None) -> bytes:
    return b"".join(
        (
            INT16.pack(_CHECKPOINT_VERSION if delta_index is None else _DELTA_VERSION),
            group_id_bytes(share_partition.group_id),
            topic_id_bytes(share_partition.topic_id),
            packed(INT32, share_partition.partition, "partition"),
            b"" if delta_index is None else packed(UINT8, delta_index, "delta index"),
        )
    )


def _value_bytes(record: Checkpoint | Delta) -> bytes:
    return b"".join(
        (
            INT16.pack(_VALUE_VERSION),
            packed(UINT16, record.checkpoint_epoch, "checkpoint epoch"),
            packed(INT64, absent_if_none(record.start_offset), "start offset"),
            write_batch_array(record.batches),
        )
    )
