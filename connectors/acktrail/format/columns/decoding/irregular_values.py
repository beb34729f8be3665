"""Irregular rows (tombstones, unknown tagged fields, long varints, bytes left over, damage), each decoded by the strict
decoder (``wire.state_record``)."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa

from acktrail.errors import InputError
from acktrail.format.columns.binary_column import BinaryColumn, Int64Array
from acktrail.format.columns.record_columns import CONTENT_NUMBERS, RecordColumns, content_columns
from acktrail.format.columns.schemas.table_schemas import STATE_RECORDS
from acktrail.format.wire.raw_record import AddressedRecord, RawRecord, decode_with
from acktrail.format.wire.state_record import SNAPSHOT_TYPE, decode, decode_key
from acktrail.model.records import ShareSnapshot, StateRecord, Tombstone
from acktrail.model.share_partition import KEY_COLUMNS

Decoder = Callable[[bytes | None, bytes | None], StateRecord]
"""Key and value to a record of a released dialect; raises MalformedRecord or UnsupportedRecord."""
_FIRST: Final = STATE_RECORDS.get_field_index("record_type")
CONTENT_COLUMNS: Final = pa.schema([STATE_RECORDS.field(index) for index in range(_FIRST, len(STATE_RECORDS))])
"""The columns of ``STATE_RECORDS`` that are decoded from a record's bytes."""
_Row = tuple[Any, ...]
_key: Final = attrgetter(*KEY_COLUMNS)
_NO_VALUE: Final[_Row] = (None,) * (len(CONTENT_NUMBERS) + 1)
"""For each of ``CONTENT_NUMBERS``, and for the batches."""


class IrregularRows:
    """Decodes the irregular rows of `raw` (``RAW_RECORDS``). After ``decode``: their places, ascending, as `rows`, and
    their content as `content` (``CONTENT_COLUMNS``)"""

    def __init__(self, raw: pa.RecordBatch) -> None:
        self._raw = raw
        self.rows = np.empty(0, np.int64)
        self.content = decode_rows(raw.slice(0, 0))

    def decode(self, rows: Int64Array, _: BinaryColumn) -> RecordColumns:
        """Return the numbers and batches of `rows`."""
        self.rows, self.content = rows, decode_rows(self._raw.take(pa.array(rows)))
        return content_columns(self.content)


def decode_rows(batch: pa.RecordBatch, decoder: Decoder = decode) -> pa.RecordBatch:
    """``CONTENT_COLUMNS`` of `batch` (``RAW_RECORDS``), decoded one row at a time by a dialect's `decoder`.

    A record that cannot be decoded still names its share partition where its key can be read.
    """
    columns = (column.to_pylist() for column in batch.columns)
    rows = [
        _row(
            decode_with(decoder, RawRecord(state_partition=at, offset=offset, timestamp_ms=time, key=key, value=value))
        )
        for at, offset, time, key, value in zip(*columns, strict=True)
    ]
    decoded = zip(*rows, strict=True) if rows else ((),) * len(CONTENT_COLUMNS)
    arrays = [pa.array(column, field.type) for column, field in zip(decoded, CONTENT_COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CONTENT_COLUMNS)


def _row(decoded: AddressedRecord[StateRecord]) -> _Row:
    outcome = (decoded.status.value, decoded.reason)
    record = decoded.record
    if record is None:
        return (*_readable_key(decoded.raw.key), *_NO_VALUE, *outcome)
    if isinstance(record, Tombstone):
        return ("tombstone", *_key(record.key), *_NO_VALUE, *outcome)
    record_type = "snapshot" if isinstance(record, ShareSnapshot) else "update"
    numbers = (getattr(record, name, None) for name in CONTENT_NUMBERS)
    batches = [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in record.batches]
    return (record_type, *_key(record.key), *numbers, batches, *outcome)


def _readable_key(key: bytes | None) -> _Row:
    """Record type and share partition of a record whose value could not be read; nulls where its key cannot be read."""
    try:
        kind, share_partition = decode_key(key or b"")
    except InputError:
        return (None,) * 4
    return ("snapshot" if kind == SNAPSHOT_TYPE else "update", *_key(share_partition))
