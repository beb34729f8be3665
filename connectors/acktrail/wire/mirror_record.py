"""Records of MirrorMaker 2's internal topics: offset syncs and checkpoints.

``mm2-offset-syncs.<cluster>.internal`` has ``OffsetSync``: the key is string topic and int32 partition, the value int64
source offset and int64 target offset, without a version. ``<cluster>.checkpoints.internal`` has ``Checkpoint``: the key
is string group, string topic and int32 partition, the value an int16 version, which is 0, then int64 source offset,
int64 target offset and string metadata. Strings are int16 length and UTF-8, none is null. Bytes after the message are
skipped, as Kafka does. All codecs raise MalformedRecord with the byte position for bytes that are no such record.
"""

from __future__ import annotations

from typing import Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.model.mirrored_offsets import MirrorCheckpoint, OffsetSync
from acktrail.wire.primitives import INT16, INT32, INT64, Reader

CHECKPOINT_VERSION: Final = 0
_LONGEST: Final = (1 << 15) - 1


def decode_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync:
    """The offset sync encoded in a key and a value."""
    keys, values = _readers(key, value)
    return OffsetSync(
        topic=keys.string(),
        partition=keys.integer(INT32),
        upstream_offset=values.integer(INT64),
        downstream_offset=values.integer(INT64),
    )


def encode_offset_sync(sync: OffsetSync) -> tuple[bytes, bytes]:
    """Key and value of an offset sync. Raises ValueError: a string is too long for Kafka."""
    key = _string(sync.topic) + INT32.pack(sync.partition)
    return key, INT64.pack(sync.upstream_offset) + INT64.pack(sync.downstream_offset)


def decode_checkpoint(key: bytes | None, value: bytes | None) -> MirrorCheckpoint:
    """The checkpoint encoded in a key and a value. Raises also UnsupportedRecord: an unknown version."""
    keys, values = _readers(key, value)
    version = values.integer(INT16)
    if version != CHECKPOINT_VERSION:
        raise UnsupportedRecord("unknown checkpoint version", part="value", number=version)
    return MirrorCheckpoint(
        group_id=keys.string(),
        topic=keys.string(),
        partition=keys.integer(INT32),
        upstream_offset=values.integer(INT64),
        downstream_offset=values.integer(INT64),
        metadata=values.string(),
    )


def encode_checkpoint(checkpoint: MirrorCheckpoint) -> tuple[bytes, bytes]:
    """Key and value of a checkpoint. Raises as `encode_offset_sync`."""
    key = _string(checkpoint.group_id) + _string(checkpoint.topic) + INT32.pack(checkpoint.partition)
    offsets = INT64.pack(checkpoint.upstream_offset) + INT64.pack(checkpoint.downstream_offset)
    return key, INT16.pack(CHECKPOINT_VERSION) + offsets + _string(checkpoint.metadata)


def _readers(key: bytes | None, value: bytes | None) -> tuple[Reader, Reader]:
    for part, data in (("key", key), ("value", value)):
        if data is None:
            raise MalformedRecord(f"null {part}", part=part, position=0)
    return Reader(key or b"", "key"), Reader(value or b"", "value")


def _string(text: str) -> bytes:
    raw = text.encode("utf-8")
    if len(raw) > _LONGEST:
        raise ValueError(f"{len(raw)} bytes do not fit into a string of Kafka's, which has at most {_LONGEST}")
    return INT16.pack(len(raw)) + raw
