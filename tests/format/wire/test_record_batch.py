"""Record batches against kafka-python's, and against every lie they can tell."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from state_topics.segment_bytes import APPEND_TIME, batch, record_bytes, varint

from acktrail.errors import MalformedRecord
from acktrail.format.columns.decoding.batch_columns import is_intact
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    Compression,
    LogRecord,
    batch_records,
    control_type,
    read_header,
)

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
