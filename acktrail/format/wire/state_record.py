"""State records as releases of Kafka write them.

Layout (Kafka: ``ShareSnapshotValue.json``, ``ShareUpdateValue.json``): a value is an int16 version, 0 in every release,
and a flexible body. 4.0 (early access) has a uint16 snapshot epoch and no timestamps; 4.1 (preview) an int32 one, and
timestamps; 4.2 adds the delivery complete count as tag 0 (KIP-1226). Unknown tagged fields and bytes after the message
are skipped, as Kafka's generated readers do.

Keys are the same in every release since Kafka 4.0 (``ShareSnapshotKey.json``, ``ShareUpdateKey.json``): int16 type
(0 snapshot, 1 update), string group id, 16-byte topic id, int32 partition, not flexible.

Every release writes value version 0, so only the bytes distinguish them. The tables hold what 4.2 reads; the layouts
before it occur only in copied logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.wire.primitives import (
    INT16,
    INT32,
    INT64,
    Reader,
    absent_if_none,
    none_if_absent,
    packed,
    read_compact_batch_array,
    read_version,
    write_compact_batch_array,
)
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import TOPIC_ID_BYTES, GroupId, SharePartition, topic_id_bytes, topic_id_text

SNAPSHOT_TYPE: Final = 0
UPDATE_TYPE: Final = 1
_VALUE_VERSION: Final = 0
_ABSENT: Final = -1
_COUNT_TAG: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the values of a release differ from those of other releases."""

    release: str
    epoch: Struct = INT32
    has_times: bool = True
    has_count: bool = True


KAFKA_4_2: Final = Layout(release="4.2")


def decode(key: bytes | None, value: bytes | None, layout: Layout = KAFKA_4_2) -> StateRecord:
    """The record encoded in a key and a value, as Kafka 4.2 and later write them (and 4.1 without the complete count).

    Raises:
        UnsupportedRecord: for an unknown record type or value version.
        MalformedRecord: for bytes that are not such a record, with the byte position; also for a null key and for a
            null value under an update key: no broker writes them, and a broker fails to load them.
    """
    if key is None:
        raise MalformedRecord("null key", part="key", position=0)
    kind, share_partition = decode_key(key)
    if value is None:
        if kind == UPDATE_TYPE:
            raise MalformedRecord("null value under an update key", part="value", position=0)
        return Tombstone(key=share_partition)
    reader = Reader(value, "value")
    read_version(reader, (_VALUE_VERSION,))
    return (_read_snapshot if kind == SNAPSHOT_TYPE else _read_update)(share_partition, reader, layout)


def encode(record: StateRecord, layout: Layout = KAFKA_4_2) -> tuple[bytes, bytes | None]:
    """Key and value of `record` as Kafka 4.2 and later write them; an unknown complete count is left out. Raises
    ValueError for a snapshot without timestamps (Kafka 4.0), or a number that does not fit."""
    if isinstance(record, Tombstone):
        return encode_key(SNAPSHOT_TYPE, record.key), None
    count = record.delivery_complete_count
    if count is not None and not layout.has_count:
        raise ValueError(f"a record of Kafka {layout.release} has no complete count")
    fields = [INT16.pack(_VALUE_VERSION), packed(layout.epoch, record.snapshot_epoch, "snapshot epoch")]
    if isinstance(record, ShareSnapshot):
        fields.append(packed(INT32, record.state_epoch, "state epoch"))
    fields.append(packed(INT32, absent_if_none(record.leader_epoch), "leader epoch"))
    fields.append(packed(INT64, absent_if_none(record.start_offset), "start offset"))
    if isinstance(record, ShareSnapshot):
        times = (record.create_timestamp_ms, record.write_timestamp_ms)
        if any((time is not None) != layout.has_times for time in times):
            number = "two" if layout.has_times else "no"
            raise ValueError(f"a snapshot of Kafka {layout.release} has {number} timestamps")
        fields += [packed(INT64, time, "timestamp") for time in times if time is not None]
    fields.append(write_compact_batch_array(record.batches))
    # b"\x01\x00\x04": one tagged field, tag 0, 4 bytes
    fields.append(b"\x00" if count is None else b"\x01\x00\x04" + packed(INT32, count, "complete count"))
    kind = SNAPSHOT_TYPE if isinstance(record, ShareSnapshot) else UPDATE_TYPE
    return encode_key(kind, record.key), b"".join(fields)


def _read_snapshot(key: SharePartition, reader: Reader, layout: Layout) -> ShareSnapshot:
    return ShareSnapshot(
        key=key,
        snapshot_epoch=reader.integer(layout.epoch),
        state_epoch=reader.integer(INT32),
        leader_epoch=reader.integer(INT32),
        start_offset=none_if_absent(reader.integer(INT64)),
        create_timestamp_ms=reader.integer(INT64) if layout.has_times else None,
        write_timestamp_ms=reader.integer(INT64) if layout.has_times else None,
        batches=read_compact_batch_array(reader),
        delivery_complete_count=_read_count(reader, layout),
    )


def _read_update(key: SharePartition, reader: Reader, layout: Layout) -> ShareUpdate:
    return ShareUpdate(
        key=key,
        snapshot_epoch=reader.integer(layout.epoch),
        leader_epoch=none_if_absent(reader.integer(INT32)),
        start_offset=none_if_absent(reader.integer(INT64)),
        batches=read_compact_batch_array(reader),
        delivery_complete_count=_read_count(reader, layout),
    )


def _read_count(reader: Reader, layout: Layout) -> int | None:
    """The delivery complete count from the message's tag buffer; None where it is absent or -1, and for a release that
    skips its tag."""
    if layout.has_count:
        return none_if_absent(reader.tagged_integer(_COUNT_TAG, INT32, _ABSENT))
    reader.skip_tagged_fields()
    return None


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


def encode_key(kind: int, share_partition: SharePartition) -> bytes:
    """The key of a record of type `kind`."""
    group_id = share_partition.group_id.encode("utf-8")
    head = INT16.pack(kind) + INT16.pack(len(group_id)) + group_id
    return head + topic_id_bytes(share_partition.topic_id) + INT32.pack(share_partition.partition)
