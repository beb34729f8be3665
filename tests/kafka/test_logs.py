"""Logs without a broker: fetched from brokers that move, hang up and lose records; where a new log begins; the state of
one share partition; the kind of record batches."""

from __future__ import annotations

import random
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import batch as state_batch
from jobs.world import key_of, snapshot, update
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import MetadataResponse
from samples.memory_source import FakeClock
from servers.fake_kafka import HANG_UP, SILENCE, FakeKafka, fake_kafka
from state_topics.segment_bytes import batch as packed

from acktrail.errors import MalformedRecord, RetryableError
from acktrail.format.wire.raw_record import AddressedRecord, RawRecord, decode_raw, record_fingerprint
from acktrail.format.wire.record_batch import BatchKind, batch_records, batches_in
from acktrail.format.wire.state_record import encode
from acktrail.kafka import log_reader
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.descriptions import Batch, LogOffsets, LogStretch
from acktrail.kafka.log_fetcher import FetchEvent, LogFetcher
from acktrail.kafka.log_stretches import _Reading, hidden_offsets, log_batch
from acktrail.kafka.state_lookup import PartitionReading, StateLookup, after_record
from acktrail.model.records import StateRecord, Tombstone
from acktrail.model.share_partition import topic_id_text
from acktrail_connect.sources.state_source import Resumption, openings

NAME: Final = "logs"
ID: Final = UUID(int=0x1234_5678)
FETCH: Final = 1
NOT_LEADER, STORAGE_ERROR, FENCED, UNKNOWN_EPOCH = 6, 56, 74, 75
A_BATCH: Final = 3


@dataclass
class Logs:
    """Partitions of one topic on two brokers. `trouble` gives what the next Fetch meets: nothing, HANG_UP, SILENCE, an
    error code for every partition, a time of throttling in ms, or ``move``."""

    fake: FakeKafka
    ends: dict[int, int] = field(default_factory=dict)
    leaders: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    diverging: dict[int, int] = field(default_factory=dict)
    trouble: Iterator[Any] = field(default_factory=lambda: iter(()))
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    fetched_at: list[tuple[float, int]] = field(default_factory=list)
    value: bytes = b"%d/%04d"
    lock: threading.Lock = field(default_factory=threading.Lock)

    def metadata(self) -> list[Any]:
        topic = MetadataResponse.MetadataResponseTopic
        rows = [
            topic.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=leader,
                leader_epoch=self.epochs[number],
                replica_nodes=[0, 1],
                isr_nodes=[0, 1],
                offline_replicas=[],
            )
            for number, leader in self.leaders.items()
        ]
        return [topic(error_code=0, name=NAME, topic_id=ID, is_internal=False, partitions=rows)]

    def move(self, partition: int) -> None:
        """The other broker leads."""
        self.leaders[partition] = 1 - self.leaders[partition]
        self.epochs[partition] += 1

    def answer(self, request: Any) -> Any:
        node = next(number for number, _, asked in reversed(self.fake.asked) if asked is request)
        with self.lock:
            self.fetched_at.append((time.monotonic(), node))
            trouble = next(self.trouble, None)
        if trouble in (HANG_UP, SILENCE):
            return trouble
        if isinstance(trouble, float):
            return FetchResponse(throttle_time_ms=int(trouble), error_code=0, responses=[])
        if trouble == "move":
            self.move(self.chance.choice([*self.leaders]))
        code = trouble if isinstance(trouble, int) else 0
        (asked,) = request.topics
        assert asked.topic_id == ID
        rows = [self._row(node, wanted, code) for wanted in asked.partitions]
        topic = FetchResponse.FetchableTopicResponse(topic_id=ID, partitions=rows)
        return FetchResponse(error_code=0, responses=[topic])

    def _row(self, node: int, wanted: Any, code: int) -> Any:
        row = FetchResponse.FetchableTopicResponse.PartitionData
        number, offset = wanted.partition, wanted.fetch_offset
        epoch, asked = self.epochs[number], wanted.current_leader_epoch
        if not code and node != self.leaders[number]:
            code = NOT_LEADER
        elif not code and asked != epoch:
            code = FENCED if asked < epoch else UNKNOWN_EPOCH
        diverging = self.diverging.get(number)
        end = row.EpochEndOffset(epoch=epoch - 1, end_offset=diverging) if diverging is not None else None
        return row(
            partition_index=number,
            error_code=code,
            high_watermark=self.ends[number],
            last_stable_offset=self.ends[number],
            log_start_offset=0,
            **({} if end is None else {"diverging_epoch": end}),
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=b"" if code or diverging is not None else self._records(number, offset),
        )

    def _records(self, number: int, offset: int) -> bytes:
        """Whole batches from the one with `offset`, and the beginning of one more."""
        found = b"".join(
            packed([numbered(number, at, self.value) for at in range(first, min(first + A_BATCH, self.ends[number]))])
            for first in range(offset // A_BATCH * A_BATCH, self.ends[number], A_BATCH)
        )
        least = len(packed([numbered(number, at) for at in range(A_BATCH)])) + 8
        return found[: max(least, self.chance.randrange(len(found) + 1))]


def numbered(partition: int, offset: int, form: bytes = b"%d/%04d") -> RawRecord:
    value = form % (partition, offset)
    return RawRecord(state_partition=partition, offset=offset, timestamp_ms=1_000_000, key=b"key", value=value)


@pytest.fixture
def logs() -> Iterator[Logs]:
    """Four partitions of 60 records, two with each of two brokers."""
    with fake_kafka(nodes=2) as fake:
        found = Logs(fake)
        for number in range(4):
            found.ends[number], found.leaders[number], found.epochs[number] = 60, number % 2, 5
        fake.topics = found.metadata

        class Endless:
            popleft = staticmethod(lambda: found.answer)

        fake.answers[FETCH] = Endless()  # type: ignore[assignment]  # it never runs out
        yield found


def read_to_the_end(logs: Logs, *, until_s: float = 30.0) -> tuple[dict[int, list[bytes]], dict[int, FetchEvent]]:
    """Read every partition up to its last record but one, which its last batch has, or to an event: values by partition
    in their order, and the events. What lies behind is not asked for."""
    values: dict[int, list[bytes]] = {number: [] for number in logs.ends}
    events: dict[int, FetchEvent] = {}
    left = {number: end - 1 for number, end in logs.ends.items()}
    deadline = time.monotonic() + until_s
    with BrokerClient(logs.fake.config(request_timeout_ms=400)) as client:
        fetcher = LogFetcher(client, NAME, topic_id_text(ID.bytes))
        for number, end in left.items():
            fetcher.assign(number, 0, end)
        while left:
            assert time.monotonic() < deadline, left
            time.sleep(fetcher.pause_s)
            fetched = fetcher.fetch()
            for number, header, records in fetched.batches:
                found = (record for record in batch_records(header, records) if record.offset >= len(values[number]))
                values[number] += [record.value for record in found]  # a batch begins before what was asked for
            for number, offset in fetched.reached.items():
                assert offset == min(len(values[number]), left[number])
            events |= fetched.events
            left = {n: end for n, end in left.items() if n not in events and fetched.reached.get(n) != end}
    asked = [wanted for request in logs.fake.sent(FETCH) for wanted in request.topics[0].partitions]
    assert all(wanted.fetch_offset < logs.ends[wanted.partition] - 1 for wanted in asked)
    return values, events


def expected(end: int) -> dict[int, list[bytes]]:
    return {number: [numbered(number, at).value or b"" for at in range(end)] for number in range(4)}


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(6))
def test_every_offset_comes_once(logs: Logs, seed: int) -> None:
    """Leaders move, brokers refuse, throttle, hang up or fall silent, and responses end in the middle of a batch."""
    logs.chance = chance = random.Random(seed)
    kinds = [None, "move", "move", HANG_UP, NOT_LEADER, STORAGE_ERROR, FENCED, UNKNOWN_EPOCH, 150.0]
    logs.trouble = iter([chance.choice(kinds) for _ in range(20)] + [SILENCE])
    assert read_to_the_end(logs) == (expected(60), {})


def test_a_throttled_client_does_not_ask_before_its_time(logs: Logs) -> None:
    """The broker that throttles gets no request until the time that it said is over, the other one is read."""
    logs.trouble = iter([700.0])
    assert read_to_the_end(logs) == (expected(60), {})
    throttling = logs.fetched_at[0][1]
    times = [at for at, node in logs.fetched_at if node == throttling]
    others = [at for at, node in logs.fetched_at if node != throttling]
    assert times[1] - times[0] >= 0.7
    assert others[0] - times[0] < 0.7


def test_a_truncated_log_is_an_event(logs: Logs) -> None:
    """A broker whose log diverges before the offset says so (KIP-595): that partition stops, nothing of it is taken,
    and it is not asked for again; the others are read to their ends."""
    logs.diverging[2] = 12
    values, events = read_to_the_end(logs)
    assert events == {2: FetchEvent.TRUNCATED}
    assert values == expected(60) | {2: []}


def test_the_last_epoch_is_said_to_the_broker(logs: Logs) -> None:
    """Each request says which epoch the last fetched batch had, but the first one of a partition, which has none."""
    read_to_the_end(logs)
    said: dict[int, list[int]] = {number: [] for number in logs.ends}
    for request in logs.fake.sent(FETCH):
        for wanted in request.topics[0].partitions:
            said[wanted.partition].append(wanted.last_fetched_epoch)
    assert all(epochs[0] == -1 for epochs in said.values())
    assert all(set(epochs[1:]) <= {7} for epochs in said.values())


@pytest.mark.parametrize("is_another", [False, True])
def test_another_log_behind_a_new_connection_is_truncated(logs: Logs, *, is_another: bool) -> None:
    """A restored cluster has the offset and repeats the epochs: the batch before it shows that it is another log, also
    where nothing was read yet. The same log is read on, record by record once."""
    with BrokerClient(logs.fake.config(request_timeout_ms=400)) as client:
        fetcher = LogFetcher(client, NAME, topic_id_text(ID.bytes), is_compared=True)
        for number, offset in {0: 0, 1: 60}.items():
            fetcher.assign(number, offset)
        while any(fetcher.fetch().reached.values()):
            time.sleep(fetcher.pause_s)
        logs.ends = dict.fromkeys(logs.ends, 80)
        logs.value = b"%d:%04d" if is_another else logs.value
        logs.trouble = iter([HANG_UP, HANG_UP])
        events, reached = {}, {}
        while len(events) + sum(offset == 80 for offset in reached.values()) < 2:
            fetched = fetcher.fetch()
            events, reached = {**events, **fetched.events}, {**reached, **fetched.reached}
            time.sleep(fetcher.pause_s)
    assert events == (dict.fromkeys((0, 1), FetchEvent.TRUNCATED) if is_another else {})


KEY = key_of("orders")
SNAPSHOT = snapshot(KEY, 7)
UPDATE = replace(update(KEY, 7, 1, (state_batch(7, 7),)), start_offset=None)


@dataclass(frozen=True)
class Stored:
    """A log in tables: `values` by Kafka's offset, from `first` on."""

    values: list[bytes]
    offset_shift: int
    first: int = 0
    leader_epoch: int | None = 1
    last_fingerprint: int | None = None

    @property
    def first_offset(self) -> int:
        return self.first

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


def test_records_differ_by_offset_time_key_and_value() -> None:
    """Any of them makes another fingerprint; null is not empty."""
    samples = [(0, 1, b"k", b"v"), (1, 1, b"k", b"v"), (0, 2, b"k", b"v"), (0, 1, b"kv", b""), (0, 1, None, b"v")]
    samples += [(0, 1, b"", b"v"), (0, 1, b"k", None), (0, 1, b"k", b""), (0, None, b"k", b"v")]
    assert len({record_fingerprint(*sample) for sample in samples}) == len(samples)


def test_a_question_about_a_group_waits_a_minute_for_a_silent_log(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person waits for the answer: where no partition has a leader, it says so after 60 seconds by the clock."""
    clock = FakeClock()
    monkeypatch.setattr(log_reader, "time", SimpleNamespace(monotonic=clock, sleep=clock.advance))
    logs.leaders = dict.fromkeys(logs.leaders, -1)
    with BrokerClient(logs.fake.config()) as client:
        topic: Any = SimpleNamespace(client=client, name=NAME, topic_id=topic_id_text(ID.bytes), partition_count=4)
        topic.log_offsets = lambda numbers: dict.fromkeys(
            numbers, SimpleNamespace(log_start_offset=0, last_stable_offset=60)
        )
        with pytest.raises(RetryableError, match="for 60 s"):
            StateLookup(topic).read([key_of("g")])
    assert 60 < clock() < 61


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


def test_after_a_record_that_cannot_be_read_nothing_is_known() -> None:
    """It may have been a snapshot: what updates add to is unknown."""
    reading = reading_after(SNAPSHOT, None, UPDATE)
    assert reading.state is None
    assert "offset 1" in (reading.unreadable or "")


def test_a_snapshot_makes_the_state_known_again() -> None:
    """It replaces all earlier records; so does a tombstone. What follows is added to it."""
    again = reading_after(None, UPDATE, SNAPSHOT, UPDATE)
    assert again.unreadable is None
    assert again.state is not None
    assert (again.state.start_offset, again.state.batches, again.offset) == (7, UPDATE.batches, 3)
    gone = reading_after(SNAPSHOT, None, Tombstone(key=KEY))
    assert (gone.unreadable, gone.state) == (None, None)


CONTROL, TRANSACTIONAL = 0x20, 0x10


def raw(base: int, last: int, *, producer: int = -1, attributes: int = 0, records: int | None = None) -> bytes:
    """A batch of version 2 with a payload of no meaning."""
    count = last - base + 1 if records is None else records
    body = struct.pack(">ibIhiqqqhii", 0, 2, 0, attributes, last - base, 0, 0, producer, 0, 0, count) + b"\x00" * 7
    return struct.pack(">qi", base, len(body)) + body


def kinds(data: bytes, *aborted: tuple[int, int]) -> list[tuple[int, int, str]]:
    return [(each.header.base_offset, each.header.last_offset, each.kind.value) for each in batches_in(data, aborted)]


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


def test_another_format_is_an_error() -> None:
    """Batches of old formats have no such header."""
    old = bytearray(raw(0, 3))
    old[16] = 1
    with pytest.raises(MalformedRecord, match="message format version 1"):
        kinds(bytes(old))


def batch(first: int, last: int, kind: BatchKind = BatchKind.DATA, *gaps: tuple[int, int]) -> Batch:
    return Batch(first_offset=first, last_offset=last, kind=kind, gaps=gaps)


def test_a_damaged_batch_leaves_its_log_unknown() -> None:
    """A header that is not what was written may say anything about offsets and kinds."""
    whole = packed([numbered(0, at) for at in range(3)])
    for records, is_known in ((whole, True), (whole[:-1] + b"?", False)):
        reading = _Reading(0, LogStretch(topic=NAME, partition=0, first_offset=0, end_offset=3), len(whole))
        row = SimpleNamespace(error_code=0, records=records, aborted_transactions=None)
        reading.take(SimpleNamespace(responses=[SimpleNamespace(partitions=[row])]))
        assert reading.is_whole is is_known


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
    assert log_batch(found).gaps == ((100, 100), (103, 104), (106, 107))
