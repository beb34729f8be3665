"""Fetching from several brokers that move, slow down, hang up and lose records: every offset once, or an event."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import MetadataResponse
from servers.fake_kafka import HANG_UP, SILENCE, FakeKafka, fake_kafka
from state_topics.segment_bytes import batch

from acktrail.format.wire.raw_record import RawRecord
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.log_fetcher import FetchEvent, LogFetcher
from acktrail.model.share_partition import topic_id_text

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
            return FetchResponse(throttle_time_ms=int(trouble), error_code=0, session_id=0, responses=[])
        if trouble == "move":
            self.move(self.chance.choice([*self.leaders]))
        code = trouble if isinstance(trouble, int) else 0
        (asked,) = request.topics
        assert asked.topic_id == ID
        rows = [self._row(node, wanted, code) for wanted in asked.partitions]
        topic = FetchResponse.FetchableTopicResponse(topic_id=ID, partitions=rows)
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])

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
            batch([record(number, at) for at in range(first, min(first + A_BATCH, self.ends[number]))])
            for first in range(offset // A_BATCH * A_BATCH, self.ends[number], A_BATCH)
        )
        least = len(batch([record(number, at) for at in range(A_BATCH)])) + 8
        return found[: max(least, self.chance.randrange(len(found) + 1))]


def record(partition: int, offset: int) -> RawRecord:
    value = b"%d/%04d" % (partition, offset)
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


def read(logs: Logs, *, until_s: float = 30.0) -> tuple[dict[int, list[bytes]], dict[int, FetchEvent]]:
    """Read every partition to its end, or to an event: values by partition in their order, and the events."""
    values: dict[int, list[bytes]] = {number: [] for number in logs.ends}
    events: dict[int, FetchEvent] = {}
    left = dict(logs.ends)
    deadline = time.monotonic() + until_s
    with BrokerClient(logs.fake.config(request_timeout_ms=400)) as client:
        fetcher = LogFetcher(client, NAME, topic_id_text(ID.bytes))
        for number in logs.ends:
            fetcher.assign(number, 0)
        while left:
            assert time.monotonic() < deadline, left
            time.sleep(fetcher.pause_s)
            fetched = fetcher.fetch()
            for row in fetched.records.to_pylist():
                if row["offset"] >= len(values[row["partition"]]):  # a batch begins before what was asked for
                    values[row["partition"]].append(row["value"])
            for number, offset in fetched.reached.items():
                assert offset == len(values[number])
                if offset >= left.get(number, offset + 1):
                    del left[number]
                    fetcher.unassign(number)
            for number, event in fetched.events.items():
                events[number] = event
                left.pop(number)
    return values, events


def expected(end: int) -> dict[int, list[bytes]]:
    return {number: [record(number, at).value or b"" for at in range(end)] for number in range(4)}


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(6))
def test_every_offset_comes_once(logs: Logs, seed: int) -> None:
    """Leaders move, brokers refuse, throttle, hang up or fall silent, and responses end in the middle of a batch."""
    logs.chance = chance = random.Random(seed)
    kinds = [None, "move", "move", HANG_UP, NOT_LEADER, STORAGE_ERROR, FENCED, UNKNOWN_EPOCH, 150.0]
    logs.trouble = iter([chance.choice(kinds) for _ in range(20)] + [SILENCE])
    assert read(logs) == (expected(60), {})


def test_a_throttled_client_does_not_ask_before_its_time(logs: Logs) -> None:
    """The broker that throttles gets no request until the time that it said is over, the other one is read."""
    logs.trouble = iter([700.0])
    assert read(logs) == (expected(60), {})
    throttling = logs.fetched_at[0][1]
    times = [at for at, node in logs.fetched_at if node == throttling]
    others = [at for at, node in logs.fetched_at if node != throttling]
    assert times[1] - times[0] >= 0.7
    assert others[0] - times[0] < 0.7


def test_a_truncated_log_is_an_event(logs: Logs) -> None:
    """A broker whose log diverges before the offset says so (KIP-595): that partition stops, nothing of it is taken,
    and it is not asked for again; the others are read to their ends."""
    logs.diverging[2] = 12
    values, events = read(logs)
    assert events == {2: FetchEvent.TRUNCATED}
    assert values == expected(60) | {2: []}


def test_the_last_epoch_is_said_to_the_broker(logs: Logs) -> None:
    """Each request says which epoch the last fetched batch had, but the first one of a partition, which has none."""
    read(logs)
    said: dict[int, list[int]] = {number: [] for number in logs.ends}
    for request in logs.fake.sent(FETCH):
        for wanted in request.topics[0].partitions:
            said[wanted.partition].append(wanted.last_fetched_epoch)
    assert all(epochs[0] == -1 for epochs in said.values())
    assert all(set(epochs[1:]) <= {7} for epochs in said.values())
