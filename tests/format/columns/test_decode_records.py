"""The vectorised decoder gives what the strict one gives, on every row of every damage. Orders of rows, columns
of tables."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs.world import batch, snapshot, update
from samples.golden_vectors import wire
from samples.random_records import INT64, any_batches, records

from acktrail.errors import ConfigurationError
from acktrail.format.columns.binary_column import by_partition_and_offset
from acktrail.format.columns.decoding.decode_records import DECODED_RECORDS, decode_records, decode_strictly
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS, parse_tables
from acktrail.format.columns.share_partition_keys import read_keys
from acktrail.format.wire.raw_record import DecodeStatus
from acktrail.format.wire.state_record import SNAPSHOT_TYPE, decode, encode, encode_key
from acktrail.model.records import ShareUpdate, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, topic_id_text

Pair = tuple[bytes | None, bytes | None]


many_batches = st.tuples(records(), any_batches.filter(bool), st.sampled_from([126, 127, 128, 300])).map(
    lambda found: found[0] if isinstance(found[0], Tombstone) else replace(found[0], batches=found[1][:1] * found[2])
)
"""The length of an array is one byte or two."""
pairs: st.SearchStrategy[Pair] = st.one_of(records(), records(), records(), many_batches).map(encode)


@st.composite
def _damaged(draw: st.DrawFn) -> Pair:
    """A pair with one half cut, stretched, overwritten at any byte, or missing."""
    key, value = draw(pairs)
    if draw(st.booleans()):
        return draw(_damage_of(key)), value
    return key, draw(_damage_of(value))


@st.composite
def _damage_of(draw: st.DrawFn, octets: bytes | None) -> bytes | None:
    if not octets:
        return draw(st.one_of(st.none(), st.binary(max_size=60)))
    at = draw(st.integers(0, len(octets) - 1))
    return draw(
        st.sampled_from(
            [
                None,
                octets[:at],
                octets + draw(st.binary(min_size=1, max_size=8)),
                octets[:at] + draw(st.binary(min_size=1, max_size=3)) + octets[at:],
                octets[:at] + bytes([octets[at] ^ draw(st.integers(1, 255))]) + octets[at + 1 :],
            ]
        )
    )


damaged_pairs = _damaged()
any_pairs = st.one_of(pairs, damaged_pairs)


def table_of(rows: list[Pair], *, first_offset: int = 0) -> pa.Table:
    """``RAW_RECORDS`` of key and value pairs at dense offsets."""
    count = len(rows)
    return pa.table(
        {
            "partition": pa.array([3] * count, pa.int32()),
            "offset": pa.array(range(first_offset, first_offset + count), pa.int64()),
            "timestamp": pa.array([1_700_000_000_000 + index for index in range(count)], pa.int64()),
            "key": pa.array([key for key, _ in rows], pa.binary()),
            "value": pa.array([value for _, value in rows], pa.binary()),
        },
        schema=RAW_RECORDS,
    )


raw_tables = st.lists(any_pairs, max_size=12).map(table_of)


@pytest.fixture
def typical() -> list[Pair]:
    """One regular update and one regular snapshot with two batches and a delivery complete count."""
    key = SharePartition(group_id=GroupId("g1"), topic_id=topic_id_text(bytes(range(1, 17))), partition=7)
    batches = (batch(100, 109, 0), batch(110, 110, 2, 2))
    epochs = {"snapshot_epoch": 4, "state_epoch": 5, "leader_epoch": 6, "delivery_complete_count": 300}
    times = {"create_timestamp_ms": 1_700_000_000_000, "write_timestamp_ms": 1_700_000_000_001}
    return [encode(update(key, None, 1, batches)), encode(snapshot(key, 100, batches, **epochs, **times))]


@settings(max_examples=150, deadline=None)
@given(raw_tables)
def test_vectorised_equals_strict(raw: pa.Table) -> None:
    """Records of every kind, whole and damaged, decode to the same table either way. No row is lost and no byte
    changed: decoded and quarantined rows add up, address and bytes are those that came in."""
    table = decode_records(raw)
    assert table.equals(decode_strictly(raw))
    assert table.schema.equals(DECODED_RECORDS)
    assert table.num_rows == raw.num_rows
    for theirs, ours in (("partition", "state_partition"), ("offset", "offset"), ("key", "key"), ("value", "value")):
        assert table[ours].equals(raw[theirs])
    quarantined = [status != DecodeStatus.DECODED for status in table["decode_status"].to_pylist()]
    assert [reason is not None for reason in table["decode_error"].to_pylist()] == quarantined


def test_vectorised_equals_strict_for_damage_at_every_byte(typical: list[Pair]) -> None:
    """Every byte of key and value overwritten, cut off before and doubled: the same table either way."""
    rows: list[Pair] = []
    for key, value in typical:
        assert key is not None
        assert value is not None
        rows += [(damage, value) for damage in every_damage(key)]
        rows += [(key, damage) for damage in every_damage(value)]
    raw = table_of(rows)
    fast = decode_records(raw)
    assert fast.equals(decode_strictly(raw))
    assert set(fast["decode_status"].to_pylist()) >= {
        DecodeStatus.DECODED,
        DecodeStatus.MALFORMED_KEY,
        DecodeStatus.UNKNOWN_TYPE,
        DecodeStatus.UNKNOWN_VERSION,
        DecodeStatus.MALFORMED_VALUE,
    }


@settings(deadline=None)
@given(raw_tables, st.data())
def test_slices_and_chunks_do_not_matter(raw: pa.Table, data: st.DataObject) -> None:
    """A slice of a table decodes to the slice of the decoded table, whatever its chunks."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    bounds = [0, *cuts, len(raw)]
    parts = [raw.slice(start, end - start) for start, end in itertools.pairwise(bounds)]
    chunked = pa.concat_tables(parts)
    assert decode_records(chunked).equals(decode_records(raw))
    for start, end, part in zip(bounds, bounds[1:], parts, strict=False):
        assert decode_records(part).equals(decode_records(raw).slice(start, end - start))


def test_huge_announced_count_is_refused_cheaply(typical: list[Pair]) -> None:
    """A value that announces billions of batches is one malformed row; its neighbours are untouched."""
    key, value = typical[0]
    assert value is not None
    hostile = [value[:18] + varint + bytes(40) for varint in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\x7f", b"\xff\x7f")]
    table = decode_records(table_of([typical[0], *((key, damage) for damage in hostile), typical[1]]))
    assert table["decode_status"].to_pylist() == ["decoded", *["malformed_value"] * 3, "decoded"]


def test_quarantined_row_names_its_share_partition(typical: list[Pair]) -> None:
    """A cut-off value still says whose state cannot be trusted; a damaged key says nothing."""
    key, value = typical[0]
    assert key is not None
    assert value is not None
    table = decode_records(table_of([(key, value[:-1]), (key[:-1], value), (key, None), (None, value)]))
    assert table["group_id"].to_pylist() == ["g1", None, "g1", None]
    assert table["topic_id"].to_pylist() == ["AQIDBAUGBwgJCgsMDQ4PEA", None, "AQIDBAUGBwgJCgsMDQ4PEA", None]
    assert table["record_type"].to_pylist() == ["update", None, "update", None]
    assert table["decode_status"].to_pylist() == ["malformed_value", "malformed_key", "null_update", "null_key"]


def test_null_over_bytes_is_null(typical: list[Pair]) -> None:
    """A null row may have bytes beneath it (Arrow allows it): they say nothing."""
    raw = table_of(typical)
    validity = pa.py_buffer(b"\x02")
    for column in ("key", "value"):
        _, offsets, data = raw[column].combine_chunks().buffers()
        hidden = pa.BinaryArray.from_buffers(pa.binary(), 2, [validity, offsets, data])
        table = raw.set_column(raw.column_names.index(column), raw.schema.field(column), hidden)
        decoded = decode_records(table)
        assert decoded["decode_status"].to_pylist() == [f"null_{'key' if column == 'key' else 'update'}", "decoded"]
        assert decoded.equals(decode_strictly(table))


def test_unknown_timestamp_is_null(typical: list[Pair]) -> None:
    """Kafka's -1 for no timestamp does not get in; null stays null."""
    raw = table_of(typical).set_column(2, RAW_RECORDS.field("timestamp"), pa.array([-1, None], pa.int64()))
    assert decode_records(raw)["timestamp_ms"].to_pylist() == [None, None]
    assert decode_strictly(raw)["timestamp_ms"].to_pylist() == [None, None]


def test_wider_and_dictionary_columns_decode_the_same(typical: list[Pair], tmp_path: Path) -> None:
    """Large binary and dictionary-encoded keys (as Parquet readers give them) decode the same."""
    raw = table_of(typical * 3)
    large = raw.set_column(4, "value", raw["value"].cast(pa.large_binary()))
    assert decode_records(large).equals(decode_records(raw))
    pq.write_table(raw, tmp_path / "raw.parquet")
    encoded = pq.read_table(tmp_path / "raw.parquet", read_dictionary=["key"])
    assert pa.types.is_dictionary(encoded.schema.field("key").type)
    assert decode_records(encoded).equals(decode_records(raw))


def every_damage(octets: bytes) -> list[bytes]:
    """Each byte of `octets` overwritten in four ways, cut off from there on, and doubled."""
    damages = []
    for at in range(len(octets)):
        damages += [octets[:at] + bytes([byte]) + octets[at + 1 :] for byte in (0, 1, 0x7F, 0x80, 0xFF)]
        damages += [octets[:at], octets[: at + 1] + octets[at:]]
    return damages


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8))
def test_topic_ids_with_equal_halves_stay_different(halves: list[tuple[int, int]]) -> None:
    """Half of an id says nothing of the other half."""
    topics = [topic_id_text(bytes([first]) * 8 + bytes([second]) * 8) for first, second in halves]
    keys = [
        encode_key(SNAPSHOT_TYPE, SharePartition(group_id=GroupId("g"), topic_id=topic_id, partition=0))
        for topic_id in topics
    ]
    assert read_keys(pa.array(keys, pa.binary())).topic_id.to_pylist() == topics


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(st.integers(0, 4), INT64)), max_size=12))
def test_rows_are_sorted_by_share_partition_then_offset(rows: list[tuple[int, int]]) -> None:
    """Whether the offsets of an owner ascend already or not; rows of equal offset stay in their order."""
    owners, offsets = (np.array([row[place] for row in rows], np.int64) for place in (0, 1))
    assert by_partition_and_offset(owners, offsets).tolist() == np.lexsort((offsets, owners)).tolist()


@pytest.mark.parametrize("part", ['type = "text"', 'type = "list of t"', 'kind = "int32"', 'type = "int8", size = "1"'])
def test_columns_that_cannot_be_read_are_refused(part: str) -> None:
    """No column is left out silently; the error has file, table and column."""
    with pytest.raises(ConfigurationError, match=r"f\.toml: table topics, column a: (no type|not name, type)"):
        parse_tables(f'[tables.topics]\ncolumns = [{{ name = "a", meaning = "m", {part} }}]', "f.toml")


def test_unknown_tagged_fields_are_skipped() -> None:
    """A tag nobody knows, in the message and in a batch, leaves the rest readable."""
    tagged = "0000000000000064 000000000000006d 00 0001 01 09 02 ffff"
    value = bytes.fromhex(f"0000 00000003 00000005 0000000000000064 02 {tagged} 02 00 04 00000007 05 03 abcdef")

    record = decode(wire("W-4x-update-key"), value)

    assert isinstance(record, ShareUpdate)
    assert (record.delivery_complete_count, record.batches) == (7, (batch(100, 109, 0),))
