"""The dialects by name: what ``--dialect`` takes, and how the bytes of the drafts are read.

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

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from acktrail.drafts.draft_records import (
    Checkpoint,
    CheckpointRecord,
    CheckpointTombstone,
    ControlCheckpoint,
    ControlDelta,
    ControlRecord,
    Delta,
    DeltaTombstone,
    DraftRecord,
    DraftSnapshot,
    DraftUpdate,
)
from acktrail.errors import MalformedRecord, UnknownName, UnsupportedRecord
from acktrail.model.records import Tombstone
from acktrail.model.share_partition import GroupId
from acktrail.wire.dialects.batch_arrays import (
    UINT8,
    UINT16,
    UINT32,
    none_if_absent,
    read_batch_array,
    read_compact_batch_array,
    read_offset,
    read_version,
)
from acktrail.wire.dialects.released import KAFKA_4_0, KAFKA_4_1, KAFKA_4_2, Dialect
from acktrail.wire.primitives import INT16, INT64, Reader
from acktrail.wire.state_key import SNAPSHOT_TYPE, UPDATE_TYPE, decode_key, read_share_partition

_VERSION: Final = 0
_DELTA_KEY_VERSION: Final = 1
_CHECKPOINT_TYPE: Final = 5
_DELTA_TYPE: Final = 6
_KEY_WITHOUT_GROUP: Final = 24


def dialect_named(name: str) -> Dialect[Any]:
    """The dialect called `name`; a later release's number means the dialect it still writes.

    Raises:
        UnknownName: when there is none; it carries the nearest names.
    """
    dialect = DIALECTS.get(_SAME_BYTES.get(name, name))
    if dialect is None:
        raise UnknownName("dialect", name, nearest=get_close_matches(name, DIALECTS) or tuple(DIALECTS))
    return dialect


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
            start_offset=read_offset(reader, "start offset"),
            end_offset=read_offset(reader, "end offset"),
            batches=read_batch_array(reader),
        )
    else:
        back = read_offset(reader, "back offset") if chained else None
        batches = read_batch_array(reader)
        record = ControlDelta(group_id=group_id, checkpoint_epoch=epoch, back_offset=back, batches=batches)
    reader.end()
    return record


def _decode_checkpoint(key: bytes | None, value: bytes | None) -> CheckpointRecord:
    keys = _key_reader(key)
    version = read_version(keys, (_VERSION, _DELTA_KEY_VERSION))
    share_partition = read_share_partition(keys)
    index = keys.integer(UINT8) if version == _DELTA_KEY_VERSION or keys.left else None
    keys.end()
    if value is None:
        if index is None:
            return CheckpointTombstone(key=share_partition)
        return DeltaTombstone(key=share_partition, delta_index=index)
    reader = Reader(value, "value")
    read_version(reader, (_VERSION,))
    epoch, start = reader.integer(UINT16), none_if_absent(reader.integer(INT64))
    batches = read_batch_array(reader)
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
        state_epoch=reader.integer(UINT32) if by_table else None,
        snapshot_epoch=reader.integer(UINT32 if by_table else UINT16),
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


_control = partial(Dialect, in_control_batches=True, shipped=False)

DIALECTS: Final[Mapping[str, Dialect[Any]]] = MappingProxyType(
    {
        dialect.name: dialect
        for dialect in (
            KAFKA_4_0,
            KAFKA_4_1,
            KAFKA_4_2,
            _control(name="i", decode=partial(_decode_control, chained=False)),
            _control(name="ii", decode=partial(_decode_control, chained=True)),
            Dialect(name="iii", shipped=False, decode=_decode_checkpoint),
            Dialect(name="iv", shipped=False, decode=partial(_decode_draft, by_table=True)),
            Dialect(name="iv-json", shipped=False, decode=partial(_decode_draft, by_table=False)),
        )
    }
)
"""Bytes after a draft's message are malformed, unlike a release's."""

_SAME_BYTES: Final[Mapping[str, str]] = MappingProxyType({"4.3": "4.2", "4.4": "4.2"})
