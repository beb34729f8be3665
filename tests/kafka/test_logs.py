"""What a log says without a broker: where a new one begins, the state of one share partition record by record, and the
kind of record batches from their headers."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_topics.coordinator_log import batch as state_batch
from state_topics.coordinator_log import share_partition

from acktrail.change.collection.delivered_records import hidden_offsets
from acktrail.format.wire.dialects import encode
from acktrail.format.wire.raw_record import AddressedRecord, RawRecord, decode_raw, record_fingerprint
from acktrail.kafka.descriptions import LogOffsets
from acktrail.kafka.log_reader import PartitionReading, after_record
from acktrail.kafka.logs import Batch, BatchKind, batches_in
from acktrail.kafka.state_source import Resumption, openings
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
    batches=(state_batch(7, 7),),
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


def reading_after(*records: StateRecord | None) -> PartitionReading:
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
    reading = reading_after(SNAPSHOT, UPDATE)
    assert reading.state is not None
    assert (reading.state.start_offset, reading.state.batches, reading.offset) == (7, UPDATE.batches, 1)


def test_after_a_record_that_cannot_be_read_nothing_is_known() -> None:
    """It may have been a snapshot: what updates add to is unknown."""
    reading = reading_after(SNAPSHOT, None, UPDATE)
    assert reading.state is None
    assert "offset 1" in (reading.unreadable or "")


def test_a_snapshot_makes_the_state_known_again() -> None:
    """It replaces all earlier records; so does a tombstone."""
    again = reading_after(None, UPDATE, SNAPSHOT, UPDATE)
    assert again.unreadable is None
    assert again.state == reading_after(SNAPSHOT, UPDATE).state
    gone = reading_after(SNAPSHOT, None, Tombstone(key=KEY))
    assert (gone.unreadable, gone.state) == (None, None)


CONTROL, TRANSACTIONAL = 0x20, 0x10


def raw(base: int, last: int, *, producer: int = -1, attributes: int = 0, records: int | None = None) -> bytes:
    """A batch of version 2 with a payload of no meaning."""
    count = last - base + 1 if records is None else records
    body = struct.pack(">ibIhiqqqhii", 0, 2, 0, attributes, last - base, 0, 0, producer, 0, 0, count) + b"\x00" * 7
    return struct.pack(">qi", base, len(body)) + body


def kinds(data: bytes, *aborted: tuple[int, int]) -> list[tuple[int, int, str]]:
    return [(batch.first_offset, batch.last_offset, batch.kind.value) for batch in batches_in(data, aborted)]


def test_aborted_records_lie_between_the_first_offset_and_the_marker() -> None:
    """Of one producer only, up to its marker; another transaction of it is another matter."""
    data = b"".join(
        [
            raw(0, 2, producer=7, attributes=TRANSACTIONAL),
            raw(3, 4, producer=8, attributes=TRANSACTIONAL),
            raw(5, 5, producer=7, attributes=TRANSACTIONAL | CONTROL),
            raw(6, 6, producer=7, attributes=TRANSACTIONAL),
            raw(7, 7, producer=8, attributes=TRANSACTIONAL | CONTROL),
            raw(8, 9),
        ]
    )
    assert kinds(data, (7, 0)) == [
        (0, 2, "aborted"),
        (3, 4, "data"),
        (5, 5, "control"),
        (6, 6, "data"),
        (7, 7, "control"),
        (8, 9, "data"),
    ]
    assert [kind for *_, kind in kinds(data, (8, 3))] == ["data", "aborted", "control", "data", "control", "data"]


@given(st.integers(0, 200))
def test_a_batch_that_is_cut_off_is_left_out(cut: int) -> None:
    """A fetch ends anywhere; nothing is read beyond it."""
    whole = raw(0, 3) + raw(4, 9)
    found = kinds(whole[: len(whole) - cut])
    assert found == [(0, 3, "data"), (4, 9, "data")][: len(found)]
    assert (len(found) == 2) is (cut == 0)


def test_another_format_ends_the_reading() -> None:
    """Batches of old formats have no such header."""
    old = bytearray(raw(0, 3))
    old[16] = 1
    assert kinds(bytes(old)) == []


def batch(first: int, last: int, kind: BatchKind = BatchKind.DATA, *gaps: tuple[int, int]) -> Batch:
    return Batch(first_offset=first, last_offset=last, kind=kind, gaps=gaps)


CLOSED = [
    batch(8, 12),
    batch(13, 13, BatchKind.CONTROL),
    batch(14, 16, BatchKind.ABORTED),
    batch(17, 17, BatchKind.CONTROL),
    batch(20, 29, BatchKind.DATA, (22, 23), (27, 27)),
    batch(35, 40),
]


@pytest.mark.parametrize(
    ("batches", "level", "hidden"),
    [
        (CLOSED, "read_uncommitted", ((13, 13), (17, 19), (22, 23), (27, 27), (30, 34))),
        (CLOSED, "read_committed", ((13, 19), (22, 23), (27, 27), (30, 34))),
        (CLOSED, None, None),
        ([batch(8, 12), batch(13, 13, BatchKind.CONTROL), batch(14, 38)], None, ((13, 13),)),
        ([batch(8, 35), batch(36, 38, BatchKind.OPEN)], "read_committed", None),
        ([batch(8, 35), batch(36, 38, BatchKind.OPEN)], "read_uncommitted", ()),
        ([], None, ((10, 38),)),
    ],
    ids=["uncommitted", "committed", "unknown", "unknown-but-equal", "open-committed", "open-uncommitted", "empty"],
)
def test_what_is_no_record_of_a_group_depends_on_its_isolation_level(
    batches: list[Batch], level: str | None, hidden: tuple[tuple[int, int], ...] | None
) -> None:
    """Markers and what compaction removed never are, aborted records only for read_uncommitted groups. Where an unknown
    level or an open transaction decides, it is not known."""
    assert hidden_offsets(batches, 10, 38, level) == hidden


def test_a_batch_with_gaps_says_which_offsets_it_has() -> None:
    """Compaction leaves the batch's offsets and takes records away: those that are left are decoded."""
    body = b"".join(b"\x0c\x00\x00" + bytes([2 * delta]) + b"\x01\x01\x00" for delta in (1, 2, 5))
    header = raw(100, 107, records=3)[12:-7] + body
    (found,) = batches_in(struct.pack(">qi", 100, len(header)) + header, ())
    assert found.gaps == ((100, 100), (103, 104), (106, 107))
