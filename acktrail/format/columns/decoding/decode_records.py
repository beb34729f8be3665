"""Raw records to decoded columns, in numpy over Arrow buffers.

Regular records are decoded in bulk, irregular ones (a tombstone, an unknown tag, bytes left over, damage) row by row
with the strict decoder of ``wire``. Both give the same result for a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError
from acktrail.format.columns.binary_column import Int64Array, binary_column
from acktrail.format.columns.decoding.regular_values import read_values
from acktrail.format.columns.record_columns import CONTENT_NUMBERS, RecordColumns, content_columns
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS, STATE_RECORDS
from acktrail.format.columns.share_partition_keys import read_keys
from acktrail.format.wire.raw_record import AddressedRecord, DecodeStatus, RawRecord, decode_with
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
    irregular, content = np.empty(0, np.int64), decode_rows(raw.slice(0, 0))

    def decode_irregular(rows: Int64Array) -> RecordColumns:
        nonlocal irregular, content
        irregular, content = rows, decode_rows(raw.take(pa.array(rows)))
        return content_columns(content)

    records = read_values(values, keys.is_snapshot, decode_irregular, keys.regular)
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
        own = content.filter(pa.array(~keys.regular[irregular]))
        for name, column in columns.items():
            columns[name] = pc.replace_with_mask(column, has_irregular_key, own.column(name))
    outcomes = {name: content.column(name).to_pylist() for name in ("decode_status", "decode_error")}
    columns |= {
        **{name: records.numbers[name].to_arrow(CONTENT_COLUMNS.field(name).type) for name in CONTENT_NUMBERS},
        "batches": records.batches.to_arrow(records.numbers["snapshot_epoch"].known),
        "decode_status": _texts(raw.num_rows, DecodeStatus.DECODED.value, irregular, outcomes["decode_status"]),
        "decode_error": _texts(raw.num_rows, "", irregular, outcomes["decode_error"]),
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
