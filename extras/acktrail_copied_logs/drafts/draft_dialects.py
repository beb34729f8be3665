"""The drafts' dialects by name, as ``--dialect`` takes them: how their bytes are read.

Generations i and ii: a key is int16 version 0 and int16 type (5 checkpoint, 6 delta); a value is int16 version 0,
string group id, uint16 checkpoint epoch, then start and end offset (checkpoint) or the back offset (delta of generation
ii), then an int32 counted array of batches; not flexible. The documents print the value of the delta alone; that of the
checkpoint, and the version in front of both, follow the documents' pictures and Kafka's transaction markers. Released
brokers use control types 5 and 6 for KRaft: these dialects are for files, never for a live topic.

Generation iii: a key is int16 version, string group id, 16-byte topic id, int32 partition and, for a delta, uint8 delta
index. The document prints version 0 for both although it uses the version to distinguish them: a delta is written as
version 1 and read as either. A value is int16 version 0, uint16 checkpoint epoch, int64 start offset (-1 not updated)
and an int32 counted array of batches; not flexible. A null value is a tombstone of its key.

Generation iv: keys are those of the shipped records. The document has two values, both flexible with value version 0:
its table (``iv``) says uint32 state epoch, uint32 snapshot epoch, start offset, batches; its JSON schemas (``iv-json``)
say uint16 snapshot epoch, start offset, batches, and no state epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from struct import Struct
from types import MappingProxyType
from typing import Any, Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.wire.primitives import (
    BATCH_BYTES,
    INT16,
    INT32,
    INT64,
    UINT16,
    Reader,
    none_if_absent,
    read_batch,
    read_compact_batch_array,
    read_version,
)
from acktrail.format.wire.state_record import SNAPSHOT_TYPE, UPDATE_TYPE, decode_key, read_share_partition
from acktrail.model.batches import StateBatch
from acktrail.model.records import Tombstone
from acktrail.model.share_partition import GroupId
from acktrail_copied_logs.dialects import Dialect, Replay
from acktrail_copied_logs.drafts.draft_records import (
    Checkpoint,
    CheckpointRecord,
    ControlCheckpoint,
    ControlDelta,
    ControlRecord,
    Delta,
    DeltaTombstone,
    DraftRecord,
    DraftSnapshot,
    DraftUpdate,
    draft_content,
)
from acktrail_copied_logs.drafts.strict_replay import replay_checkpoints, replay_control, replay_draft

Decode = Callable[[bytes | None, bytes | None], Any]
_UINT8: Final = Struct(">B")
_UINT32: Final = Struct(">I")
_VERSION: Final = 0
_DELTA_KEY_VERSION: Final = 1
_CHECKPOINT_TYPE: Final = 5
_DELTA_TYPE: Final = 6
_KEY_WITHOUT_GROUP: Final = 24


def _decode_control(key: bytes | None, value: bytes | None, *, chained: bool) -> ControlRecord:
    keys = _key_reader(key)
    read_version(keys, (_VERSION,))
    kind = keys.integer(INT16)
    if kind not in (_CHECKPOINT_TYPE, _DELTA_TYPE):
        raise UnsupportedRecord("unknown control record type", part="key", number=kind)
    keys.end()
    if value is None:
        raise MalformedRecord("null value of a control record", part="value", position=0)
    reader = Reader(value, "value")
    read_version(reader, (_VERSION,))
    group_id, epoch = GroupId(reader.string()), reader.integer(UINT16)
    if kind == _CHECKPOINT_TYPE:
        record: ControlRecord = ControlCheckpoint(
            group_id=group_id,
            checkpoint_epoch=epoch,
            start_offset=_read_offset(reader, "start offset"),
            end_offset=_read_offset(reader, "end offset"),
            batches=_read_batch_array(reader),
        )
    else:
        back = _read_offset(reader, "back offset") if chained else None
        batches = _read_batch_array(reader)
        record = ControlDelta(group_id=group_id, checkpoint_epoch=epoch, back_offset=back, batches=batches)
    reader.end()
    return record


def _decode_checkpoint(key: bytes | None, value: bytes | None) -> CheckpointRecord:
    keys = _key_reader(key)
    version = read_version(keys, (_VERSION, _DELTA_KEY_VERSION))
    share_partition = read_share_partition(keys)
    index = keys.integer(_UINT8) if version == _DELTA_KEY_VERSION or keys.left else None
    keys.end()
    if value is None:
        if index is None:
            return Tombstone(key=share_partition)
        return DeltaTombstone(key=share_partition, delta_index=index)
    reader = Reader(value, "value")
    read_version(reader, (_VERSION,))
    epoch, start = reader.integer(UINT16), none_if_absent(reader.integer(INT64))
    batches = _read_batch_array(reader)
    reader.end()
    if index is None:
        return Checkpoint(key=share_partition, checkpoint_epoch=epoch, start_offset=start, batches=batches)
    return Delta(key=share_partition, delta_index=index, checkpoint_epoch=epoch, start_offset=start, batches=batches)


def _decode_draft(key: bytes | None, value: bytes | None, *, by_table: bool) -> DraftRecord:
    _key_reader(key)
    kind, share_partition = decode_key(key or b"")
    Reader(key or b"", "key", _KEY_WITHOUT_GROUP + len(share_partition.group_id.encode())).end()
    if value is None:
        if kind == UPDATE_TYPE:
            raise MalformedRecord("null value under an update key", part="value", position=0)
        return Tombstone(key=share_partition)
    reader = Reader(value, "value")
    read_version(reader, (_VERSION,))
    record = (DraftSnapshot if kind == SNAPSHOT_TYPE else DraftUpdate)(
        key=share_partition,
        state_epoch=reader.integer(_UINT32) if by_table else None,
        snapshot_epoch=reader.integer(_UINT32 if by_table else UINT16),
        start_offset=none_if_absent(reader.integer(INT64)),
        batches=read_compact_batch_array(reader),
    )
    reader.skip_tagged_fields()
    reader.end()
    return record


def _key_reader(key: bytes | None) -> Reader:
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    return Reader(key, "key")


def _read_offset(reader: Reader, field: str) -> int:
    """An int64 that must be an offset: MalformedRecord when it is negative."""
    start = reader.position
    number = reader.integer(INT64)
    if number < 0:
        raise reader.malformed(f"{field} {number} is negative", start)
    return number


def _read_batch_array(reader: Reader) -> tuple[StateBatch, ...]:
    """A non-flexible array: int32 count, then 19 bytes a batch. The count is checked before a batch is read."""
    start = reader.position
    count = reader.integer(INT32)
    if count < 0:
        raise reader.malformed("null array of state batches", start)
    if count * BATCH_BYTES > reader.left:
        raise reader.malformed(f"{count} state batches announced", start)
    return tuple(read_batch(reader) for _ in range(count))


def _draft(name: str, decode: Decode, replay: Replay, *, control: bool = False) -> Dialect[Any]:
    return Dialect(name=name, decode=decode, content=draft_content, replay=replay, in_control_batches=control)


DRAFTS: Final[Mapping[str, Dialect[Any]]] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            _draft("i", partial(_decode_control, chained=False), replay_control, control=True),
            _draft("ii", partial(_decode_control, chained=True), replay_control, control=True),
            _draft("iii", _decode_checkpoint, replay_checkpoints),
            _draft("iv", partial(_decode_draft, by_table=True), replay_draft),
            _draft("iv-json", partial(_decode_draft, by_table=False), replay_draft),
        )
    }
)
"""Bytes after a draft's message are malformed, unlike a release's."""
