"""Keys of the state topic, many at once: int16 type, int16 length, group id, 16-byte topic id, int32 partition."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import BoolArray, Int64Array, binary_column
from acktrail.model.share_partition import TopicId, topic_id_bytes

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


_topic_octets = lru_cache(maxsize=1 << 16)(topic_id_bytes)
"""The same topics come with every batch of records."""


def snapshot_keys(group_id: pa.StringArray, topic_id: pa.StringArray, partition: pa.Int32Array) -> pa.BinaryArray:
    """The snapshot key of each share partition."""
    octets = group_id.cast(pa.binary())
    head = np.zeros(len(octets), _HEAD)
    head["length"] = pc.binary_length(octets).to_numpy()
    topics = topic_id.dictionary_encode()
    distinct = pa.array([_topic_octets(TopicId(topic)) for topic in topics.dictionary.to_pylist()], pa.binary())
    tail = partition.to_numpy().astype(">i4")
    pieces = (_fixed(head), octets, distinct.take(topics.indices), _fixed(tail))
    return pc.binary_join_element_wise(*pieces, b"")


def _fixed(structures: npt.NDArray[Any]) -> pa.BinaryArray:
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
