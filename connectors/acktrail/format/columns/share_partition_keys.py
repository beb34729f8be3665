"""Share partitions by columns that name them: as numbers, as Kafka's text, and where their records lie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray, Int64Array
from acktrail.model.share_partition import KEY_COLUMNS, GroupId, SharePartition, TopicId, state_partition_of

_ROWS_AT_ONCE: Final = 1 << 20
_ASCII: Final = 128
_MOST_CODES: Final = 1 << 62


def key_codes(columns: Iterable[pa.ChunkedArray]) -> Int64Array:
    """A number for each row, equal where all `columns` are equal; from 0 as keys first appear. Null equals null. Cost:
    a hash table lookup for each row, and one for each of a column that is no dictionary.

    >>> groups, partitions = pa.chunked_array([["a", "a", "b", "a"]]), pa.chunked_array([[0, 1, 1, 0]])
    >>> key_codes([groups, partitions]).tolist()
    [0, 1, 2, 0]
    """
    codes, count = np.zeros(1, np.int64), 1
    for column in columns:
        indices, distinct = _encoded(column)
        if count > _MOST_CODES // distinct:
            codes, count = _encoded(pa.chunked_array([codes]))
        codes, count = codes * distinct + indices, count * distinct
    return _encoded(pa.chunked_array([codes]))[0]


def first_matches(rows: Sequence[pa.ChunkedArray], among: Sequence[pa.ChunkedArray]) -> pa.Array:
    """For each row of the key columns `rows` the first row of `among` with the same key; null where there is none.

    >>> first_matches([pa.chunked_array([["b", "c"]])], [pa.chunked_array([["a", "b", "b"]])]).to_pylist()
    [1, None]
    """
    count = len(rows[0])
    codes = key_codes(
        pa.chunked_array([*own.chunks, *other.cast(own.type).chunks], own.type)
        for own, other in zip(rows, among, strict=True)
    )
    own, others = codes[:count], codes[count:]
    first = np.full(len(codes), -1)
    first[others[::-1]] = np.arange(len(others))[::-1]  # of several assignments the last one stays: the first row
    matches = first[own]
    return pa.array(matches, mask=matches < 0)


def are_equal(texts: pa.ChunkedArray, text: str) -> BoolArray:
    """Which rows are `text`. Of a dictionary, each text is compared once."""
    found = [
        pc.equal(chunk.dictionary, text).take(chunk.indices)
        if pa.types.is_dictionary(texts.type)
        else pc.equal(chunk, text)
        for chunk in texts.chunks
    ]
    mask: BoolArray = pc.fill_null(pa.chunked_array(found, pa.bool_()), fill_value=False).to_numpy()
    return mask


def coordinator_keys(rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """``group:topicId:partition`` of each row, as ``SharePartition.coordinator_key``; an unknown topic id is empty."""
    topics = pc.fill_null(rows["topic_id"], "")
    return pc.binary_join_element_wise(rows["group_id"], topics, pc.cast(rows["partition"], pa.string()), ":")


def state_partitions_of(rows: pa.Table, count: int) -> Int64Array:
    """The state partition of each row (``KEY_COLUMNS``, none null): ``state_partition_of`` for many rows at once.
    Java's hash of ``c[0] .. c[n-1]`` is the sum of ``c[i] * 31**(n-1-i)`` modulo 2**32. For ASCII text the bytes are
    the code units; other keys are hashed one by one."""
    batches = rows.select(KEY_COLUMNS).to_batches(max_chunksize=_ROWS_AT_ONCE)
    pieces = [_homes(batch, count) for batch in batches if batch.num_rows]
    return np.concatenate([np.empty(0, np.int64), *pieces])


def _homes(rows: pa.RecordBatch, count: int) -> Int64Array:
    texts = coordinator_keys(rows)
    bounds = np.frombuffer(texts.buffers()[1], np.int32)[: len(texts) + 1]
    units = np.frombuffer(texts.buffers()[2], np.uint8)[: bounds[-1]]
    lengths = np.diff(bounds)
    powers = np.cumprod(np.append(np.uint32(1), np.full(lengths.max(), 31, np.uint32)), dtype=np.uint32)
    exponents = np.repeat(bounds[1:], lengths) - 1 - np.arange(len(units))
    terms = _sums(units * powers[exponents], bounds) & 0xFFFFFFFF
    signed = np.abs(terms.astype(np.uint32).view(np.int32).astype(np.int64))
    homes = np.where(signed == 1 << 31, 0, signed % count)
    for row in np.flatnonzero(_sums(units >= _ASCII, bounds)):
        key = SharePartition(
            group_id=GroupId(rows["group_id"][row].as_py()),
            topic_id=TopicId(rows["topic_id"][row].as_py()),
            partition=rows["partition"][row].as_py(),
        )
        homes[row] = state_partition_of(key, count)
    return homes


def _sums(numbers: npt.NDArray[np.generic], bounds: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """The sums of `numbers` between neighbouring `bounds`."""
    total = np.append(np.uint64(0), np.cumsum(numbers, dtype=np.uint64))
    sums: npt.NDArray[np.uint64] = total[bounds[1:]] - total[bounds[:-1]]
    return sums


def _encoded(column: pa.ChunkedArray) -> tuple[Int64Array, int]:
    """The distinct values' numbers, row by row, and how many there are."""
    if pa.types.is_dictionary(column.type) and column.num_chunks:
        chunks = column.unify_dictionaries().chunks
        texts = pa.concat_arrays([chunks[0].dictionary, pa.nulls(1, column.type.value_type)])
        numbers = texts.dictionary_encode("encode").indices.to_numpy()  # equal texts that stand twice, and null
        rows = [chunk.indices.fill_null(len(texts) - 1).to_numpy() for chunk in chunks]
        return numbers[np.concatenate(rows)].astype(np.int64), len(texts)
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    indices = [chunk.indices.to_numpy() for chunk in encoded.chunks]
    count = len(encoded.chunk(encoded.num_chunks - 1).dictionary) if encoded.num_chunks else 0
    return np.concatenate([np.empty(0, np.int64), *indices]), max(1, count)
