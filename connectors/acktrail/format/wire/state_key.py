"""Keys of ``__share_group_state``, the same in every release since Kafka 4.0.

Layout (Kafka: ``ShareSnapshotKey.json``, ``ShareUpdateKey.json``): int16 type (0 snapshot, 1 update), string group id,
16-byte topic id, int32 partition, not flexible.
"""

from __future__ import annotations

from typing import Final

from acktrail.errors import UnsupportedRecord
from acktrail.format.wire.primitives import INT16, INT32, Reader
from acktrail.model.share_partition import (
    TOPIC_ID_BYTES,
    GroupId,
    SharePartition,
    topic_id_bytes,
    topic_id_text,
)

SNAPSHOT_TYPE: Final = 0
UPDATE_TYPE: Final = 1


def decode_key(key: bytes) -> tuple[int, SharePartition]:
    """The record type and the share partition of a key.

    Raises:
        UnsupportedRecord: for a type other than snapshot and update.
        MalformedRecord: when the key is cut off or malformed.
    """
    reader = Reader(key, "key")
    kind = reader.integer(INT16)
    if kind not in (SNAPSHOT_TYPE, UPDATE_TYPE):
        raise UnsupportedRecord("unknown record type", part="key", number=kind)
    return kind, read_share_partition(reader)


def read_share_partition(reader: Reader) -> SharePartition:
    """Group id, topic id and partition, as every key of the state topic has them."""
    return SharePartition(
        group_id=GroupId(reader.string()),
        topic_id=topic_id_text(reader.raw(TOPIC_ID_BYTES)),
        partition=reader.integer(INT32),
    )


def key_form(share_partition: SharePartition) -> dict[str, object]:
    """In JSON: group, topic id and partition."""
    return {
        "group": share_partition.group_id,
        "topic_id": share_partition.topic_id,
        "partition": share_partition.partition,
    }


def encode_key(kind: int, share_partition: SharePartition) -> bytes:
    """The key of a record of type `kind`."""
    group_id = share_partition.group_id.encode("utf-8")
    head = INT16.pack(kind) + INT16.pack(len(group_id)) + group_id
    return head + topic_id_bytes(share_partition.topic_id) + INT32.pack(share_partition.partition)
