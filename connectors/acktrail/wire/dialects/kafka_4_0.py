"""State records as Kafka 4.0 (early access) wrote them: uint16 snapshot epoch, no timestamps, no complete count.

Key and value version are those of every later release; only the layout distinguishes them (Kafka 4.0:
``ShareSnapshotValue.json``, ``ShareUpdateValue.json``). Unknown tagged fields and bytes after the message are skipped,
as Kafka's generated readers do.
"""

from __future__ import annotations

from typing import Final

from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord
from acktrail.model.share_partition import SharePartition
from acktrail.wire.dialects.batch_arrays import (
    UINT16,
    absent_if_none,
    none_if_absent,
    packed,
    read_compact_batch_array,
    write_compact_batch_array,
)
from acktrail.wire.dialects.kafka_4_2 import decode_values, encode_values
from acktrail.wire.primitives import INT32, INT64, Reader

_NO_TAGS: Final = b"\x00"


def decode(key: bytes | None, value: bytes | None) -> StateRecord:
    """The record encoded in a key and a value; raises as ``kafka_4_2.decode``."""
    return decode_values(key, value, _read_snapshot, _read_update)


def encode(record: StateRecord) -> tuple[bytes, bytes | None]:
    """Key and value of `record`.

    Raises:
        ValueError: for a field that Kafka 4.0 does not have (timestamps, complete count) or a number that does not fit.
    """
    return encode_values(record, _write_snapshot, _write_update)


def _read_snapshot(key: SharePartition, reader: Reader) -> ShareSnapshot:
    record = ShareSnapshot(
        key=key,
        snapshot_epoch=reader.integer(UINT16),
        state_epoch=reader.integer(INT32),
        leader_epoch=reader.integer(INT32),
        start_offset=none_if_absent(reader.integer(INT64)),
        delivery_complete_count=None,
        create_timestamp_ms=None,
        write_timestamp_ms=None,
        batches=read_compact_batch_array(reader),
    )
    reader.skip_tagged_fields()
    return record


def _read_update(key: SharePartition, reader: Reader) -> ShareUpdate:
    record = ShareUpdate(
        key=key,
        snapshot_epoch=reader.integer(UINT16),
        leader_epoch=none_if_absent(reader.integer(INT32)),
        start_offset=none_if_absent(reader.integer(INT64)),
        delivery_complete_count=None,
        batches=read_compact_batch_array(reader),
    )
    reader.skip_tagged_fields()
    return record


def _write_snapshot(record: ShareSnapshot) -> bytes:
    later = (record.create_timestamp_ms, record.write_timestamp_ms, record.delivery_complete_count)
    if later != (None, None, None):
        raise ValueError("a snapshot of Kafka 4.0 has neither timestamps nor a complete count")
    return b"".join(
        (
            packed(UINT16, record.snapshot_epoch, "snapshot epoch"),
            packed(INT32, record.state_epoch, "state epoch"),
            packed(INT32, record.leader_epoch, "leader epoch"),
            packed(INT64, absent_if_none(record.start_offset), "start offset"),
            write_compact_batch_array(record.batches),
            _NO_TAGS,
        )
    )


def _write_update(record: ShareUpdate) -> bytes:
    if record.delivery_complete_count is not None:
        raise ValueError("an update of Kafka 4.0 has no complete count")
    return b"".join(
        (
            packed(UINT16, record.snapshot_epoch, "snapshot epoch"),
            packed(INT32, absent_if_none(record.leader_epoch), "leader epoch"),
            packed(INT64, absent_if_none(record.start_offset), "start offset"),
            write_compact_batch_array(record.batches),
            _NO_TAGS,
        )
    )
