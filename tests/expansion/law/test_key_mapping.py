"""Keys go to the partitions that Kafka's producers choose."""

from __future__ import annotations

import pytest

from acktrail_expansion.law.partition_ledger import murmur2

KAFKAS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"": 275646681,
}
"""Of Kafka's own test of its hash (``UtilsTest``), and the empty key of its clients in other languages."""


@pytest.mark.parametrize(("key", "expected"), KAFKAS.items(), ids=str)
def test_the_hash_is_kafkas(key: bytes, expected: int) -> None:
    """murmur2 gives what Kafka's own test of it expects, at every remainder of the length by four."""
    assert murmur2(key) == expected % 2**32
