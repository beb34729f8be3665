"""Raw records to decoded columns at memory speed, in plain numpy over Arrow buffers.

Regular records are decoded in bulk; every odd one (a tombstone, an unknown tag, bytes left over, a damaged key ...)
goes one by one through the strict decoder of ``wire``. Both give the same on every row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.columns import SAID_NUMBERS, RecordColumns, said_columns
from acktrail.columnar.gather import Integers, binary_column
from acktrail.columnar.keys import read_keys
from acktrail.columnar.schemas import RAW_RECORDS, STATE_RECORDS
from acktrail.columnar.strict_rows import SAID_COLUMNS, Decoder, said_by_rows
from acktrail.columnar.values import read_values
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


@dataclass(slots=True, kw_only=True)
class _OddRows:
    """The rows of `raw` that are read one by one, and what the strict decoder says of them."""

    raw: pa.RecordBatch
    rows: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    said: pa.RecordBatch | None = None

    def decode(self, rows: Integers) -> RecordColumns:
        self.rows, self.said = rows, said_by_rows(self.raw.take(pa.array(rows)))
        return said_columns(self.said)

    def mend(self, name: str, column: pa.Array) -> pa.Array:
        """`column` with what the strict decoder says in its rows."""
        if self.said is None:
            return column
        order = np.arange(len(column))
        order[self.rows] = len(column) + np.arange(len(self.rows))
        return pa.concat_arrays([column, self.said.column(name)]).take(pa.array(order))


def _said(raw: pa.RecordBatch) -> pa.RecordBatch:
    keys = read_keys(raw.column("key"))
    whole_keys = bool(keys.regular.all())
    odd = _OddRows(raw=raw)
    values = binary_column(raw.column("value"))
    records = read_values(values, keys.is_snapshot, odd.decode, None if whole_keys else keys.regular)
    names = {"group_id": keys.group_id, "topic_id": keys.topic_id, "partition": pa.array(keys.partition)}
    columns = {
        "record_type": odd.mend("record_type", _RECORD_TYPES.take(pa.array(keys.is_snapshot.astype(np.int8)))),
        **(names if whole_keys else {name: odd.mend(name, column) for name, column in names.items()}),
        **{name: records.numbers[name].to_arrow(SAID_COLUMNS.field(name).type) for name in SAID_NUMBERS},
        "batches": records.batches.to_arrow(records.numbers["snapshot_epoch"].known),
        "decode_status": odd.mend("decode_status", pa.repeat(DecodeStatus.DECODED.value, raw.num_rows)),
        "decode_error": odd.mend("decode_error", pa.nulls(raw.num_rows, pa.string())),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in SAID_COLUMNS.names], schema=SAID_COLUMNS)
