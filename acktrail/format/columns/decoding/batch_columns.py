"""Record batches as a broker sends them, straight to columns: no object a record.

Where a record begins is known only from the one before; that is one step of Python a record. Everything else is read
for all records at once. What does not look as expected is read again by the strict reader of ``wire.record_batch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.record_batch import DataBatch, batch_records

RECORDS_WITH_HEADERS: Final = RAW_RECORDS.append(pa.field("headers", pa.binary()))
"""`headers`: the bytes that ``record_headers`` reads."""
_LONGEST_VARINT: Final = 5
_LONGEST_VARLONG: Final = 10
_PADDING: Final = bytes(16)
"""Behind the last record: what is read beyond a damaged one ends here."""
_NOT_NEGATIVE: Final = (1 << 63) - 1
_LARGEST: Final = (1 << 31) - 1
"""Bytes that offsets of an Arrow column reach."""
_LEAST_LANES: Final = 32
"""A step over this number of batches costs less than a step of Python for each."""


BatchColumns = Callable[[Sequence[DataBatch]], pa.Table]
"""Makes a table of all records of some batches, in their order, with the columns of ``RAW_RECORDS`` first."""


def partition_runs(rows: pa.Table, column: str) -> Iterator[tuple[int, pa.Table]]:
    """Each run of rows with the same partition in `column`, in their order."""
    partitions = rows.column(column).to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    for start, end in pairwise(bounds):
        if end > start:
            yield int(partitions[start]), rows.slice(start, end - start)


def between(rows: pa.Table, first: int, end: int | None) -> pa.Table:
    """The rows with offsets from `first` up to before `end` (None: all)."""
    offsets = rows.column("offset").to_numpy()
    wanted = (offsets >= first) & (True if end is None else offsets < end)
    return rows if wanted.all() else rows.filter(pa.array(wanted))


def batch_columns(batches: Sequence[DataBatch]) -> pa.Table:
    """Every record of `batches` in their order, as ``RAW_RECORDS``. Raises MalformedRecord as ``batch_records``."""
    try:
        return _Columns(batches).table()
    except _UnexpectedError:
        return _strictly(batches)


class _UnexpectedError(Exception):
    """Bytes that need the strict reader: damaged, or rare (a record with headers)."""


class _Columns:
    """The records of some batches, n in all, in one buffer: arrays of shape (n,)."""

    def __init__(self, batches: Sequence[DataBatch]) -> None:
        self._batches = batches
        self._text = b"".join([*(batch.records for batch in batches), _PADDING])
        if len(self._text) > _LARGEST:
            raise _UnexpectedError
        self._bytes = np.frombuffer(self._text, np.uint8)
        self._counts = np.array([batch.header.record_count for batch in batches], np.int64)
        sizes = np.array([len(batch.records) for batch in batches], np.int64)
        self._starts, self._ends = _bounds(self._bytes, self._counts, sizes)

    def table(self) -> pa.Table:
        starts = self._starts
        times, at = self._varint(starts + 1, _LONGEST_VARLONG)
        deltas, at = self._varint(at, _LONGEST_VARINT)
        key_lengths, keys = self._varint(at, _LONGEST_VARINT)
        value_lengths, values = self._varint(keys + self._room(key_lengths, keys), _LONGEST_VARINT)
        headers = values + self._room(value_lengths, values)
        if (headers + 1 != self._ends).any() or self._bytes[headers].any():
            raise _UnexpectedError
        offsets = self._each([batch.header.base_offset for batch in self._batches]) + deltas
        self._check_deltas(deltas)
        columns = [
            _numbers(self._each([batch.partition for batch in self._batches]).astype(np.int32)),
            _numbers(offsets),
            _numbers(self._timestamps(times)),
            *self._texts(keys, key_lengths, values, value_lengths),
        ]
        return pa.Table.from_arrays(columns, schema=RAW_RECORDS)

    def _room(self, lengths: Int64Array, at: Int64Array) -> Int64Array:
        """Bytes that keys or values take; a null takes none."""
        room: Int64Array = np.maximum(lengths, 0)
        if (lengths < -1).any() or (at + room >= self._ends).any():
            raise _UnexpectedError
        return room

    def _varint(self, at: Int64Array, most: int) -> tuple[Int64Array, Int64Array]:
        """The zigzag numbers at `at`, of at most `most` bytes, and where each ends."""
        value, ends = _unsigned(self._bytes, at, most)
        return (value >> 1) & _NOT_NEGATIVE ^ -(value & 1), ends

    def _each(self, numbers: Sequence[int]) -> Int64Array:
        """A number a batch, for each of its records."""
        return np.repeat(np.array(numbers, np.int64), self._counts)

    def _check_deltas(self, deltas: Int64Array) -> None:
        """Raise unless the offsets of each batch ascend and stay below its last one."""
        begins = (np.cumsum(self._counts) - self._counts)[self._counts > 0]
        steps = np.diff(deltas, prepend=-1)
        steps[begins] = 1
        last = self._each([batch.header.last_offset_delta for batch in self._batches])
        if (steps <= 0).any() or (deltas < 0).any() or (deltas > last).any():
            raise _UnexpectedError

    def _timestamps(self, deltas: Int64Array) -> Int64Array:
        headers = [batch.header for batch in self._batches]
        created = self._each([header.base_timestamp_ms for header in headers]) + deltas
        if not any(header.has_append_time for header in headers):
            return created
        newest = self._each([header.max_timestamp_ms for header in headers])
        return np.where(self._each([header.has_append_time for header in headers]) != 0, newest, created)

    def _texts(
        self, keys: Int64Array, key_lengths: Int64Array, values: Int64Array, value_lengths: Int64Array
    ) -> tuple[pa.Array, pa.Array]:
        """Keys and values: the buffer as one column of pieces (key, between, value, between ...); every fourth is
        taken: that copies each once, without an index a byte."""
        bounds = np.empty((len(keys), 4), np.int32)
        bounds[:, 0], bounds[:, 1] = keys, keys + np.maximum(key_lengths, 0)
        bounds[:, 2], bounds[:, 3] = values, values + np.maximum(value_lengths, 0)
        ends = np.append(bounds.reshape(-1), np.int32(len(self._bytes)))
        pieces = pa.Array.from_buffers(pa.binary(), 4 * len(keys), [None, pa.py_buffer(ends), pa.py_buffer(self._text)])
        rows = 4 * np.arange(len(keys))
        return pieces.take(_numbers(rows, key_lengths >= 0)), pieces.take(_numbers(rows + 2, value_lengths >= 0))


def _numbers(values: npt.NDArray[Any], is_known: BoolArray | None = None) -> pa.Array:
    """As ``pa.array``, which looks for pandas: that takes longer than most reads."""
    bits = None if is_known is None else pa.py_buffer(np.packbits(is_known, bitorder="little"))
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(np.ascontiguousarray(values))])


def _bounds(octets: npt.NDArray[np.uint8], counts: Int64Array, sizes: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Where each record begins, behind its length, and where it ends; `counts` records and `sizes` bytes a batch.

    A step takes the next record of every batch that has one left, as long as these are many; the others' records are
    walked one by one.
    """
    if (counts < 0).any() or int(counts.sum()) > len(octets):
        raise _UnexpectedError
    order = np.argsort(-counts, kind="stable")
    left, rows, limits = counts[order], (np.cumsum(counts) - counts)[order], np.cumsum(sizes)[order]
    at = limits - sizes[order]
    starts, ends = np.empty(int(counts.sum()), np.int64), np.empty(int(counts.sum()), np.int64)
    together = int(left[_LEAST_LANES - 1]) if len(left) >= _LEAST_LANES else 0
    lanes = np.searchsorted(-left, -np.arange(together), side="left").tolist()
    for step, alive in enumerate(lanes):
        length, begin = _unsigned(octets, at[:alive], _LONGEST_VARINT)
        end = begin + (length >> 1)
        if (length & 1).any() or (end > limits[:alive]).any():
            raise _UnexpectedError
        starts[rows[:alive] + step], ends[rows[:alive] + step], at[:alive] = begin, end, end
    text = octets.tobytes() if len(left) and left[0] > together else b""
    for lane in range(int(np.count_nonzero(left > together))):
        rest = slice(int(rows[lane]) + together, int(rows[lane] + left[lane]))
        starts[rest], ends[rest], at[lane] = _walk(text, int(at[lane]), int(limits[lane]), rest.stop - rest.start)
    if (at != limits).any():
        raise _UnexpectedError
    return starts, ends


def _walk(text: bytes, at: int, limit: int, count: int) -> tuple[list[int], list[int], int]:
    """Begin and end of `count` records from `at` on, and the end of the last one."""
    starts, ends = list[int](), list[int]()
    for _ in range(count):
        low = text[at]
        if low < 0x80:
            at, size = at + 1, low
        elif (high := text[at + 1]) < 0x80:
            at, size = at + 2, low & 0x7F | high << 7
        else:
            size, at = _long_size(text, at)
        if size & 1 or at + (size >> 1) > limit:
            raise _UnexpectedError
        starts.append(at)
        at += size >> 1
        ends.append(at)
    return starts, ends, at


def _long_size(text: bytes, at: int) -> tuple[int, int]:
    """The unsigned number of up to five bytes at `at`, and where it ends."""
    size = 0
    for index in range(_LONGEST_VARINT):
        octet = text[at + index]
        size |= (octet & 0x7F) << (7 * index)
        if octet < 0x80:
            return size, at + index + 1
    raise _UnexpectedError


def _unsigned(octets: npt.NDArray[np.uint8], at: Int64Array, most: int) -> tuple[Int64Array, Int64Array]:
    """The unsigned variable-length numbers at `at`, of at most `most` bytes, and where each ends. The buffer's padding
    ends every number."""
    first = octets[at]
    value, ends = (first & 0x7F).astype(np.int64), at + 1
    rows = np.flatnonzero(first & 0x80)
    for index in range(1, most):
        if not len(rows):
            break
        following = octets[ends[rows]]
        value[rows] |= (following & 0x7F).astype(np.int64) << (7 * index)
        ends[rows] += 1
        rows = rows[(following & 0x80) != 0]
    if len(rows):
        raise _UnexpectedError
    return value, ends


def columns_with_headers(batches: Sequence[DataBatch]) -> pa.Table:
    """Every record of `batches` in their order, as ``RECORDS_WITH_HEADERS``. Raises as ``batch_columns``."""
    return _strictly(batches, RECORDS_WITH_HEADERS)


def _strictly(batches: Sequence[DataBatch], schema: pa.Schema = RAW_RECORDS) -> pa.Table:
    """The same records one by one, with the first columns of ``RECORDS_WITH_HEADERS``."""
    rows = [
        (batch.partition, record.offset, record.timestamp_ms, record.key, record.value, record.headers)
        for batch in batches
        for record in batch_records(batch.header, batch.records)
    ]
    columns = [*zip(*rows, strict=True)] if rows else [()] * len(RECORDS_WITH_HEADERS.names)
    pairs = zip(columns, schema, strict=False)
    return pa.Table.from_arrays([pa.array(list(column), field.type) for column, field in pairs], schema=schema)
