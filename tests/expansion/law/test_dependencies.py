"""The partitions that a partition depends on are those that its keys came from, as Kafka's producers choose them."""

from __future__ import annotations

import zlib
from math import lcm
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.golden_vectors import SEED

from acktrail_expansion.keys.key_reading import hashes_of_keys
from acktrail_expansion.law.order import KeyMapping, moves_with_every_count, sources_of
from acktrail_simulation.expansion.key_partitions import murmur2, partition_of_key

KIP = SEED["kip253"]
counts = st.integers(1, 14)


def moves(old_count: int, new_count: int, mapping: KeyMapping = KeyMapping.MURMUR2) -> list[list[int]]:
    """Source and destination of every pair that depends."""
    pairs = [(source, to) for to in range(new_count) for source in sources_of(to, old_count, new_count, mapping)]
    return sorted(map(list, pairs))


@pytest.mark.parametrize("case", KIP["dependencies"], ids=lambda case: f"{case['n_old']} to {case['n_new']}")
def test_the_vectors_of_dependencies(case: dict[str, Any]) -> None:
    """R003-02: the sources of every partition are those of the worked examples."""
    old, new = case["n_old"], case["n_new"]
    found = {str(each): [*sources_of(each, old, new, KeyMapping.MURMUR2)] for each in range(new)}

    assert found == case["sources_of"]


def test_the_gap_in_the_rule_of_lower_partitions() -> None:
    """R003-05: from 2 to 3 keys move between partitions that were there before, which a map that only new partitions
    have does not show."""
    assert moves(2, 3) == KIP["kip_lower_partition_rule_gap"]["moves"]


@given(counts, counts, st.sampled_from(KeyMapping))
def test_sources_and_destinations_are_the_moves_of_all_hashes(old: int, more: int, mapping: KeyMapping) -> None:
    """R003-02: a destination depends on a source exactly when some hash moves from there to here; without a known
    mapping each new partition on each old one. What is a source by every count is one by each count in between."""
    new = old + more
    found = moves(old, new, mapping)
    expected = {(h % old, h % new) for h in range(lcm(old, new)) if h % old != h % new}
    if mapping is KeyMapping.NONE:
        expected = {(source, to) for source in range(old) for to in range(old, new)}
    assert found == sorted(map(list, expected))
    for to in range(old, new):
        if moves_with_every_count(to, old, new, mapping):
            by_each = [{*sources_of(to, old, middle, mapping)} for middle in range(to + 1, new)]
            assert all({*sources_of(to, old, new, mapping)} <= own for own in by_each)


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


def test_the_hash_is_kafkas() -> None:
    """murmur2 gives what Kafka's own test of it expects, at every remainder of the length by four, without its sign."""
    found = hashes_of_keys(KeyMapping.MURMUR2, pa.array([*KAFKAS], pa.binary()))
    assert found.tolist() == [number & 0x7FFFFFFF for number in KAFKAS.values()]


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
