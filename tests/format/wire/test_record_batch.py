"""Record batches against kafka-python's, and against every lie they can tell; as columns; headers of dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from samples.dead_letters import headers_of
from state_topics.segment_bytes import (
    APPEND_TIME,
    COMPRESSORS,
    TRANSACTIONAL,
    batch,
    control_batch,
    header_bytes,
    record_bytes,
    varint,
)

from acktrail.errors import InputError, MalformedRecord, UnsupportedRecord
from acktrail.format.columns.decoding.batch_columns import batch_columns
from acktrail.format.wire.dead_letter_headers import ShareDeadLetter, read_dead_letter
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    Compression,
    DataBatch,
    LogRecord,
    batch_records,
    control_type,
    read_header,
    record_headers,
)
from acktrail.kafka.log_fetcher import data_batches, intact_batches
from acktrail.kafka.log_reader import LogPart
from acktrail.offline.log_batches import is_intact

maybe_bytes = st.one_of(st.none(), st.binary(max_size=40))


@st.composite
def runs(draw: st.DrawFn) -> list[RawRecord]:
    """Records of one batch: ascending offsets with holes, times that go forth and back."""
    offset, time = draw(st.integers(0, 2**62)), draw(st.integers(0, 2**41))
    found = []
    for _ in range(draw(st.integers(1, 6))):
        found.append(
            RawRecord(
                state_partition=0,
                offset=offset,
                timestamp_ms=time + draw(st.integers(-(10**6), 10**6)),
                key=draw(maybe_bytes),
                value=draw(maybe_bytes),
            )
        )
        offset += draw(st.integers(1, 300))
    return found


def read(raw: bytes) -> list[LogRecord]:
    header = read_header(raw)
    assert is_intact(header, raw)
    return list(batch_records(header, raw[HEADER_BYTES:]))


def as_log(records: list[RawRecord]) -> list[LogRecord]:
    return [LogRecord(offset=r.offset, timestamp_ms=r.timestamp_ms, key=r.key, value=r.value) for r in records]


@given(runs(), st.booleans())
def test_round_trip(records: list[RawRecord], append_time: bool) -> None:
    """A batch gives back its records; with append time every record has the newest time. kafka-python agrees."""
    raw = batch(records, attributes=APPEND_TIME if append_time else 0)
    newest = max(record.timestamp_ms for record in records)
    expected = [replace(r, timestamp_ms=newest) if append_time else r for r in records]

    assert read(raw) == as_log(expected)
    theirs = DefaultRecordBatch(raw)
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in theirs] == [
        (r.offset, r.timestamp_ms, r.key, r.value) for r in expected
    ]


@given(st.lists(st.tuples(maybe_bytes, maybe_bytes, st.integers(0, 2**41)), min_size=1, max_size=5))
def test_batches_of_another_writer(records: list[tuple[bytes | None, bytes | None, int]]) -> None:
    """What kafka-python writes, record headers included, is read."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number, (key, value, time) in enumerate(records):
        assert builder.append(number, time, key, value, [("name", b"content"), ("none", None)])

    found = read(bytes(builder.build()))

    assert [(r.key, r.value, r.timestamp_ms) for r in found] == records
    assert [r.offset for r in found] == list(range(len(records)))


@given(runs(), st.data())
def test_cut_off_anywhere(records: list[RawRecord], data: st.DataObject) -> None:
    """Records cut off at any byte are an error that names a byte of them, after those that are whole."""
    raw = batch(records)
    header, body = read_header(raw), raw[HEADER_BYTES:]
    body = body[: data.draw(st.integers(0, len(body) - 1))]
    found: list[LogRecord] = []

    with pytest.raises(MalformedRecord) as caught:
        found.extend(batch_records(header, body))

    assert found == as_log(records)[: len(found)]
    assert 0 <= caught.value.position <= len(body)


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


ONE = batch([RawRecord(state_partition=0, offset=5, timestamp_ms=1, key=b"k", value=b"v")])


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (ONE[: HEADER_BYTES - 1], "cut off"),
        (ONE[:16] + b"\x01" + ONE[17:], "message format version 1"),
        (b"\xff" + ONE[1:], "offsets"),
        (ONE[:23] + b"\xff" + ONE[24:], "offsets"),
        (b"\x7f" + b"\xff" * 7 + ONE[8:23] + b"\x00\x00\x00\x01" + ONE[27:], "offsets"),
        (ONE[:8] + bytes(4) + ONE[12:], "batch length 0"),
    ],
)
def test_bytes_that_are_not_a_header_are_malformed(raw: bytes, part: str) -> None:
    """What no batch can say of itself is refused."""
    with pytest.raises(MalformedRecord, match=part):
        read_header(raw)


def test_header_fields_are_decoded() -> None:
    """The fields of a header, and a checksum over all that follows it."""
    header = read_header(ONE)

    assert (header.base_offset, header.last_offset, header.size_bytes, header.leader_epoch) == (5, 5, len(ONE), 7)
    assert (header.compression, header.record_count) == (Compression.NONE, 1)
    assert not header.is_control
    assert not header.is_transactional
    for index in range(21, len(ONE)):
        assert not is_intact(header, ONE[:index] + bytes([ONE[index] ^ 1]) + ONE[index + 1 :])
    with pytest.raises(MalformedRecord, match="unknown compression 5"):
        _ = replace(header, attributes=5).compression


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


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    """Nothing else than an error of the input is raised."""
    try:
        read_dead_letter(raw)
    except InputError:
        return


LETTER = ShareDeadLetter(group_id="g", topic="t", partition=1, offset=2, delivery_count=3, message="m")


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("offset", b"-1", "no number"),
        ("offset", b"9223372036854775808", "no number"),
        ("offset", "٣".encode(), "no number"),
        ("offset", b"01", "no number"),
        ("partition", b"2147483648", "no number"),
        ("delivery.count", b"32768", "no number"),
        ("delivery.count", b"", "no number"),
        ("group", b"\xff", "not UTF-8"),
        ("topic", None, "null"),
    ],
)
def test_a_value_that_no_broker_writes(name: str, value: bytes | None, fault: str) -> None:
    """Is malformed, and the reason names the header; a missing or repeated one too."""
    full = f"__dlq.errors.{name}".encode()
    others = [pair for pair in headers_of(LETTER) if pair[0] != full]
    with pytest.raises(MalformedRecord, match=f"{name}.*{fault}"):
        read_dead_letter(header_bytes([*others, (full, value)]))
    with pytest.raises(MalformedRecord, match=f"{name} is there twice"):
        read_dead_letter(header_bytes([*headers_of(LETTER), *(p for p in headers_of(LETTER) if p[0] == full)]))
    if name != "delivery.count":
        with pytest.raises(MalformedRecord, match=f"{name} is missing"):
            read_dead_letter(header_bytes(others))
    else:
        assert read_dead_letter(header_bytes(others)) == replace(LETTER, delivery_count=None)


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


def test_aborted_transactions_and_markers_are_left_out() -> None:
    """As a consumer that reads what is committed: batches of the aborted transaction up to its end, and no marker; the
    others are there, to be passed."""

    def written(offset: int, producer: int) -> bytes:
        return batch(records_of([(1, 5, b"k", b"v")], offset), attributes=TRANSACTIONAL, producer_id=producer)

    aborted = written(0, 1) + written(1, 2) + control_batch(2, 0, producer_id=1)
    found = intact_batches(aborted + written(3, 1) + control_batch(4, 1, producer_id=1), [(1, 0)])
    assert [row[1] for row in rows(batch_columns(data_batches(0, found)))] == [1, 3]
    assert [each.header.last_offset for each in found] == [0, 1, 2, 3, 4]


def test_the_brokers_time_of_the_append() -> None:
    """Every record has the newest timestamp of its batch."""
    raw = batch(records_of([(1, 5, None, b""), (1, 9, b"", None)], 0), attributes=APPEND_TIME)
    assert rows(batch_columns(data_batches(3, intact_batches(raw, ())))) == [(3, 0, 9, None, b""), (3, 1, 9, b"", None)]
