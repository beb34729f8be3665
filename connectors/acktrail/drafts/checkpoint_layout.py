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
from acktrail.model.share_partition import SharePartition, topic_id_bytes
from acktrail.wire.dialects.batch_arrays import (
    UINT8,
    UINT16,
    absent_if_none,
    group_id_bytes,
    none_if_absent,
    packed,
    read_batch_array,
    read_version,
    write_batch_array,
)
from acktrail.wire.primitives import INT16, INT32, INT64, Reader
from acktrail.wire.state_key import read_share_partition

_CHECKPOINT_VERSION: Final = 0
_DELTA_VERSION: Final = 1
_VALUE_VERSION: Final = 0


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
    reader = Reader(key, "key")
    version = read_version(reader, (_CHECKPOINT_VERSION, _DELTA_VERSION))
    share_partition = read_share_partition(reader)
    delta_index = reader.integer(UINT8) if version == _DELTA_VERSION or reader.left else None
    reader.end()
    return share_partition, delta_index


def _read_value(share_partition: SharePartition, delta_index: int | None, value: bytes) -> Checkpoint | Delta:
    reader = Reader(value, "value")
    read_version(reader, (_VALUE_VERSION,))
    epoch, start_offset = reader.integer(UINT16), none_if_absent(reader.integer(INT64))
    batches = read_batch_array(reader)
    reader.end()
    if delta_index is None:
        return Checkpoint(key=share_partition, checkpoint_epoch=epoch, start_offset=start_offset, batches=batches)
    return Delta(
        key=share_partition,
        delta_index=delta_index,
        checkpoint_epoch=epoch,
        start_offset=start_offset,
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
