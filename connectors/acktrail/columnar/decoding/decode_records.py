"""Raw records to decoded columns at memory speed, in plain numpy over Arrow buffers.

Regular records are decoded in one go; odd ones (a tombstone, an unknown tag, bytes left over ...) together, step by
step; the rest (a damaged key ...) one by one through the strict decoder of ``wire``. All give the same on every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import BoolArray, binary_column
from acktrail.columnar.decoding.decode_keys import KeyColumns, read_keys
from acktrail.columnar.decoding.decode_rows import CONTENT_COLUMNS, Decoder, decode_rows
from acktrail.columnar.decoding.irregular_rows import IrregularRows
from acktrail.columnar.decoding.regular_values import read_values
from acktrail.columnar.record_columns import CONTENT_NUMBERS
from acktrail.columnar.schemas.table_schemas import RAW_RECORDS, STATE_RECORDS
from acktrail.wire.dialects.kafka_4_2 import decode
from acktrail.wire.raw_record import DecodeStatus

__all__ = ["DECODED_RECORDS", "count_readable", "decode_records", "decode_strictly"]

DECODED_RECORDS: Final = pa.schema([field for field in STATE_RECORDS if field.name not in {"cluster_id", "run_id"}])
"""``STATE_RECORDS`` without the columns that say where a record came from."""

_ROWS_AT_ONCE: Final = 1 << 17
"""Rows decoded together: enough that the steps for odd rows cost little; all that is in between is some 30 MB."""

_NO_TIMESTAMP: Final = pa.scalar(-1, pa.int64())
_RECORD_TYPES: Final = pa.array(["update", "snapshot", "tombstone"])
_TOMBSTONE: Final = 2
_USUAL: Final = DecodeStatus.DECODED.value


def decode_records(raw: pa.Table) -> pa.Table:
    """Every row of `raw` (columns of ``RAW_RECORDS``) decoded, in the same order, as ``DECODED_RECORDS``.

    No row is dropped: one that cannot be read keeps its bytes, with the reason in `decode_status` and `decode_error`,
    and the share partition of its key where that can be read.

    A tombstone (a snapshot key with a null value), and a key that is cut off:

    >>> from acktrail.model.share_partition import ZERO_TOPIC_ID, GroupId, SharePartition
    >>> from acktrail.wire.state_key import SNAPSHOT_TYPE, encode_key
    >>> key = encode_key(SNAPSHOT_TYPE, SharePartition(group_id=GroupId("orders"), topic_id=ZERO_TOPIC_ID, partition=4))
    >>> rows = [(0, 0, 1_000, key, None), (0, 1, 1_000, key[:5], None)]
    >>> raw = pa.Table.from_pylist([dict(zip(RAW_RECORDS.names, row)) for row in rows], schema=RAW_RECORDS)
    >>> for row in decode_records(raw).select(["record_type", "group_id", "partition", "decode_status"]).to_pylist():
    ...     print(*row.values())
    tombstone orders 4 decoded
    None None None malformed_key
    """
    batches = [_with_address(batch, _said(batch)) for batch in _raw_batches(raw)]
    return pa.Table.from_batches(batches, DECODED_RECORDS)


def decode_strictly(raw: pa.Table, decoder: Decoder = decode) -> pa.Table:
    """The same table as ``decode_records`` by the strict decoder alone, row by row: the reference for it, and the way
    for other shipped dialects, by their `decoder`.
    """
    batches = [_with_address(batch, decode_rows(batch, decoder)) for batch in _raw_batches(raw)]
    return pa.Table.from_batches(batches, DECODED_RECORDS)


def count_readable(raw: pa.Table) -> int:
    """How many rows ``decode_records`` decodes, without making its columns."""
    count = 0
    for batch in _raw_batches(raw):
        keys = read_keys(batch.column("key"))
        odd = _odd_rows(batch, keys)
        read_values(binary_column(batch.column("value")), keys.is_snapshot, odd.decode, keys.regular)
        count += batch.num_rows - int(np.count_nonzero(~odd.readable))
    return count


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
    values = binary_column(raw.column("value"))
    odd = _odd_rows(raw, keys)
    records = read_values(values, keys.is_snapshot, odd.decode, keys.regular)
    types = keys.is_snapshot.astype(np.int8)
    types[(values.lengths < 0) & keys.is_snapshot] = _TOMBSTONE
    columns = {
        "record_type": _alone_mended("record_type", _RECORD_TYPES.take(pa.array(types)), odd),
        "group_id": _alone_mended("group_id", keys.group_id, odd),
        "topic_id": _alone_mended("topic_id", keys.topic_id, odd),
        "partition": _alone_mended("partition", pa.array(keys.partition), odd),
        **{name: records.numbers[name].to_arrow(CONTENT_COLUMNS.field(name).type) for name in CONTENT_NUMBERS},
        "batches": records.batches.to_arrow(records.numbers["snapshot_epoch"].known),
        "decode_status": _statuses(raw.num_rows, odd),
        "decode_error": _errors(raw.num_rows, odd),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in CONTENT_COLUMNS.names], schema=CONTENT_COLUMNS)


def _odd_rows(raw: pa.RecordBatch, keys: KeyColumns) -> IrregularRows:
    return IrregularRows(
        keys=lambda rows: raw.column("key").take(pa.array(rows)),
        values=lambda rows: raw.column("value").take(pa.array(rows)),
        is_snapshot=keys.is_snapshot,
        trusted=keys.regular,
    )


def _alone_mended(name: str, column: pa.Array, odd: IrregularRows) -> pa.Array:
    """`column` with what the strict decoder says in the rows that only it can read."""
    if odd.said is None:
        return column
    order = np.arange(len(column))
    order[odd.alone] = len(column) + np.arange(len(odd.alone))
    return pa.concat_arrays([column, odd.said.column(name)]).take(pa.array(order))


def _statuses(count: int, odd: IrregularRows) -> pa.StringArray:
    told = [(row, status) for row, status in zip(odd.rows.tolist(), odd.statuses, strict=True) if status != _USUAL]
    bounds, octets, _ = _texts(count, _USUAL, told)
    return pa.StringArray.from_buffers(count, bounds, octets)


def _errors(count: int, odd: IrregularRows) -> pa.StringArray:
    """The reasons, null in all other rows."""
    told = [(row, reason) for row, reason in zip(odd.rows.tolist(), odd.reasons, strict=True) if reason]
    if not told:
        return pa.nulls(count, pa.string())
    bounds, octets, has_text = _texts(count, "", told)
    return pa.StringArray.from_buffers(count, bounds, octets, pa.py_buffer(np.packbits(has_text, bitorder="little")))


def _texts(count: int, usual: str, told: Sequence[tuple[int, str]]) -> tuple[pa.Buffer, pa.Buffer, BoolArray]:
    """Bounds and bytes of `count` texts, `usual` save in the few rows, in their order, that are `told`; and which those
    are. Runs of usual texts are copied as a whole."""
    lengths = np.full(count + 1, len(usual), np.int32)
    lengths[0] = 0
    is_told = np.zeros(count, np.bool_)
    run = memoryview(usual.encode() * count)
    pieces, begin = list[bytes | memoryview](), 0
    for row, text in told:
        octets = text.encode()
        pieces += (run[: (row - begin) * len(usual)], octets)
        lengths[row + 1], is_told[row], begin = len(octets), True, row + 1
    pieces.append(run[: (count - begin) * len(usual)])
    return pa.py_buffer(np.cumsum(lengths, dtype=np.int32)), pa.py_buffer(b"".join(pieces)), is_told
