"""Raw records to decoded columns at memory speed, in plain numpy over Arrow buffers.

Regular records are decoded in bulk; every odd one (a tombstone, an unknown tag, bytes left over, a damaged key ...)
goes one by one through the strict decoder of ``wire``. Both give the same on every row.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.gather import Integers, Mask
from acktrail.columnar.keys import KeyColumns, read_keys
from acktrail.columnar.schemas import RAW_RECORDS, STATE_RECORDS
from acktrail.columnar.strict_rows import SAID_COLUMNS, Decoder, said_by_rows
from acktrail.columnar.values import ValueColumns, read_values
from acktrail.wire.raw_record import DecodeStatus
from acktrail.wire.state_record import decode

__all__ = ["DECODED_RECORDS", "decode_records", "decode_slowly"]

DECODED_RECORDS: Final = pa.schema([field for field in STATE_RECORDS if field.name not in {"cluster_id", "run_id"}])
"""``STATE_RECORDS`` without the columns that say where a record came from."""

_ROWS_AT_ONCE: Final = 65_536
"""Rows decoded together: the arrays in between stay in the processor's cache."""

_NO_TIMESTAMP: Final = pa.scalar(-1, pa.int64())
_RECORD_TYPES: Final = pa.array(["update", "snapshot"])


def decode_records(raw: pa.Table) -> pa.Table:
    """Every row of `raw` (columns of ``RAW_RECORDS``) decoded, in the same order, as ``DECODED_RECORDS``.

    Nothing is dropped: what cannot be read keeps its bytes, with the reason in `decode_status` and `decode_error` and
    the share partition that its key names, if it can be read.
    """
    batches = [_with_address(batch, _said(batch)) for batch in _raw_batches(raw)]
    return pa.Table.from_batches(batches, DECODED_RECORDS)


def decode_slowly(raw: pa.Table, decoder: Decoder = decode) -> pa.Table:
    """The same table as ``decode_records`` by the strict decoder alone, row by row: the reference for it, and the way
    for other shipped dialects, by their `decoder`.
    """
    batches = [_with_address(batch, said_by_rows(batch, decoder)) for batch in _raw_batches(raw)]
    return pa.Table.from_batches(batches, DECODED_RECORDS)


def _raw_batches(raw: pa.Table) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = (
        raw.select(RAW_RECORDS.names).cast(RAW_RECORDS).to_batches(max_chunksize=_ROWS_AT_ONCE)
    )
    return batches


def _with_address(raw: pa.RecordBatch, said: pa.RecordBatch) -> pa.RecordBatch:
    partition, offset, timestamp, key, value = raw.columns
    known = pc.if_else(pc.equal(timestamp, _NO_TIMESTAMP), pa.scalar(None, pa.int64()), timestamp)
    return pa.RecordBatch.from_arrays([partition, offset, known, key, value, *said.columns], schema=DECODED_RECORDS)


def _said(raw: pa.RecordBatch) -> pa.RecordBatch:
    keys = read_keys(raw.column("key"))
    values = read_values(raw.column("value"), keys.is_snapshot)
    regular = keys.regular & values.regular
    in_bulk = _bulk_columns(keys, values)
    return in_bulk if regular.all() else _with_odd_rows(raw, in_bulk, regular)


def _with_odd_rows(raw: pa.RecordBatch, in_bulk: pa.RecordBatch, regular: Mask) -> pa.RecordBatch:
    """`in_bulk` with every row that is not regular replaced by what the strict decoder says."""
    rows: Integers = np.flatnonzero(~regular)
    odd = said_by_rows(raw.take(pa.array(rows)))
    order = np.arange(len(regular))
    order[rows] = len(regular) + np.arange(len(rows))
    return pa.concat_batches([in_bulk, odd]).take(pa.array(order))


def _bulk_columns(keys: KeyColumns, values: ValueColumns) -> pa.RecordBatch:
    count = len(keys.regular)
    columns = {
        "record_type": _RECORD_TYPES.take(pa.array(keys.is_snapshot.astype(np.int8))),
        "group_id": keys.group_id,
        "topic_id": keys.topic_id,
        "partition": pa.array(keys.partition),
        "snapshot_epoch": values.snapshot_epoch,
        "state_epoch": values.state_epoch,
        "leader_epoch": values.leader_epoch,
        "start_offset": values.start_offset,
        "delivery_complete_count": values.delivery_complete_count,
        "create_timestamp_ms": values.create_timestamp_ms,
        "write_timestamp_ms": values.write_timestamp_ms,
        "batches": values.batches,
        "decode_status": pa.repeat(DecodeStatus.DECODED.value, count),
        "decode_error": pa.nulls(count, pa.string()),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in SAID_COLUMNS.names], schema=SAID_COLUMNS)
