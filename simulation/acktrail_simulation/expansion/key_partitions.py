"""The partition of a key as Kafka's producers choose it, and the partitions where its earlier records can be."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from math import gcd
from typing import Final

from acktrail_expansion.ordering.order import KeyMapping

_M: Final = 0x5BD1E995
_R: Final = 24
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def partition_of_key(mapping: KeyMapping, key: bytes | None, partition_count: int) -> int | None:
    """The partition among `partition_count` that a producer chooses for `key`; None where it may be each of them: no
    key, librdkafka's empty key, and ``KeyMapping.NONE``."""
    if key is None or mapping is KeyMapping.NONE:
        return None
    if mapping is KeyMapping.MURMUR2:
        return (murmur2(key) & _POSITIVE) % partition_count
    return zlib.crc32(key) % partition_count if key else None


def sources_across(counts: Sequence[int], destination: int, mapping: KeyMapping) -> dict[int, int]:
    """What `destination` waits for after the last of several changes of a topic's partitions: each source, with the
    index in `counts` (oldest first) of the newest count by which keys moved from there.

    The source's records up to the change that ended that count are to be finished. The newest count alone is not
    enough: from 4 to 6 to 9 a key can move from 0 to 4 to 1, and 4 can have no record of it, so that 1 is to wait for
    0, too, which no single change shows. Counts may fall, as they do in KIP-253. Cost: the sum of `counts`.

    Raises:
        ValueError: `counts` has fewer than two members or one that is not above 0, or there is no such destination.
    """
    if len(counts) < 2 or min(counts) < 1 or not 0 <= destination < counts[-1]:
        raise ValueError(f"no change of partitions with {destination} as destination: {list(counts)}")
    found: dict[int, int] = {}
    for index, count in enumerate(counts[:-1]):
        step = 1 if mapping is KeyMapping.NONE else gcd(count, counts[-1])
        found.update(dict.fromkeys(range(destination % step, count, step), index))
    found.pop(destination, None)
    return found


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
