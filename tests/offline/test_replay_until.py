"""Moments in a copied log."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.errors import InputError
from acktrail.format.wire.raw_record import RawRecord
from acktrail.offline.replay_files import LogCut, parse_log_point, up_to


@st.composite
def logs(draw: st.DrawFn) -> list[RawRecord]:
    """Records of up to three state partitions in log order; a new leader's clock may be behind."""
    found = []
    for partition in draw(st.sets(st.integers(0, 5), min_size=1, max_size=3)):
        offset = draw(st.integers(0, 5))
        for _ in range(draw(st.integers(1, 8))):
            found.append(
                RawRecord(
                    state_partition=partition,
                    offset=offset,
                    timestamp_ms=draw(st.integers(0, 20)),
                    key=None,
                    value=None,
                )
            )
            offset += draw(st.integers(1, 3))
    return sorted(found, key=lambda r: (r.state_partition, r.offset))


def of(records: list[RawRecord], partition: int) -> list[RawRecord]:
    return [record for record in records if record.state_partition == partition]


@given(logs(), st.data())
def test_offsets_take_a_prefix_of_each_named_partition(records: list[RawRecord], data: st.DataObject) -> None:
    """Of a named state partition exactly the records up to and with its offset, of others none; all are counted."""
    there = sorted({record.state_partition for record in records})
    named = data.draw(st.sets(st.sampled_from(there), min_size=1))
    offsets = {partition: data.draw(st.integers(0, 30)) for partition in named}
    cut = LogCut()

    taken = list(up_to(records, offsets, cut))

    assert taken == [r for r in records if r.offset <= offsets.get(r.state_partition, -1)]
    assert cut.last_offsets == {p: of(taken, p)[-1].offset for p in there if of(taken, p)}
    assert len(taken) + cut.later + sum(cut.unnamed.values()) == len(records)


@given(logs(), st.integers(-1, 21))
def test_a_time_takes_what_lay_before_the_first_later_record(records: list[RawRecord], time: int) -> None:
    """Each state partition is cut before its first record with a later timestamp, whatever comes behind it."""
    cut = LogCut()

    taken = list(up_to(records, time, cut))

    for partition in {record.state_partition for record in records}:
        own, rest = of(taken, partition), of(records, partition)
        assert own == rest[: len(own)]
        assert all(record.timestamp_ms <= time for record in own)
        assert len(own) == len(rest) or rest[len(own)].timestamp_ms > time
    assert len(taken) + cut.later == len(records)


def test_what_the_files_cannot_tell_is_refused() -> None:
    """A state partition without a record, and a time for a record without timestamp."""
    record = RawRecord(state_partition=3, offset=7, timestamp_ms=-1, key=None, value=None)

    with pytest.raises(InputError, match="state partition 5"):
        list(up_to([record], {3: 7, 5: 0}, LogCut()))
    with pytest.raises(InputError, match="offset 7 has no timestamp"):
        list(up_to([record], 5, LogCut()))


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), min_size=1, max_size=5))
def test_offsets_as_text(offsets: dict[int, int]) -> None:
    """Pairs are read as they are written, spaces or not."""
    pairs = [f"{partition}:{offset}" for partition, offset in offsets.items()]

    assert parse_log_point(",".join(pairs)) == offsets
    assert parse_log_point(" , ".join(pairs)) == offsets


@given(st.integers(40_000_000_000_000, 7_000_000_000_000_000), st.integers(-14 * 60, 14 * 60))
def test_times_as_text(microseconds: int, shift: int) -> None:
    """A time with its offset from UTC is that instant; what is below a ms is cut off."""
    zone = dt.timezone(dt.timedelta(minutes=shift))
    time = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)

    assert parse_log_point(time.astimezone(zone).isoformat()) == microseconds // 1_000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("100000000000", 100_000_000_000),
        ("2026-08-01T12:00:00Z", 1_785_585_600_000),
        ("2026-08-01T14:00:00.123999+02:00", 1_785_585_600_123),
    ],
)
def test_numbers_and_times(text: str, moment: object) -> None:
    """Epoch ms, and RFC 3339."""
    assert parse_log_point(text) == moment


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no moment"),
        ("0", "an offset needs its state partition"),
        ("99999999999", "an offset needs its state partition"),
        ("yesterday", "no moment"),
        ("2026-08-01T12:00:00", "no time zone"),
        ("2026-08-01", "no time zone"),
        ("2026-13-01T12:00:00Z", "no moment"),
        ("-5", "no moment"),
        ("3:", "no moment"),
        ("3:4,,5:6", "no moment"),
        ("3:4,3:5", "two offsets"),
        ("9223372036854775808", "out of range"),
        ("0:9223372036854775808", "out of range"),
        ("\u0663:\u0664", "no moment"),
        ("3:-1", "no moment"),
    ],
)
def test_no_moment(text: str, part: str) -> None:
    """What is no moment is refused with a reason."""
    with pytest.raises(InputError, match=part):
        parse_log_point(text)
