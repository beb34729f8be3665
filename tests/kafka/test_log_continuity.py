"""A log is the stored one when its last stored record is the same; else the new one begins where the two part. The
state of one share partition is read record by record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_topics.coordinator_log import batch, share_partition

from acktrail.format.wire.dialects import encode
from acktrail.format.wire.raw_record import AddressedRecord, RawRecord, decode_raw, record_fingerprint
from acktrail.kafka.descriptions import LogOffsets
from acktrail.kafka.state.state_lookup import PartitionReading, after_record
from acktrail.kafka.state.state_source import Resumption, openings
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone

KEY = share_partition()
SNAPSHOT = ShareSnapshot(
    key=KEY,
    snapshot_epoch=3,
    state_epoch=1,
    leader_epoch=0,
    start_offset=7,
    delivery_complete_count=0,
    create_timestamp_ms=1,
    write_timestamp_ms=1,
    batches=(),
)
UPDATE = ShareUpdate(
    key=KEY,
    snapshot_epoch=3,
    leader_epoch=0,
    start_offset=None,
    delivery_complete_count=1,
    batches=(batch(7, 7),),
)


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


def read(*records: StateRecord | None) -> PartitionReading:
    """The reading after these records; None: one that cannot be read."""
    reading = PartitionReading(state_partition=0)
    for offset, record in enumerate(records):
        reading = after_record(reading, addressed(offset, record))
    return reading


def addressed(offset: int, record: StateRecord | None) -> AddressedRecord[StateRecord]:
    key, value = encode(record or SNAPSHOT)
    damaged = value if record is not None else b"\0"
    return decode_raw(RawRecord(state_partition=0, offset=offset, timestamp_ms=1, key=key, value=damaged))


def test_the_state_is_that_of_the_records() -> None:
    """Snapshot, update, and the address of the last one."""
    reading = read(SNAPSHOT, UPDATE)
    assert reading.state is not None
    assert (reading.state.start_offset, reading.state.batches, reading.offset) == (7, UPDATE.batches, 1)


def test_after_a_record_that_cannot_be_read_nothing_is_known() -> None:
    """It may have been a snapshot: what updates add to is unknown."""
    reading = read(SNAPSHOT, None, UPDATE)
    assert reading.state is None
    assert "offset 1" in (reading.unreadable or "")


def test_a_snapshot_makes_the_state_known_again() -> None:
    """It replaces all earlier records; so does a tombstone."""
    again = read(None, UPDATE, SNAPSHOT, UPDATE)
    assert again.unreadable is None
    assert again.state == read(SNAPSHOT, UPDATE).state
    gone = read(SNAPSHOT, None, Tombstone(key=KEY))
    assert (gone.unreadable, gone.state) == (None, None)
