"""Keys of the state topic, many at once: int16 type, int16 length, group id, 16-byte topic id, int32 partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.gather import Mask, binary_column
from acktrail.model.share_partition import TopicId, topic_id_bytes

__all__ = ["KeyColumns", "read_keys", "snapshot_keys"]

_HEAD: Final = np.dtype([("kind", ">i2"), ("length", ">i2")])
_TAIL: Final = np.dtype([("topic_id", "V16"), ("partition", ">i4")])
_FIXED_BYTES: Final = _HEAD.itemsize + _TAIL.itemsize

_ALPHABET: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)
_SEXTETS: Final = np.array([18, 12, 6, 0], np.uint32)
_TOPIC_ID_CHARACTERS: Final = 22
_FIRST_NOT_ASCII: Final = 0x80


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumns:
    """What the keys say. Rows that are not `regular` hold nothing of meaning."""

    regular: Mask
    is_snapshot: Mask
    group_id: pa.StringArray
    topic_id: pa.StringArray
    partition: npt.NDArray[np.int32]


def read_keys(keys: pa.BinaryArray) -> KeyColumns:
    """Columns of `keys`; regular are snapshot and update keys of exactly the right length with a UTF-8 group id."""
    column = binary_column(keys)
    head, tail = column.heads_and_ends(_HEAD, _TAIL)
    kind, length = head["kind"], head["length"]
    regular = (length >= 0) & (column.lengths == length + np.int64(_FIXED_BYTES)) & ((kind == 0) | (kind == 1))
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
    distinct = pa.array([topic_id_bytes(TopicId(topic)) for topic in topics.dictionary.to_pylist()], pa.binary())
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


def _group_ids(keys: pa.BinaryArray, regular: Mask) -> tuple[pa.StringArray, Mask]:
    """The group ids of regular keys, and which keys are regular still: not those whose group id is no UTF-8."""
    if not regular.all():
        keys = pc.if_else(pa.array(regular), keys, pa.scalar(None, pa.binary()))
    octets = pc.binary_slice(keys, _HEAD.itemsize, -_TAIL.itemsize)
    texts = _texts(octets)
    if texts is not None:
        return texts, regular
    one_by_one = [_text(group_id) for group_id in octets.to_pylist()]
    return pa.array(one_by_one, pa.string()), regular & np.array([text is not None for text in one_by_one])


def _texts(octets: pa.BinaryArray) -> pa.StringArray | None:
    """`octets` as text; None where some are no UTF-8. Where all is ASCII that is seen at once, without a copy."""
    validity, bounds, data = octets.buffers()
    if data is None or np.frombuffer(data, np.uint8).max(initial=0) < _FIRST_NOT_ASCII:
        return pa.StringArray.from_buffers(len(octets), bounds, data, validity, octets.null_count, octets.offset)
    try:
        return octets.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _text(octets: bytes | None) -> str | None:
    try:
        return None if octets is None else octets.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _topic_ids(topic_ids: npt.NDArray[np.void]) -> pa.StringArray:
    """Kafka's text form, made once for each distinct id."""
    distinct, places = _distinct(topic_ids)
    texts = _base64(np.frombuffer(distinct.tobytes(), np.uint8).reshape(-1, 16))
    characters = texts.view(f"V{_TOPIC_ID_CHARACTERS}").ravel().take(places)
    bounds = np.arange(len(topic_ids) + 1, dtype=np.int32) * _TOPIC_ID_CHARACTERS
    return pa.StringArray.from_buffers(len(topic_ids), pa.py_buffer(bounds), pa.py_buffer(characters))


def _distinct(topic_ids: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.void], npt.NDArray[np.int32]]:
    """Each id once, and the place of each row's among them.

    Ids are random: their first halves tell them apart, and to look these up is three times quicker. Where two ids have
    the same first half they are looked up as they are.
    """
    halves = topic_ids.view(np.uint64).reshape(-1, 2)
    encoded = pa.array(np.ascontiguousarray(halves[:, 0])).dictionary_encode()
    places = encoded.indices.to_numpy()
    distinct = np.empty(len(encoded.dictionary), topic_ids.dtype)
    distinct[places] = topic_ids
    if (distinct.view(np.uint64)[1::2].take(places) == halves[:, 1]).all():
        return distinct, places
    raw = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(topic_ids), [None, pa.py_buffer(topic_ids)])
    encoded = raw.dictionary_encode()
    return np.frombuffer(b"".join(encoded.dictionary.to_pylist()), topic_ids.dtype), encoded.indices.to_numpy()


def _base64(octets: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """URL-safe base64 without padding of rows of 16 bytes: six groups of three bytes, of which the last is padded."""
    padded = np.zeros((len(octets), 18), np.uint32)
    padded[:, :16] = octets
    words = padded[:, 0::3] << 16 | padded[:, 1::3] << 8 | padded[:, 2::3]
    characters = _ALPHABET[words[:, :, None] >> _SEXTETS & 63].reshape(len(octets), 24)
    return np.ascontiguousarray(characters[:, :_TOPIC_ID_CHARACTERS])
