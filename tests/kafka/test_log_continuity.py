"""A log is the stored one when its last stored record is the same; else the new one begins where the two part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.format.wire.raw_record import RawRecord, record_fingerprint
from acktrail.kafka.descriptions import LogOffsets
from acktrail.kafka.state.state_source import Resumption, openings


@dataclass(frozen=True)
class Stored:
    """A log in tables: `values` by Kafka's offset, from `first` on."""

    values: list[bytes]
    offset_shift: int
    first: int = 0
    leader_epoch: int | None = 1

    def fingerprint(self, offset: int) -> int | None:
        if not self.first <= offset < self.first + len(self.values):
            return None
        return record_fingerprint(offset, 5, b"k", self.values[offset - self.first])


@dataclass
class Kafka:
    """A log of one partition that begins at `start`; counts the records read."""

    values: list[bytes]
    start: int
    reads: int = 0

    def read(self, places: Mapping[int, int]) -> Mapping[int, RawRecord | None]:
        self.reads += len(places)
        return {partition: self._at(offset) for partition, offset in places.items()}

    def _at(self, offset: int) -> RawRecord | None:
        if not self.start <= offset < len(self.values):
            return None
        value = self.values[offset]
        return RawRecord(state_partition=0, offset=offset, timestamp_ms=5, key=b"k", value=value)

    def offsets(self, epoch: int) -> LogOffsets:
        return LogOffsets(
            topic="t", partition=0, log_start_offset=self.start, high_watermark=len(self.values),
            last_stable_offset=len(self.values), leader_epoch=epoch, error_code=0, error=None,
        )  # fmt: skip


@given(
    shared=st.integers(0, 300),
    lost=st.integers(0, 300),
    new=st.integers(0, 600),
    pruned=st.integers(0, 200),
    shift=st.integers(0, 10_000),
)
def test_the_new_log_begins_where_the_logs_part(shared: int, lost: int, new: int, pruned: int, shift: int) -> None:
    """Of `shared` records that both logs have none is read again, and of the new ones none is left out; a break has one
    offset of the tables to itself. About log2 of the offsets are read."""
    common = [b"s%d" % n for n in range(shared)]
    kafka = Kafka(common + [b"n%d" % n for n in range(new)], min(pruned, shared + new))
    stored = Stored(common + [b"o%d" % n for n in range(lost)], shift)
    end = shared + lost
    resumed = Resumption(partition=0, position=end + shift, stored=stored, now=kafka.offsets(2))
    if not resumed.needs_comparison:
        assert kafka.start >= end
        return
    opening = openings({0: resumed}, kafka.read)[0]
    if lost == 0:
        assert not opening.is_break
        assert (opening.next_offset, opening.offset_shift) == (end, shift)
        assert kafka.reads == 1
        return
    assert opening.is_break
    assert opening.next_offset == max(shared, kafka.start)
    assert opening.next_offset + opening.offset_shift == end + shift + 1
    assert kafka.reads <= 12


@pytest.mark.parametrize(("epoch", "compared"), [(1, False), (2, True)])
def test_the_same_leader_never_loses_records(epoch: int, compared: bool) -> None:  # a parameter
    """Nothing is read where the leader epoch is the stored one."""
    kafka = Kafka([b"a", b"b"], 0)
    resumed = Resumption(partition=0, position=2, stored=Stored([b"a", b"b"], 0), now=kafka.offsets(epoch))
    assert resumed.needs_comparison is compared


def test_records_differ_by_offset_time_key_and_value() -> None:
    """Any of them makes another fingerprint; null is not empty."""
    samples = [(0, 1, b"k", b"v"), (1, 1, b"k", b"v"), (0, 2, b"k", b"v"), (0, 1, b"kv", b""), (0, 1, None, b"v")]
    samples += [(0, 1, b"", b"v"), (0, 1, b"k", None), (0, 1, b"k", b""), (0, None, b"k", b"v")]
    assert len({record_fingerprint(*sample) for sample in samples}) == len(samples)
