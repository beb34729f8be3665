"""Raw records to decoded columns, in numpy over Arrow buffers.

Regular records are decoded in bulk, irregular ones (a tombstone, an unknown tag, bytes left over, damage) row by row
with the strict decoder of ``wire``. Both give the same result for a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import Int64Array, binary_column
from acktrail.format.columns.decoding.irregular_values import CONTENT_COLUMNS, Decoder, IrregularRows, decode_rows
from acktrail.format.columns.decoding.regular_values import read_values
from acktrail.format.columns.record_columns import CONTENT_NUMBERS
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS, STATE_RECORDS
from acktrail.format.columns.share_partition_keys import read_keys
from acktrail.format.wire.raw_record import DecodeStatus
from acktrail.format.wire.state_record import decode

DECODED_RECORDS: Final = pa.schema([field for field in STATE_RECORDS if field.name not in {"cluster_id", "run_id"}])
"""``STATE_RECORDS`` without cluster and run."""

_ROWS_AT_ONCE: Final = 1 << 17
"""Rows decoded together; takes about 30 MB."""

_NO_TIMESTAMP: Final = pa.scalar(-1, pa.int64())
_RECORD_TYPES: Final = pa.array(["update", "snapshot", "tombstone"])
_TOMBSTONE: Final = 2


def decode_records(raw: pa.Table) -> pa.Table:
    """Every row of `raw` (columns of ``RAW_RECORDS``) decoded, in the same order, as ``DECODED_RECORDS``.

    No row is dropped: one that cannot be read keeps its bytes, with the reason in `decode_status` and `decode_error`,
    and the share partition of its key where that can be read.

    A tombstone (a snapshot key with a null value), and a key that is cut off:

    >>> from acktrail.model.share_partition import ZERO_TOPIC_ID, GroupId, SharePartition
    >>> from acktrail.format.wire.state_record import SNAPSHOT_TYPE, encode_key
    >>> key = encode_key(SNAPSHOT_TYPE, SharePartition(group_id=GroupId("orders"), topic_id=ZERO_TOPIC_ID, partition=4))
    >>> rows = [(0, 0, 1_000, key, None), (0, 1, 1_000, key[:5], None)]
    >>> raw = pa.Table.from_pylist([dict(zip(RAW_RECORDS.names, row)) for row in rows], schema=RAW_RECORDS)
    >>> for row in decode_records(raw).select(["record_type", "group_id", "partition", "decode_status"]).to_pylist():
    ...     print(*row.values())
    tombstone orders 4 decoded
    None None None malformed_key
    """
    batches = [_with_address(batch, _content(batch)) for batch in _raw_batches(raw)]
    return pa.Table.from_batches(batches, DECODED_RECORDS)


def decode_strictly(raw: pa.Table, decoder: Decoder = decode) -> pa.Table:
    """The table of ``decode_records``, decoded row by row: its reference, and the way to decode other released dialects
    with their `decoder`.
    """
    batches = [_with_address(batch, decode_rows(batch, decoder)) for batch in _raw_batches(raw)]
    return pa.Table.from_batches(batches, DECODED_RECORDS)


def _raw_batches(raw: pa.Table) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = (
        raw.select(RAW_RECORDS.names).cast(RAW_RECORDS).to_batches(max_chunksize=_ROWS_AT_ONCE)
    )
    return batches


def _with_address(raw: pa.RecordBatch, content: pa.RecordBatch) -> pa.RecordBatch:
    partition, offset, timestamp, key, value = raw.columns
    known = pc.if_else(pc.equal(timestamp, _NO_TIMESTAMP), pa.scalar(None, pa.int64()), timestamp)
    return pa.RecordBatch.from_arrays([partition, offset, known, key, value, *content.columns], schema=DECODED_RECORDS)


def _content(raw: pa.RecordBatch) -> pa.RecordBatch:
    keys, values = read_keys(raw.column("key")), binary_column(raw.column("value"))
    irregular = IrregularRows(raw)
    records = read_values(values, keys.is_snapshot, irregular.decode, keys.regular)
    types = keys.is_snapshot.astype(np.int8)
    types[(values.lengths < 0) & keys.is_snapshot] = _TOMBSTONE
    columns = {
        "record_type": _RECORD_TYPES.take(pa.array(types)),
        "group_id": keys.group_id,
        "topic_id": keys.topic_id,
        "partition": pa.array(keys.partition),
    }
    if not keys.regular.all():
        has_irregular_key = pa.array(~keys.regular)
        content = irregular.content.filter(pa.array(~keys.regular[irregular.rows]))
        for name, column in columns.items():
            columns[name] = pc.replace_with_mask(column, has_irregular_key, content.column(name))
    outcomes = {name: irregular.content.column(name).to_pylist() for name in ("decode_status", "decode_error")}
    columns |= {
        **{name: records.numbers[name].to_arrow(CONTENT_COLUMNS.field(name).type) for name in CONTENT_NUMBERS},
        "batches": records.batches.to_arrow(records.numbers["snapshot_epoch"].known),
        "decode_status": _texts(raw.num_rows, DecodeStatus.DECODED.value, irregular.rows, outcomes["decode_status"]),
        "decode_error": _texts(raw.num_rows, "", irregular.rows, outcomes["decode_error"]),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in CONTENT_COLUMNS.names], schema=CONTENT_COLUMNS)


def _texts(count: int, default: str, rows: Int64Array, texts: Sequence[str | None]) -> pa.StringArray:
    """A column of `count` rows: `default` (empty: null), except for `texts` in the ascending `rows`.

    Runs of the default text are copied as a whole.
    """
    lengths = np.full(count + 1, len(default), np.int32)
    lengths[0] = 0
    is_exception = np.zeros(count, np.bool_)
    run = memoryview(default.encode() * count)
    pieces, begin = list[bytes | memoryview](), 0
    for row, text in zip(rows.tolist(), texts, strict=True):
        if text is not None and text != default:
            octets = text.encode()
            pieces += (run[: (row - begin) * len(default)], octets)
            lengths[row + 1], is_exception[row], begin = len(octets), True, row + 1
    pieces.append(run[: (count - begin) * len(default)])
    bounds, data = pa.py_buffer(np.cumsum(lengths, dtype=np.int32)), pa.py_buffer(b"".join(pieces))
    validity = None if default else pa.py_buffer(np.packbits(is_exception, bitorder="little"))
    return pa.StringArray.from_buffers(count, bounds, data, validity)
