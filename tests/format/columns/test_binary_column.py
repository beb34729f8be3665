"""Structures at the ends of rows, wherever the rows lie; orders digit by digit; columns of tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples.random_records import INT64

from acktrail.format.columns.binary_column import ascending, binary_column, by_partition_and_offset
from acktrail.format.columns.schemas.table_schemas import parse_tables
from acktrail.format.columns.share_partition_keys import read_keys
from acktrail.format.wire.dialects import SNAPSHOT_TYPE, encode_key
from acktrail.model.share_partition import GroupId, SharePartition, topic_id_text

HEAD = np.dtype([("octets", "V4")])
END = np.dtype([("octets", "V3")])
numbers = st.lists(st.one_of(st.integers(-3, 3), INT64, st.sampled_from([-(2**63), 2**63 - 1])), max_size=12)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=9)), max_size=12), st.data())
def test_first_and_last_structures_belong_to_their_row(rows: list[bytes | None], data: st.DataObject) -> None:
    """Also of the first and last rows, of rows among short and null ones, of slices, and of rows in another order."""
    begin = data.draw(st.integers(0, len(rows)))
    column = binary_column(pa.array(rows, pa.binary()).slice(begin))
    order = data.draw(st.permutations(range(len(rows) - begin)))
    for found, places in ((column, range(len(order))), (column.take(np.array(order, np.int64)), order)):
        heads, ends = found.heads_and_ends(HEAD, END)
        for head, end, place in zip(heads, ends, places, strict=True):
            row = rows[begin + place] or b""
            assert len(row) < HEAD.itemsize or head["octets"].tobytes() == row[: HEAD.itemsize]
            assert len(row) < END.itemsize or end["octets"].tobytes() == row[-END.itemsize :]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8))
def test_topic_ids_with_equal_halves_stay_different(halves: list[tuple[int, int]]) -> None:
    """Half of an id says nothing of the other half."""
    topics = [topic_id_text(bytes([first]) * 8 + bytes([second]) * 8) for first, second in halves]
    keys = [
        encode_key(SNAPSHOT_TYPE, SharePartition(group_id=GroupId("g"), topic_id=topic_id, partition=0))
        for topic_id in topics
    ]
    assert read_keys(pa.array(keys, pa.binary())).topic_id.to_pylist() == topics


@given(numbers)
def test_ascending_is_the_stable_order(found: list[int]) -> None:
    """Equal numbers stay in the order they came in, from one end of int64 to the other."""
    array = np.array(found, np.int64)
    assert ascending(array).tolist() == np.argsort(array, kind="stable").tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.integers(0, 4), INT64)), max_size=12))
def test_rows_are_sorted_by_share_partition_then_offset(rows: list[tuple[int, int]]) -> None:
    """Whether the offsets of an owner ascend already or not; rows of equal offset stay in their order."""
    owners, offsets = (np.array([row[place] for row in rows], np.int64) for place in (0, 1))
    assert by_partition_and_offset(owners, offsets).tolist() == np.lexsort((offsets, owners)).tolist()


@pytest.mark.parametrize("cell", ["`a`: text", "`a`", "`a`, b: string", "`a`: list of {`b`}", "`a`: string `b`: int32"])
def test_columns_that_cannot_be_read_are_refused(cell: str) -> None:
    """No column is left out silently."""
    with pytest.raises(ValueError, match=r"tables\.md: no"):
        parse_tables(f"## topics\n\n| {cell} | what |\n")
