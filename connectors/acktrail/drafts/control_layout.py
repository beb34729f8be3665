"""Generations ii and i: SHARE_CHECKPOINT and SHARE_DELTA, control records on the user's own topic partition.

A key is int16 version 0 and int16 type (5 checkpoint, 6 delta); a value is int16 version 0, string group id, uint16
checkpoint epoch, then start and end offset (checkpoint) or the back offset (delta of generation ii), then an int32
counted array of batches; not flexible. The documents print the value of the delta alone; that of the checkpoint, and
the version in front of both, follow the documents' pictures and Kafka's transaction markers.

Released brokers use control types 5 and 6 for KRaft: these dialects are for files, never for a live topic.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from acktrail.drafts.draft_records import ControlCheckpoint, ControlDelta, ControlRecord
from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.model.share_partition import GroupId
from acktrail.wire.dialects.batch_arrays import (
    UINT16,
    group_id_bytes,
    packed,
    read_batch_array,
    read_offset,
    read_version,
    write_batch_array,
)
from acktrail.wire.primitives import INT16, INT64, Reader

CHECKPOINT_TYPE: Final = 5
DELTA_TYPE: Final = 6

_VERSION: Final = 0


def _decode(key: bytes | None, value: bytes | None, *, chained: bool) -> ControlRecord:
    kind = _read_type(key)
    if value is None:
        raise MalformedRecord("null value of a control record", part="value", position=0)
    reader = Reader(value, "value")
    read_version(reader, (_VERSION,))
    group_id, epoch = GroupId(reader.string()), reader.integer(UINT16)
    if kind == CHECKPOINT_TYPE:
        record: ControlRecord = ControlCheckpoint(
            group_id=group_id,
            checkpoint_epoch=epoch,
            start_offset=read_offset(reader, "start offset"),
            end_offset=read_offset(reader, "end offset"),
            batches=read_batch_array(reader),
        )
    else:
        record = ControlDelta(
            group_id=group_id,
            checkpoint_epoch=epoch,
            back_offset=read_offset(reader, "back offset") if chained else None,
            batches=read_batch_array(reader),
        )
    reader.end()
    return record


def _encode(record: ControlRecord, *, chained: bool) -> tuple[bytes, bytes]:
    match record:
        case ControlCheckpoint():
            kind, middle = CHECKPOINT_TYPE, _offset(record.start_offset) + _offset(record.end_offset)
        case ControlDelta():
            kind, middle = DELTA_TYPE, _back_offset(record, chained=chained)
    value = b"".join(
        (
            INT16.pack(_VERSION),
            group_id_bytes(record.group_id),
            packed(UINT16, record.checkpoint_epoch, "checkpoint epoch"),
            middle,
            write_batch_array(record.batches),
        )
    )
    return INT16.pack(_VERSION) + INT16.pack(kind), value


decode_i = partial(_decode, chained=False)
"""The control record encoded in key and value by generation i, where no delta has a back offset.

UnsupportedRecord for an unknown version or control type; MalformedRecord, with the byte position, for anything else
that is not such a record: cut off, negative offsets, bytes after the message, a null value.
"""

decode_ii = partial(_decode, chained=True)
"""The control record encoded in key and value by generation ii, where every delta has a back offset; as `decode_i`."""

encode_i = partial(_encode, chained=False)
"""Key and value of a record of generation i; ValueError for a back offset or a number that does not fit."""

encode_ii = partial(_encode, chained=True)
"""Key and value of a record of generation ii; ValueError for a missing back offset or a number that does not fit."""


def _read_type(key: bytes | None) -> int:
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    reader = Reader(key, "key")
    read_version(reader, (_VERSION,))
    kind = reader.integer(INT16)
    if kind not in (CHECKPOINT_TYPE, DELTA_TYPE):
        raise UnsupportedRecord("unknown control record type", part="key", number=kind)
    reader.end()
    return kind


def _offset(number: int) -> bytes:
    if number < 0:
        raise ValueError(f"offset {number} is negative")
    return packed(INT64, number, "offset")


def _back_offset(record: ControlDelta, *, chained: bool) -> bytes:
    if (record.back_offset is not None) != chained:
        raise ValueError("a delta has a back offset in generation ii, and there alone")
    return b"" if record.back_offset is None else _offset(record.back_offset)
