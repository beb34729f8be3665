"""Record batches and every lie they can tell, as records and as columns; headers of dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples.dead_letters import headers_of
from state_topics.segment_bytes import APPEND_TIME, COMPRESSORS, batch, header_bytes, record_bytes, varint

from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.format.columns.decoding.batch_columns import batch_columns
from acktrail.format.wire.dead_letter_headers import ShareDeadLetter, read_dead_letter
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    DataBatch,
    batch_records,
    control_type,
    read_header,
    record_headers,
)
from acktrail.kafka.log_fetcher import data_batches, intact_batches
from acktrail.kafka.log_reader import LogPart

HEADER = BatchHeader(
    base_offset=10,
    size_bytes=100,
    leader_epoch=0,
    crc=0,
    attributes=0,
    last_offset_delta=3,
    base_timestamp_ms=2**62,
    max_timestamp_ms=0,
    producer_id=-1,
    record_count=1,
)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (varint(-5), "record of -5 bytes"),
        (varint(2**31 - 1), "announced"),
        (b"\xff" * 6, "longer than 5 bytes"),
        (record_bytes(b"", b"", offset_delta=4), "offset delta 4"),
        (record_bytes(b"", b"", offset_delta=-1), "offset delta -1"),
        (record_bytes(b"", b"", timestamp_delta=2**63 - 1), "timestamp"),
        (record_bytes(b"", b"") + b"x", r"1 byte\(s\) after the records"),
        (varint(7) + bytes(3) + varint(-2) + bytes(3), "negative length -2"),
        (varint(7) + bytes(3) + varint(60) + bytes(3), "60 bytes announced"),
        (varint(6) + bytes(5) + varint(40), "40 record headers"),
        (varint(7) + bytes(6) + b"x", r"1 byte\(s\) after the record"),
        (b"", "cut off"),
    ],
)
def test_impossible_numbers_are_malformed(body: bytes, part: str) -> None:
    """Each lie that a record can tell is named; a batch cannot have fewer records than none."""
    with pytest.raises(MalformedRecord, match=part):
        list(batch_records(HEADER, body))
    with pytest.raises(MalformedRecord, match="record count -1"):
        list(batch_records(replace(HEADER, record_count=-1), body))


def test_control_records() -> None:
    """A control record's key has its type."""
    assert [control_type(b"\x00\x00\x00" + bytes([kind])) for kind in (0, 1, 6)] == [0, 1, 6]
    for key in (None, b"", b"\x00\x00\x00"):
        with pytest.raises(MalformedRecord):
            control_type(key)


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
LETTERS = st.builds(
    ShareDeadLetter,
    group_id=TEXT,
    topic=TEXT,
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    delivery_count=st.none() | st.integers(0, 2**15 - 1),
    message=st.none() | TEXT,
)


@given(LETTERS, st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=3), st.randoms())
def test_what_a_broker_writes_is_read(
    letter: ShareDeadLetter, others: list[tuple[bytes, bytes | None]], random: Random
) -> None:
    """Any names and numbers, in any order, between any other headers."""
    headers = [*headers_of(letter), *others]
    random.shuffle(headers)
    assert record_headers(header_bytes(headers)) == tuple(headers)
    assert read_dead_letter(header_bytes(headers)) == letter


LETTER = ShareDeadLetter(group_id="g", topic="t", partition=1, offset=2, delivery_count=3, message="m")


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("offset", b"-1", "not a number"),
        ("offset", b"9223372036854775808", "not a number"),
        ("offset", "٣".encode(), "not a number"),
        ("offset", b"01", "not a number"),
        ("partition", b"2147483648", "not a number"),
        ("delivery.count", b"32768", "not a number"),
        ("delivery.count", b"", "not a number"),
        ("group", b"\xff", "not UTF-8"),
        ("topic", None, "null"),
    ],
)
def test_a_value_that_no_broker_writes(name: str, value: bytes | None, fault: str) -> None:
    """Is malformed, and the reason names the header; a missing one too. Of repeated ones the last counts."""
    full = f"__dlq.errors.{name}".encode()
    others = [pair for pair in headers_of(LETTER) if pair[0] != full]
    with pytest.raises(MalformedRecord, match=f"{name}.*{fault}"):
        read_dead_letter(header_bytes([*others, (full, value)]))
    with pytest.raises(MalformedRecord, match=f"{name}.*{fault}"):
        read_dead_letter(header_bytes([*headers_of(LETTER), (full, value)]))
    assert read_dead_letter(header_bytes([(full, value), *headers_of(LETTER)])) == LETTER
    if name != "delivery.count":
        with pytest.raises(MalformedRecord, match=f"{name} is missing"):
            read_dead_letter(header_bytes(others))
    else:
        assert read_dead_letter(header_bytes(others)) == replace(LETTER, delivery_count=None)


@given(st.lists(LETTERS, min_size=1, max_size=4), st.lists(st.tuples(st.binary(max_size=9), st.none()), max_size=2))
def test_record_that_died_more_than_once_is_of_its_newest_death(
    deaths: list[ShareDeadLetter], others: list[tuple[bytes, None]]
) -> None:
    """With no count or message of an earlier one."""
    headers = [header for letter in deaths for header in (*others, *headers_of(letter))]
    assert read_dead_letter(header_bytes(headers)) == deaths[-1]


def test_a_record_of_someone_else() -> None:
    """A record without any of the headers is no dead letter, which is another reason than damage."""
    with pytest.raises(UnsupportedRecord, match="no header of a dead letter"):
        read_dead_letter(header_bytes([(b"__dlq.other", b"1"), (b"\xff", None)]))


Rows = list[tuple[int, int, int | None, bytes | None, bytes | None]]

_TEXTS = st.none() | st.binary(max_size=40) | st.sampled_from([63, 64, 70, 9_000]).map(bytes)
_RECORDS = st.lists(st.tuples(st.integers(1, 200), st.integers(0, 1 << 45), _TEXTS, _TEXTS), min_size=1, max_size=8)


def records_of(drawn: Sequence[tuple[int, int, bytes | None, bytes | None]], base: int) -> list[RawRecord]:
    found, offset = [], base
    for step, time, key, value in drawn:
        found.append(RawRecord(state_partition=0, offset=offset, timestamp_ms=time, key=key, value=value))
        offset += step
    return found


def rows(table: pa.Table) -> Rows:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def strictly(batches: Sequence[DataBatch]) -> Rows:
    return [
        (one.partition, record.offset, record.timestamp_ms, record.key, record.value)
        for one in batches
        for record in batch_records(one.header, one.records)
    ]


def outcome(read: Callable[[], Rows]) -> Rows | str:
    """The rows, or the error."""
    try:
        return read()
    except MalformedRecord as error:
        return str(error)


@settings(max_examples=30)
@given(drawn=st.lists(_RECORDS, max_size=40), codec=st.sampled_from([*COMPRESSORS]))
def test_columns_are_the_strict_readers_records(
    drawn: list[list[tuple[int, int, bytes | None, bytes | None]]], codec: str
) -> None:
    """Any number of batches of any sizes, in every codec, with nulls and holes between the offsets."""
    logs = [records_of(each, 100_000 * number) for number, each in enumerate(drawn)]
    data = b"".join(batch(each, compression=codec) for each in logs)
    found = data_batches(7, intact_batches(data, ()))
    assert rows(batch_columns(found)) == strictly(found)
    few, bulk = ([*LogPart(0, 3, 200_000, found, is_bulk).records(lambda key: key)] for is_bulk in (False, True))
    assert few == bulk == [r for each in logs for r in each if 3 <= r.offset < 200_000 and r.key]
    assert [row[1:] for row in rows(batch_columns(found))] == [
        (r.offset, r.timestamp_ms, r.key, r.value) for each in logs for r in each
    ]


@settings(max_examples=80)
@given(drawn=_RECORDS, copies=st.sampled_from([1, 300]), data=st.data())
def test_damage_is_what_the_strict_reader_finds(
    drawn: list[tuple[int, int, bytes | None, bytes | None]], copies: int, data: st.DataObject
) -> None:
    """A byte of the records is another one: the same rows as of the strict reader, or the same error."""
    raw = batch(records_of(drawn, 0))
    header, body = read_header(raw), bytearray(raw[HEADER_BYTES:])
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = [DataBatch(0, header, bytes(body)), *[DataBatch(0, header, raw[HEADER_BYTES:])] * (copies - 1)]
    assert outcome(lambda: rows(batch_columns(damaged))) == outcome(lambda: strictly(damaged))


def test_a_wrong_checksum_is_an_error_and_a_cut_batch_is_left_out() -> None:
    """What lies before the cut is given; a changed byte is not."""
    whole = batch(records_of([(1, 5, b"k", b"v")] * 3, 10))
    assert [each.header.last_offset for each in intact_batches(whole + whole[:-1], ())] == [12]
    for at in (20, HEADER_BYTES, len(whole) - 1):
        changed = bytearray(whole)
        changed[at] ^= 1
        with pytest.raises(MalformedRecord, match="CRC"):
            intact_batches(bytes(changed), ())


def test_the_brokers_time_of_the_append() -> None:
    """Every record has the newest timestamp of its batch."""
    raw = batch(records_of([(1, 5, None, b""), (1, 9, b"", None)], 0), attributes=APPEND_TIME)
    assert rows(batch_columns(data_batches(3, intact_batches(raw, ())))) == [(3, 0, 9, None, b""), (3, 1, 9, b"", None)]
