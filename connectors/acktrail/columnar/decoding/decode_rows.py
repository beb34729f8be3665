"""The strict decoder of ``wire``, row by row, as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from acktrail.columnar.schemas.table_schemas import STATE_RECORDS
from acktrail.errors import InputError
from acktrail.model.delivery import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.share_partition import SharePartition
from acktrail.wire.dialects.kafka_4_2 import decode
from acktrail.wire.raw_record import AddressedRecord, RawRecord, decode_with
from acktrail.wire.state_key import SNAPSHOT_TYPE, decode_key

__all__ = ["CONTENT_COLUMNS", "Decoder", "decode_rows"]

Decoder = Callable[[bytes | None, bytes | None], StateRecord]
"""Key and value to a record of a shipped dialect; raises MalformedRecord or UnsupportedRecord."""

_FIRST_SAID: Final = STATE_RECORDS.get_field_index("record_type")

CONTENT_COLUMNS: Final = pa.schema([STATE_RECORDS.field(index) for index in range(_FIRST_SAID, len(STATE_RECORDS))])
"""The columns of ``STATE_RECORDS`` that come out of a record's bytes."""

_Row = tuple[Any, ...]

_NO_FIELDS: Final[_Row] = (None,) * 8
"""snapshot_epoch, state_epoch, leader_epoch, start_offset, delivery_complete_count, two timestamps, batches."""


def decode_rows(batch: pa.RecordBatch, decoder: Decoder = decode) -> pa.RecordBatch:
    """``CONTENT_COLUMNS`` of `batch` (``RAW_RECORDS``), decoded one row at a time by a dialect's `decoder`.

    A record that could not be decoded still names its share partition where its key can be read.
    """
    rows = [_row(decode_with(decoder, raw)) for raw in _raw_records(batch)]
    columns = zip(*rows, strict=True) if rows else ((),) * len(CONTENT_COLUMNS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CONTENT_COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CONTENT_COLUMNS)


def _raw_records(batch: pa.RecordBatch) -> Iterator[RawRecord]:
    for partition, offset, timestamp, key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield RawRecord(state_partition=partition, offset=offset, timestamp_ms=timestamp, key=key, value=value)


def _row(decoded: AddressedRecord[StateRecord]) -> _Row:
    outcome = (decoded.status.value, decoded.reason)
    if decoded.record is None:
        return (*_readable_key(decoded.raw.key), *_NO_FIELDS, *outcome)
    record_type, fields = _fields(decoded.record)
    return (record_type, *_names(decoded.record.key), *fields, *outcome)


def _readable_key(key: bytes | None) -> _Row:
    """Record type and share partition of a record whose value could not be read, as far as its key says."""
    try:
        kind, share_partition = decode_key(key or b"")
    except InputError:
        return (None,) * 4
    return ("snapshot" if kind == SNAPSHOT_TYPE else "update", *_names(share_partition))


def _names(key: SharePartition) -> _Row:
    return (key.group_id, key.topic_id, key.partition)


def _fields(record: StateRecord) -> tuple[str, _Row]:
    match record:
        case Tombstone():
            return "tombstone", _NO_FIELDS
        case ShareSnapshot():
            return "snapshot", _snapshot_fields(record)
        case ShareUpdate():
            return "update", _update_fields(record)


def _snapshot_fields(record: ShareSnapshot) -> _Row:
    return (
        record.snapshot_epoch,
        record.state_epoch,
        record.leader_epoch,
        record.start_offset,
        record.delivery_complete_count,
        record.create_timestamp_ms,
        record.write_timestamp_ms,
        _batches(record.batches),
    )


def _update_fields(record: ShareUpdate) -> _Row:
    return (
        record.snapshot_epoch,
        None,
        record.leader_epoch,
        record.start_offset,
        record.delivery_complete_count,
        None,
        None,
        _batches(record.batches),
    )


def _batches(batches: tuple[StateBatch, ...]) -> list[dict[str, int]]:
    return [
        {
            "first_offset": batch.first_offset,
            "last_offset": batch.last_offset,
            "delivery_state": batch.delivery_state,
            "delivery_count": batch.delivery_count,
        }
        for batch in batches
    ]
