"""Records of MirrorMaker 2's internal topics: offset syncs and checkpoints.

``mm2-offset-syncs.<cluster>.internal`` has ``OffsetSync``: the key is string topic and int32 partition, the value int64
source offset and int64 target offset, without a version. ``<cluster>.checkpoints.internal`` has ``Checkpoint``: the key
is string group, string topic and int32 partition, the value an int16 version, which is 0, then int64 source offset,
int64 target offset and string metadata. Strings are int16 length and UTF-8, none is null. Bytes after the message are
skipped, as Kafka does. Both decoders raise MalformedRecord with the byte position for bytes that are no such record.
"""

from __future__ import annotations

from typing import Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.wire.primitives import INT16, INT32, INT64, Reader
from acktrail.model.mirrored_offsets import MirrorCheckpoint, OffsetSync

CHECKPOINT_VERSION: Final = 0


def decode_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync:
    """The offset sync encoded in a key and a value."""
    keys, values = _readers(key, value)
    return OffsetSync(
        topic=keys.string(),
        partition=keys.integer(INT32),
        upstream_offset=values.integer(INT64),
        downstream_offset=values.integer(INT64),
    )


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


def _readers(key: bytes | None, value: bytes | None) -> tuple[Reader, Reader]:
    for part, data in (("key", key), ("value", value)):
        if data is None:
            raise MalformedRecord(f"null {part}", part=part, position=0)
    return Reader(key or b"", "key"), Reader(value or b"", "value")
