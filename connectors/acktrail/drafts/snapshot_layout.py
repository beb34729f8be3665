"""Generation iv: ShareSnapshot and ShareUpdate as the founding document describes them, before Kafka 4.0.

Keys are those of the shipped records. The document has two values, both flexible with value version 0: its table
(dialect ``iv``) says uint32 state epoch, uint32 snapshot epoch, start offset, batches; its JSON schemas (``iv-json``)
say uint16 snapshot epoch, start offset, batches, and no state epoch. Neither was shipped.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from acktrail.drafts.draft_records import DraftRecord, DraftSnapshot, DraftUpdate
from acktrail.errors import MalformedRecord
from acktrail.model.records import Tombstone
from acktrail.model.share_partition import SharePartition
from acktrail.wire.dialects.batch_arrays import (
    UINT16,
    UINT32,
    absent_if_none,
    none_if_absent,
    packed,
    read_compact_batch_array,
    read_version,
    write_compact_batch_array,
)
from acktrail.wire.primitives import INT16, INT64, Reader
from acktrail.wire.state_key import SNAPSHOT_TYPE, UPDATE_TYPE, decode_key, encode_key

_VALUE_VERSION: Final = 0
_KEY_WITHOUT_GROUP: Final = 24


def _decode(key: bytes | None, value: bytes | None, *, state_epoch: bool) -> DraftRecord:
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    kind, share_partition = decode_key(key)
    Reader(key, "key", _KEY_WITHOUT_GROUP + len(share_partition.group_id.encode())).end()
    if value is None:
        if kind == UPDATE_TYPE:
            raise MalformedRecord("null value under an update key", part="value", position=0)
        return Tombstone(key=share_partition)
    return _read_value(kind, share_partition, value, state_epoch=state_epoch)


def _encode(record: DraftRecord, *, state_epoch: bool) -> tuple[bytes, bytes | None]:
    match record:
        case Tombstone():
            return encode_key(SNAPSHOT_TYPE, record.key), None
        case DraftSnapshot():
            return encode_key(SNAPSHOT_TYPE, record.key), _value_bytes(record, state_epoch=state_epoch)
        case DraftUpdate():
            return encode_key(UPDATE_TYPE, record.key), _value_bytes(record, state_epoch=state_epoch)


decode_table = partial(_decode, state_epoch=True)
"""The record encoded in key and value by the document's table.

UnsupportedRecord for an unknown record type or value version; MalformedRecord, with the byte position, for bytes that
are not such a record, bytes after the message included.
"""

decode_json_schema = partial(_decode, state_epoch=False)
"""The record encoded in key and value by the document's JSON schemas; as `decode_table`."""

encode_table = partial(_encode, state_epoch=True)
"""Key and value by the document's table; ValueError for a missing state epoch or a number that does not fit."""

encode_json_schema = partial(_encode, state_epoch=False)
"""Key and value by the document's JSON schemas; ValueError for a state epoch or a number that does not fit."""


def _read_value(
    kind: int, share_partition: SharePartition, value: bytes, *, state_epoch: bool
) -> DraftSnapshot | DraftUpdate:
    reader = Reader(value, "value")
    read_version(reader, (_VALUE_VERSION,))
    epoch = reader.integer(UINT32) if state_epoch else None
    snapshot_epoch = reader.integer(UINT32 if state_epoch else UINT16)
    start_offset = reader.integer(INT64)
    batches = read_compact_batch_array(reader)
    reader.skip_tagged_fields()
    reader.end()
    record = DraftSnapshot if kind == SNAPSHOT_TYPE else DraftUpdate
    return record(
        key=share_partition,
        state_epoch=epoch,
        snapshot_epoch=snapshot_epoch,
        start_offset=none_if_absent(start_offset),
        batches=batches,
    )


def _value_bytes(record: DraftSnapshot | DraftUpdate, *, state_epoch: bool) -> bytes:
    if (record.state_epoch is not None) != state_epoch:
        raise ValueError("a record has a state epoch in dialect iv, and none in iv-json")
    return b"".join(
        (
            INT16.pack(_VALUE_VERSION),
            b"" if record.state_epoch is None else packed(UINT32, record.state_epoch, "state epoch"),
            packed(UINT32 if state_epoch else UINT16, record.snapshot_epoch, "snapshot epoch"),
            packed(INT64, absent_if_none(record.start_offset), "start offset"),
            write_compact_batch_array(record.batches),
            b"\x00",
        )
    )
