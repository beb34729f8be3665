"""Hashes of keys, many at once, as producers compute them to choose partitions (`law.key_mapping`)."""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.binary_column import Int64Array, binary_column
from acktrail_expansion.law.key_mapping import KeyMapping

ANY_PARTITION: Final = -1
"""In place of a hash: the producer may choose each partition."""
_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
_WORD: Final = np.dtype([("word", "<u4")])
_POSITIVE: Final = 0x7FFFFFFF


def hashes_of_keys(mapping: KeyMapping, keys: pa.BinaryArray) -> Int64Array:
    """The positive hash of each key, of shape (n,); modulo the partition count it is the partition. ``ANY_PARTITION``:
    no key, and librdkafka's empty key. `mapping` is a known one."""
    if mapping is KeyMapping.MURMUR2:
        return _murmur2(keys)
    return np.array([zlib.crc32(key) if key else ANY_PARTITION for key in keys.to_pylist()], np.int64)


def _murmur2(keys: pa.BinaryArray) -> Int64Array:
    """Word by word of the keys that have one more. Three zeros behind each key fill the word at its end."""
    padded = binary_column(pc.binary_join_element_wise(keys, b"\0\0\0", b""))
    lengths, at = padded.lengths - 3, 0
    hashed, rows = _SEED ^ lengths.astype(np.uint32), np.flatnonzero(lengths > 0)
    while len(rows):
        word = padded.gather(padded.starts[rows] + at, _WORD)["word"].astype(np.uint32)
        at += 4
        mixed = word * _M
        mixed = (mixed ^ mixed >> np.uint32(24)) * _M
        is_whole = lengths[rows] >= at
        hashed[rows] = np.where(is_whole, hashed[rows] * _M ^ mixed, (hashed[rows] ^ word) * _M)
        rows = rows[lengths[rows] > at]
    hashed = (hashed ^ hashed >> np.uint32(13)) * _M
    hashed ^= hashed >> np.uint32(15)
    return np.where(lengths < 0, ANY_PARTITION, (hashed & _POSITIVE).astype(np.int64))
