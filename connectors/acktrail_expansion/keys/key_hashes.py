"""Hashes of keys, many at once, as producers compute them to choose partitions (`law.key_mapping`)."""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

from acktrail.columnar.binary_column import BinaryColumn, Int64Array
from acktrail_expansion.law.key_mapping import KeyMapping, murmur2

ANY_PARTITION: Final = -1
"""In place of a hash: the producer may choose each partition."""
_LONG: Final = 512
"""Bytes: a key with more is hashed by itself; a step over all others would be one for this key alone."""
_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
_WORD: Final = np.dtype([("word", "<u4")])
_POSITIVE: Final = 0x7FFFFFFF

_Uint32Array = npt.NDArray[np.uint32]


def hashes_of_keys(mapping: KeyMapping, keys: BinaryColumn) -> Int64Array:
    """The positive hash of each key, of shape (n,); modulo the partition count it is the partition. ``ANY_PARTITION``:
    no key, librdkafka's empty key, and each key under ``KeyMapping.NONE``. Cost: one step over the keys for every four
    bytes (murmur2) or every byte (crc32) of the longest below 512 bytes, and one of Python for each longer key."""
    if mapping is KeyMapping.NONE:
        return np.full(len(keys.lengths), ANY_PARTITION, np.int64)
    is_murmur2 = mapping is KeyMapping.MURMUR2
    short = (keys.lengths <= _LONG) & (keys.lengths >= (0 if is_murmur2 else 1))
    rows = np.flatnonzero(short)
    found = np.full(len(keys.lengths), ANY_PARTITION, np.int64)
    found[rows] = _murmur2(keys.take(rows)) & _POSITIVE if is_murmur2 else _crc32(keys.take(rows))
    for row in np.flatnonzero(keys.lengths > _LONG).tolist():
        key = keys.data[keys.starts[row] : keys.ends[row]].tobytes()
        found[row] = murmur2(key) & _POSITIVE if is_murmur2 else zlib.crc32(key)
    return found


def _murmur2(keys: BinaryColumn) -> _Uint32Array:
    """Longest first, the rows that have a word more are always the first ones."""
    order = np.argsort(-keys.lengths, kind="stable")
    starts, lengths = keys.starts[order], keys.lengths[order]
    hashed = _SEED ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for index in range(int(words[0]) if len(words) else 0):
        own = slice(0, int(np.searchsorted(-words, -index, side="left")))
        word = keys.gather(starts[own] + 4 * index, _WORD)["word"].astype(np.uint32) * _M
        word = (word ^ word >> np.uint32(24)) * _M
        hashed[own] = hashed[own] * _M ^ word
    _add_rest(hashed, keys, starts, lengths)
    hashed = (hashed ^ hashed >> np.uint32(13)) * _M
    hashed ^= hashed >> np.uint32(15)
    found = np.empty_like(hashed)
    found[order] = hashed
    return found


def _add_rest(hashed: _Uint32Array, keys: BinaryColumn, starts: Int64Array, lengths: Int64Array) -> None:
    """The last one to three bytes of each key, in place."""
    rest = np.zeros(len(hashed), np.uint32)
    for place in range(3):
        own = np.flatnonzero((lengths & 3) > place)
        octets = keys.data[starts[own] + (lengths[own] & ~3) + place]
        rest[own] |= octets.astype(np.uint32) << np.uint32(8 * place)
    own = np.flatnonzero(lengths & 3)
    hashed[own] = (hashed[own] ^ rest[own]) * _M


def _crc_table() -> _Uint32Array:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> np.uint32(1) ^ np.uint32(0xEDB88320), table >> np.uint32(1))
    return table


_CRC: Final = _crc_table()


def _crc32(keys: BinaryColumn) -> _Uint32Array:
    order = np.argsort(-keys.lengths, kind="stable")
    starts, lengths = keys.starts[order], keys.lengths[order]
    crc = np.full(len(order), 0xFFFFFFFF, np.uint32)
    for index in range(int(lengths[0]) if len(lengths) else 0):
        own = slice(0, int(np.searchsorted(-lengths, -index, side="left")))
        octets = keys.data[starts[own] + index]
        crc[own] = _CRC[(crc[own] ^ octets) & np.uint32(0xFF)] ^ crc[own] >> np.uint32(8)
    found = np.empty_like(crc)
    found[order] = ~crc
    return found
