"""Keys go to the partitions that Kafka's producers choose."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail_expansion.law.partition_ledger import KeyMapping, murmur2
from acktrail_simulation.expansion.key_partitions import partition_of_key


@given(st.binary(max_size=40), st.integers(1, 2_000))
def test_a_key_has_one_partition_among_those_there_are(key: bytes, count: int) -> None:
    """The same each time and below the count; the sign of the hash is cut off as Kafka does it (``toPositive``)."""
    java = partition_of_key(KeyMapping.MURMUR2, key, count)
    signed = murmur2(key) - 2**32 * (murmur2(key) >> 31)

    assert java == (signed & 0x7FFFFFFF) % count
    assert partition_of_key(KeyMapping.CRC32, key, count) == (zlib.crc32(key) % count if key else None)


def test_what_is_not_known_is_none() -> None:
    """No key, librdkafka's empty key and a mapping that is not known lead to no partition; a topic without partitions
    is an error."""
    assert partition_of_key(KeyMapping.MURMUR2, None, 3) is None
    assert partition_of_key(KeyMapping.CRC32, b"", 3) is None
    assert partition_of_key(KeyMapping.NONE, b"key", 3) is None
    with pytest.raises(ValueError, match="at least one partition, not 0"):
        partition_of_key(KeyMapping.MURMUR2, b"key", 0)
