"""Record batches become the columns that the strict reader's records would make."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_topics.segment_bytes import APPEND_TIME, COMPRESSORS, TRANSACTIONAL, batch, control_batch

from acktrail.errors import MalformedRecord
from acktrail.format.columns.decoding.batch_columns import DataBatch, batch_columns, read_batches
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.record_batch import HEADER_BYTES, batch_records, read_header

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
    found = read_batches(7, data, ())
    assert rows(batch_columns(found.batches)) == strictly(found.batches)
    assert [row[1:] for row in rows(batch_columns(found.batches))] == [
        (r.offset, r.timestamp_ms, r.key, r.value) for each in logs for r in each
    ]
    assert found.next_offset == (logs[-1][-1].offset + 1 if logs else None)


@settings(max_examples=80)
@given(drawn=_RECORDS, copies=st.sampled_from([1, 40]), data=st.data())
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
    cut = read_batches(0, whole + whole[:-1], ())
    assert (len(cut.batches), cut.next_offset) == (1, 13)
    for at in (20, HEADER_BYTES, len(whole) - 1):
        changed = bytearray(whole)
        changed[at] ^= 1
        with pytest.raises(MalformedRecord, match="CRC"):
            read_batches(0, bytes(changed), ())


def test_aborted_transactions_and_markers_are_left_out() -> None:
    """As a consumer that reads what is committed: batches of the aborted transaction up to its end, and no marker; the
    offset reached lies behind the last of them."""

    def written(offset: int, producer: int) -> bytes:
        return batch(records_of([(1, 5, b"k", b"v")], offset), attributes=TRANSACTIONAL, producer_id=producer)

    parts = [
        written(0, 1),
        written(1, 2),
        control_batch(2, 0, producer_id=1),
        written(3, 1),
        control_batch(4, 1, producer_id=1),
    ]
    found = read_batches(0, b"".join(parts), [(1, 0)])
    assert [row[1] for row in rows(batch_columns(found.batches))] == [1, 3]
    assert (found.next_offset, found.leader_epoch) == (5, 7)


def test_the_brokers_time_of_the_append() -> None:
    """Every record has the newest timestamp of its batch."""
    raw = batch(records_of([(1, 5, None, b""), (1, 9, b"", None)], 0), attributes=APPEND_TIME)
    assert rows(batch_columns(read_batches(3, raw, ()).batches)) == [(3, 0, 9, None, b""), (3, 1, 9, b"", None)]
