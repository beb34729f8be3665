"""Share partitions by columns that name them: keys of the state topic, numbers, Kafka's text, and where records lie.

A key is int16 type, int16 length, group id, 16-byte topic id, int32 partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray, Int64Array, binary_column
from acktrail.model.share_partition import (
    KEY_COLUMNS,
    GroupId,
    SharePartition,
    TopicId,
    state_partition_of,
    topic_id_bytes,
)

_HEAD: Final = np.dtype([("kind", ">i2"), ("length", ">i2")])
_TAIL: Final = np.dtype([("topic_id", "V16"), ("partition", ">i4")])
_FIXED_BYTES: Final = _HEAD.itemsize + _TAIL.itemsize
_ALPHABET: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_SEXTETS: Final = np.array([18, 12, 6, 0], np.uint32)
_TOPIC_ID_CHARACTERS: Final = 22
_SPREAD: Final = np.uint64(0x9E37_79B9_7F4A_7C15)
"""2**64 over the golden ratio: the upper bits of a product with it differ where any bits of a factor do."""
_BUCKET_BITS: Final = 20
_FIRST_NOT_ASCII: Final = 0x80
_topic_octets = lru_cache(maxsize=1 << 16)(topic_id_bytes)
"""The same topics come with every batch of records."""
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


def grouped(rows: pa.Table, keys: Sequence[str], /, **functions: str) -> pa.Table:
    """One row for each key in the columns `keys`, in the order in which they come; behind it, under its own name, each
    column of `functions` by its function.

    >>> rows = pa.table({"group": ["a", "b", "a"], "count": [1, 2, 3]})
    >>> grouped(rows, ["group"], count="sum").to_pylist()
    [{'group': 'a', 'count': 4}, {'group': 'b', 'count': 2}]
    """
    sums = rows.group_by([*keys], use_threads=False).aggregate([*functions.items()])
    return sums.select([*keys, *map("_".join, functions.items())]).rename_columns([*keys, *functions])


def first_matches(rows: pa.Table, among: pa.Table, key: Sequence[str] = KEY_COLUMNS) -> pa.Array:
    """For each of `rows` the first row of `among` with the same values in the columns `key`; null where there is none.

    >>> rows, among = pa.table({"group": ["b", "c"]}), pa.table({"group": ["a", "b", "b"]})
    >>> first_matches(rows, among, ["group"]).to_pylist()
    [1, None]
    """
    both = ((rows[name], among[name].cast(rows[name].type)) for name in key)
    codes = key_codes(pa.chunked_array([*own.chunks, *other.chunks], own.type) for own, other in both)
    own, others = np.split(codes, [rows.num_rows])
    first = np.full(len(codes), -1)
    first[others[::-1]] = np.arange(len(others))[::-1]  # of several assignments the last one stays: the first row
    matches = first[own]
    return pa.array(matches, mask=matches < 0)


def are_equal(texts: pa.ChunkedArray, text: str) -> BoolArray:
    """Which rows are `text`. Of a dictionary, each text is compared once."""
    found = [np.zeros(0, np.bool_), *(_are_equal(chunk, text) for chunk in texts.chunks)]
    return np.concatenate(found)


def _are_equal(texts: pa.Array, text: str) -> BoolArray:
    is_dictionary = pa.types.is_dictionary(texts.type)
    known = pc.fill_null(pc.equal(texts.dictionary if is_dictionary else texts, text), fill_value=False)
    mask: BoolArray = known.to_numpy(zero_copy_only=False)
    if not is_dictionary:
        return mask
    equal: BoolArray = np.append(mask, False)[pc.fill_null(texts.indices, len(mask)).to_numpy()]
    return equal


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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumns:
    """Decoded keys; rows that are not `regular` are without meaning. All columns have the length of the keys."""

    regular: BoolArray
    is_snapshot: BoolArray
    group_id: pa.StringArray
    topic_id: pa.StringArray
    partition: npt.NDArray[np.int32]


def read_keys(keys: pa.BinaryArray) -> KeyColumns:
    """Columns of `keys`; regular ones have type snapshot or update, exactly the right length and a UTF-8 group id."""
    column = binary_column(keys)
    head, tail = column.heads_and_ends(_HEAD, _TAIL)
    kind, length = head["kind"].astype(np.int16), head["length"].astype(np.int64)
    regular = (length >= 0) & (column.lengths == length + _FIXED_BYTES) & ((kind == 0) | (kind == 1))
    group_id, regular = _group_ids(keys, regular)
    return KeyColumns(
        regular=regular,
        is_snapshot=kind == 0,
        group_id=group_id,
        topic_id=_topic_ids(np.ascontiguousarray(tail["topic_id"])),
        partition=tail["partition"].astype(np.int32),
    )


def snapshot_keys(group_id: pa.StringArray, topic_id: pa.StringArray, partition: pa.Int32Array) -> pa.BinaryArray:
    """The snapshot key of each share partition."""
    octets = group_id.cast(pa.binary())
    head = np.zeros(len(octets), _HEAD)
    head["length"] = pc.binary_length(octets).to_numpy()
    topics = topic_id.dictionary_encode()
    distinct = pa.array([_topic_octets(TopicId(topic)) for topic in topics.dictionary.to_pylist()], pa.binary())
    tail = partition.to_numpy().astype(">i4")
    pieces = (fixed_binary(head), octets, distinct.take(topics.indices), fixed_binary(tail))
    return pc.binary_join_element_wise(*pieces, b"")


def fixed_binary(structures: npt.NDArray[Any]) -> pa.BinaryArray:
    """Structures of one width as binary values."""
    width = structures.dtype.itemsize
    bounds = np.arange(len(structures) + 1, dtype=np.int32) * width
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(structures), [None, pa.py_buffer(bounds), pa.py_buffer(structures)]
    )


def _group_ids(keys: pa.BinaryArray, regular: BoolArray) -> tuple[pa.StringArray, BoolArray]:
    """The group ids of regular keys, and which keys stay regular: those whose group id is UTF-8."""
    if not regular.all():
        keys = pc.if_else(pa.array(regular), keys, pa.scalar(None, pa.binary()))
    octets = pc.binary_slice(keys, _HEAD.itemsize, -_TAIL.itemsize)
    texts = _texts(octets)
    if texts is not None:
        return texts, regular
    one_by_one = octets.to_pylist()
    for row, group_id in enumerate(one_by_one):
        try:
            one_by_one[row] = None if group_id is None else group_id.decode()
        except UnicodeDecodeError:
            one_by_one[row] = None
    return pa.array(one_by_one, pa.string()), regular & np.array([text is not None for text in one_by_one])


def _texts(octets: pa.BinaryArray) -> pa.StringArray | None:
    """`octets` as text without a copy where all of it is ASCII; None where some are not UTF-8."""
    validity, bounds, data = octets.buffers()
    if data is None or np.frombuffer(data, np.uint8).max(initial=0) < _FIRST_NOT_ASCII:
        return pa.StringArray.from_buffers(len(octets), bounds, data, validity, octets.null_count, octets.offset)
    try:
        return octets.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _topic_ids(topic_ids: npt.NDArray[np.void]) -> pa.StringArray:
    """Kafka's text form, made once for each distinct id."""
    distinct, places = _distinct(topic_ids)
    # URL-safe base64 without padding: six groups of three bytes, the last one padded.
    padded = np.zeros((len(distinct), 18), np.uint32)
    padded[:, :16] = np.frombuffer(distinct.tobytes(), np.uint8).reshape(-1, 16)
    words = padded[:, 0::3] << 16 | padded[:, 1::3] << 8 | padded[:, 2::3]
    texts = _ALPHABET[words[:, :, None] >> _SEXTETS & 63].reshape(len(distinct), 24)[:, :_TOPIC_ID_CHARACTERS]
    characters = np.ascontiguousarray(texts).view(f"V{_TOPIC_ID_CHARACTERS}").ravel().take(places)
    bounds = np.arange(len(topic_ids) + 1, dtype=np.int32) * _TOPIC_ID_CHARACTERS
    return pa.StringArray.from_buffers(len(topic_ids), pa.py_buffer(bounds), pa.py_buffer(characters))


def _distinct(topic_ids: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.void], Int64Array]:
    """Each distinct id once, and for each row the place of its id among them.

    Ids are hashed into 2**20 buckets, and one row of each bucket represents it. If no bucket has two ids (the usual
    case, checked by one comparison), buckets number the ids without a dictionary, which would be much slower.
    """
    halves = topic_ids.view(np.uint64).reshape(-1, 2)
    rows = np.arange(len(topic_ids))
    buckets = (halves[:, 0] * _SPREAD >> np.uint64(64 - _BUCKET_BITS)).view(np.int64)
    row_of_bucket = np.empty(1 << _BUCKET_BITS, np.int64)  # only entries that are written are read
    row_of_bucket[buckets] = rows
    representative = row_of_bucket.take(buckets)
    if (halves.take(representative, axis=0) == halves).all():
        chosen = np.flatnonzero(representative == rows)
        row_of_bucket[buckets[chosen]] = np.arange(len(chosen))
        return topic_ids[chosen], row_of_bucket.take(buckets)
    raw = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(topic_ids), [None, pa.py_buffer(topic_ids)])
    encoded = raw.dictionary_encode()
    places = encoded.indices.to_numpy().astype(np.int64)
    return np.frombuffer(b"".join(encoded.dictionary.to_pylist()), topic_ids.dtype), places
