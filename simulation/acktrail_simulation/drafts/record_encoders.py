"""The bytes of records in the dialects of the drafts: what the writers of the drafts would have put into their logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from struct import Struct
from typing import Any, Final

from acktrail.format.wire.primitives import (
    INT16,
    INT32,
    INT64,
    UINT16,
    absent_if_none,
    packed,
    write_compact_batch_array,
)
from acktrail.format.wire.state_record import SNAPSHOT_TYPE, UPDATE_TYPE, encode_key
from acktrail.model.batches import StateBatch
from acktrail.model.records import Tombstone
from acktrail.model.share_partition import topic_id_bytes
from acktrail_copied_logs.drafts.draft_records import (
    Checkpoint,
    CheckpointRecord,
    ControlCheckpoint,
    ControlRecord,
    Delta,
    DraftRecord,
    DraftSnapshot,
)

_UINT8: Final = Struct(">B")
_UINT32: Final = Struct(">I")
_VERSION: Final = INT16.pack(0)
_DELTA_VERSION: Final = INT16.pack(1)
_BATCH: Final = (
    (Struct(">q"), "first_offset"),
    (Struct(">q"), "last_offset"),
    (Struct(">b"), "delivery_state"),
    (Struct(">h"), "delivery_count"),
)


def encode_in(name: str, record: Any) -> tuple[bytes, bytes | None]:
    """Key and value of `record` in the dialect called `name`.

    Raises:
        ValueError: for a field or number that the layout cannot hold.
    """
    return _ENCODERS[name](record)


def _group_id(group_id: str) -> bytes:
    raw = group_id.encode()
    return packed(INT16, len(raw), "length of the group id") + raw


def _batches(batches: tuple[StateBatch, ...]) -> bytes:
    fields = (packed(kind, getattr(batch, name), name) for batch in batches for kind, name in _BATCH)
    return packed(INT32, len(batches), "number of batches") + b"".join(fields)


def _offset(number: int) -> bytes:
    if number < 0:
        raise ValueError(f"offset {number} is negative")
    return packed(INT64, number, "offset")


def _encode_control(record: ControlRecord, *, chained: bool) -> tuple[bytes, bytes]:
    if isinstance(record, ControlCheckpoint):
        kind, middle = 5, _offset(record.start_offset) + _offset(record.end_offset)
    elif (record.back_offset is not None) != chained:
        raise ValueError("a delta has a back offset in generation ii, and there alone")
    else:
        kind, middle = 6, b"" if record.back_offset is None else _offset(record.back_offset)
    head = _VERSION + _group_id(record.group_id) + packed(UINT16, record.checkpoint_epoch, "checkpoint epoch")
    return _VERSION + INT16.pack(kind), head + middle + _batches(record.batches)


def _encode_checkpoint(record: CheckpointRecord) -> tuple[bytes, bytes | None]:
    index: int | None = getattr(record, "delta_index", None)
    key = b"".join(
        (
            _VERSION if index is None else _DELTA_VERSION,
            _group_id(record.key.group_id),
            topic_id_bytes(record.key.topic_id),
            packed(INT32, record.key.partition, "partition"),
            b"" if index is None else packed(_UINT8, index, "delta index"),
        )
    )
    if not isinstance(record, Checkpoint | Delta):
        return key, None
    epoch = packed(UINT16, record.checkpoint_epoch, "checkpoint epoch")
    start = packed(INT64, absent_if_none(record.start_offset), "start offset")
    return key, _VERSION + epoch + start + _batches(record.batches)


def _encode_draft(record: DraftRecord, *, by_table: bool) -> tuple[bytes, bytes | None]:
    if isinstance(record, Tombstone):
        return encode_key(SNAPSHOT_TYPE, record.key), None
    if (record.state_epoch is not None) != by_table:
        raise ValueError("a record has a state epoch in dialect iv, and none in iv-json")
    value = b"".join(
        (
            _VERSION,
            b"" if record.state_epoch is None else packed(_UINT32, record.state_epoch, "state epoch"),
            packed(_UINT32 if by_table else UINT16, record.snapshot_epoch, "snapshot epoch"),
            packed(INT64, absent_if_none(record.start_offset), "start offset"),
            write_compact_batch_array(record.batches),
            b"\x00",
        )
    )
    return encode_key(SNAPSHOT_TYPE if isinstance(record, DraftSnapshot) else UPDATE_TYPE, record.key), value


_ENCODERS: Final[Mapping[str, Callable[[Any], tuple[bytes, bytes | None]]]] = {
    "i": partial(_encode_control, chained=False),
    "ii": partial(_encode_control, chained=True),
    "iii": _encode_checkpoint,
    "iv": partial(_encode_draft, by_table=True),
    "iv-json": partial(_encode_draft, by_table=False),
}
