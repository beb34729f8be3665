"""Which offsets were ever archived: sets, in arrays."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail.reconcile import archived_offsets
from acktrail.reconcile.archived_offsets import RANGES, ArchivedRanges

GREATEST = 2**63 - 1
SCHEMA = pa.schema([("state_partition", pa.int32()), ("group_id", pa.string())])

bounds = st.tuples(st.integers(-3, 30), st.integers(0, 6)).map(lambda drawn: (drawn[0], sum(drawn)))
added = st.lists(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), bounds), max_size=8), max_size=4)


@given(added, st.sampled_from([0, 5, 200_000]))
@settings(max_examples=100)
def test_they_are_sets(pieces: list[list[tuple[int, str, tuple[int, int]]]], kept: int) -> None:
    """However they come, and however often they are united meanwhile: the distinct offsets of each address, in the
    longest ranges."""
    own, plain = ArchivedRanges(), defaultdict[tuple[int, str], set[int]](set)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(archived_offsets, "_ROWS_KEPT", kept)
        for piece in pieces:
            own.add(*columns(piece))
            for number, group, (first, last) in piece:
                plain[number, group].update(range(first, last + 1))
    asked = [(number, group) for number in range(4) for group in "ba"]
    assert [own.count(address) for address in asked] == [len(plain[address]) for address in asked]
    rows = pa.Table.from_pylist([{"state_partition": n, "group_id": g} for n, g in asked], schema=SCHEMA)
    lists = own.lists(rows)
    assert lists.type == RANGES
    for address, found in zip(asked, lists.to_pylist(), strict=True):
        told = [(each["first_offset"], each["last_offset"]) for each in found]
        assert sorted(plain[address]) == [offset for first, last in told for offset in range(first, last + 1)]
        assert all(before + 1 < first for (_, before), (first, _) in pairwise(told))


def test_the_greatest_offsets() -> None:
    """Sums that no column can hold are exact, and the greatest offset has no one after it."""
    own = ArchivedRanges()
    own.add(*columns([(0, "a", (0, GREATEST - 1)), (0, "a", (GREATEST, GREATEST)), (0, "a", (-5, -1))]))
    own.add(*columns([(0, "b", (GREATEST - 1, GREATEST)), (0, "b", (GREATEST, GREATEST))]))
    assert (own.count((0, "a")), own.count((0, "b"))) == (GREATEST + 6, 2)


def columns(piece: list[tuple[int, str, tuple[int, int]]]) -> tuple[pa.Table, pa.StructArray]:
    rows = [{"state_partition": number, "group_id": group} for number, group, _ in piece]
    ranges = [{"first_offset": first, "last_offset": last} for _, _, (first, last) in piece]
    return pa.Table.from_pylist(rows, schema=SCHEMA), pa.array(ranges, RANGES.value_type)
