"""How producers choose the partition of a key."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

_M: Final = 0x5BD1E995
_R: Final = 24
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


class KeyMapping(StrEnum):
    """The partitioner that the producers of a topic use. Kafka does not know it: it is configured for each topic."""

    MURMUR2 = "murmur2"
    """Of Kafka's Java clients (``BuiltInPartitioner``), and of librdkafka as ``murmur2`` or ``murmur2_random``."""
    CRC32 = "crc32"
    """Of librdkafka by default (``consistent_random``)."""
    NONE = "none"
    """Another one, or chosen by the application: each partition may get records of each key."""


def murmur2(key: bytes) -> int:
    """The hash of Kafka's Java clients (``Utils.murmur2``), as an unsigned number of 32 bits. Cost: O(len(key))."""
    hashed = (_SEED ^ len(key)) & _MASK
    whole = len(key) & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _M & _MASK
        word = (word ^ word >> _R) * _M & _MASK
        hashed = hashed * _M & _MASK ^ word
    if rest := key[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15
