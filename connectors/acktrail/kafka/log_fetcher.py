"""One topic's partitions fetched by the topic's id (Fetch version 13, KIP-516): whole record batches, which become
columns without an object a record. The requests say which epoch the last fetched batch had, so that a broker whose log
was truncated reports it (KIP-595: a diverging epoch). A task fetches on a thread of its own: records become columns
while earlier ones are decoded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from queue import Empty, Full, Queue, SimpleQueue
from threading import Event, Thread
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from kafka.protocol.consumer.fetch import FetchRequest

from acktrail.config import KafkaConfig
from acktrail.errors import MalformedRecord, NotAuthorized, RetryableError
from acktrail.format.columns.decoding.batch_columns import BatchColumns, DataBatch, batch_columns, read_batches
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import (
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_text,
)
from acktrail.model.share_partition import TopicId, topic_id_bytes

_BY_ID: Final = 13
_NEWEST: Final = 16
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_OUT_OF_RANGE: Final = 1
_CORRUPT: Final = 2
_INCONSISTENT_TOPIC_ID: Final = 103
_GONE: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, _INCONSISTENT_TOPIC_ID})
_MOST_BYTES: Final = 4 << 20
_MOST_OF_A_PARTITION: Final = 1 << 20
_ENOUGH_BYTES: Final = 1 << 20
"""A broker that has so much answers before the wait is over."""
_WAIT_S: Final = 0.5
"""How long a broker waits for the first byte where nothing lingers."""
_LONGEST_WAIT_S: Final = 1.0
"""Longer waits are made here, where they can be ended."""
_RETRY_S: Final = 0.1
_AHEAD: Final = 1
_LOOK_UP_S: Final = 0.1
_PATIENCE_S: Final = 2.0


class FetchEvent(StrEnum):
    """Why a partition is not read on until it is assigned again. Lost: the log does not have the offset, or there is no
    such topic or partition with this id. Truncated: the log was cut before the offset."""

    LOST = "lost"
    TRUNCATED = "truncated"


@dataclass(slots=True)
class Fetched:
    """What a round of requests brought: records (``RAW_RECORDS``, a partition's in one run), the offset reached and the
    newest leader epoch by partition, and events by partition."""

    records: pa.Table = field(default_factory=RAW_RECORDS.empty_table)
    reached: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    events: dict[int, FetchEvent] = field(default_factory=dict)
    batches: list[DataBatch] = field(default_factory=list)
    """What `records` are made of."""

    @property
    def is_empty(self) -> bool:
        return not (self.reached or self.events)


@dataclass(slots=True, kw_only=True)
class _Place:
    """Where a partition is read: the next offset, the epoch of the last batch (-1: not known), and whether more was
    there when it was asked last."""

    offset: int
    last_epoch: int = -1
    is_behind: bool = True


class LogFetcher:
    """Reads partitions of the topic `name` with id `topic_id`. One thread.

    Nothing is jumped over: a partition whose offset is not there stops with an event until it is assigned again. A
    broker that does not answer is asked again, without end: who calls decides when that is an outage. `linger_s`: how
    long a broker that has nothing but a few records waits for more. `columns` makes records of batches. Without
    `is_committed` records of open and aborted transactions are among the others, as a share group gets them by default.
    `most_bytes`: of a partition in one response.

    Raises NotAuthorized, ConfigurationError (the login is refused), RetryableError (a damaged batch).
    """

    def __init__(
        self,
        client: BrokerClient,
        name: str,
        topic_id: str,
        *,
        linger_s: float = 0.0,
        columns: BatchColumns = batch_columns,
        is_committed: bool = True,
        most_bytes: int | None = None,
    ) -> None:
        self._client, self._name, self._linger_s, self._columns = client, name, linger_s, columns
        self._isolation = _READ_COMMITTED if is_committed else _READ_UNCOMMITTED
        self._most_bytes = most_bytes or _MOST_OF_A_PARTITION
        self._topic_id = UUID(bytes=topic_id_bytes(TopicId(topic_id)))
        self._places: dict[int, _Place] = {}
        self._leaders: dict[int, tuple[int, int]] = {}
        """Leader and its epoch by partition."""
        self.pause_s = 0.0
        """How long to wait before the next round: after a failure, or where records may linger longer."""

    def assign(self, partition: int, offset: int) -> None:
        """Read `partition` from `offset` on."""
        self._places[partition] = _Place(offset=offset)

    def unassign(self, partition: int) -> None:
        """Read `partition` no more."""
        self._places.pop(partition, None)

    def fetch(self) -> Fetched:
        """Ask every leader once, all at the same time; waits up to `linger_s`, or half a second."""
        self.pause_s = 0.0
        done = Fetched()
        by_leader = self._by_leader(done)
        is_behind = any(self._places[number].is_behind for numbers in by_leader.values() for number in numbers)
        requests = [(leader, self._request(numbers, is_behind=is_behind)) for leader, numbers in by_leader.items()]
        replies = self._client.send_all(requests) if requests else []
        if not requests:
            self.pause_s = _RETRY_S
        for reply in replies:
            self._take(reply, done)
        if not (is_behind or done.events):
            self.pause_s = max(self.pause_s, self._linger_s - _LONGEST_WAIT_S)
        if done.batches:
            done.records = self._columns(done.batches)
            done.batches = []
        return done

    def _by_leader(self, done: Fetched) -> dict[int, list[int]]:
        """Partitions to ask for, by leader; another partition comes first each time, or one could use up the bytes."""
        if self._places.keys() - self._leaders.keys():
            self._look_up(done)
            if self._places.keys() - self._leaders.keys():
                self.pause_s = _RETRY_S
        found: defaultdict[int, list[int]] = defaultdict(list)
        for number in self._places:
            if number in self._leaders:
                found[self._leaders[number][0]].append(number)
        if self._places:
            first = next(iter(self._places))
            self._places[first] = self._places.pop(first)
        return found

    def _look_up(self, done: Fetched) -> None:
        """Find the leaders. A topic with another id is another topic."""
        try:
            (topic,) = self._client.metadata([self._name]).topics
        except RetryableError:
            self.pause_s = _RETRY_S
            return
        if topic.error_code in _GONE or (topic.error_code == NONE and topic.topic_id != self._topic_id):
            for number in [*self._places]:
                self._stop(number, FetchEvent.LOST, done)
        elif topic.error_code == TOPIC_AUTHORIZATION_FAILED:
            raise NotAuthorized("READ", f"topic {self._name}")
        rows = topic.partitions if topic.error_code == NONE else ()
        self._leaders = {row.partition_index: (row.leader_id, row.leader_epoch) for row in rows if row.leader_id >= 0}

    def _request(self, numbers: Sequence[int], *, is_behind: bool) -> Any:
        lingers = self._linger_s > 0
        wait_s = 0.0 if is_behind else min(self._linger_s, _LONGEST_WAIT_S) if lingers else _WAIT_S
        topic = FetchRequest.FetchTopic
        rows = [
            topic.FetchPartition(
                partition=number,
                current_leader_epoch=self._leaders[number][1],
                fetch_offset=self._places[number].offset,
                last_fetched_epoch=self._places[number].last_epoch,
                partition_max_bytes=self._most_bytes,
            )
            for number in numbers
        ]
        return FetchRequest(
            max_wait_ms=round(1000 * wait_s),
            min_bytes=_ENOUGH_BYTES if lingers else 1,
            max_bytes=_MOST_BYTES,
            isolation_level=self._isolation,
            topics=[topic(topic_id=self._topic_id, partitions=rows)],
            min_version=_BY_ID,
            max_version=_NEWEST,
        )

    def _take(self, reply: Any, done: Fetched) -> None:
        if isinstance(reply, NoResponse) or reply.error_code != NONE:
            self._ask_again()
            return
        for row in (row for topic in reply.responses for row in topic.partitions):
            place = self._places.get(row.partition_index)
            if place is None:
                continue
            if row.error_code != NONE:
                self._refused(row.partition_index, row.error_code, done)
            elif row.diverging_epoch is not None and row.diverging_epoch.epoch >= 0:
                self._stop(row.partition_index, FetchEvent.TRUNCATED, done)
            else:
                self._read(row, place, done)

    def _read(self, row: Any, place: _Place, done: Fetched) -> None:
        number, data = row.partition_index, row.records or b""
        try:
            read = read_batches(
                number, data, ((each.producer_id, each.first_offset) for each in row.aborted_transactions or ())
            )
        except MalformedRecord as error:
            raise RetryableError(
                f"{self._name} partition {number} at offset {place.offset} cannot be read: {error.fault}",
                hint="try again; see the broker's log",
            ) from error
        place.is_behind = False
        if read.next_offset is None or read.next_offset <= place.offset:
            place.is_behind = bool(data)
            return
        place.offset, place.last_epoch = read.next_offset, read.leader_epoch
        place.is_behind = read.next_offset < row.last_stable_offset
        done.batches += read.batches
        done.reached[number] = read.next_offset
        if read.leader_epoch >= 0:
            done.epochs[number] = read.leader_epoch

    def _refused(self, number: int, code: int, done: Fetched) -> None:
        if code == TOPIC_AUTHORIZATION_FAILED:
            raise NotAuthorized("READ", f"topic {self._name}")
        if code == _OUT_OF_RANGE or code in _GONE:
            self._stop(number, FetchEvent.LOST, done)
        elif code == _CORRUPT:
            raise RetryableError(
                f"{self._name} partition {number} cannot be read: {error_text(code)}", hint="see the broker's log"
            )
        self._ask_again()

    def _ask_again(self) -> None:
        """The leader moved, or it cannot answer now: look it up before the next round."""
        self._leaders = {}
        self.pause_s = _RETRY_S

    def _stop(self, number: int, event: FetchEvent, done: Fetched) -> None:
        done.events[number] = event
        self.unassign(number)


class FetchThread:
    """Fetches what is assigned: one `Fetched` waits for ``take``, another for its place. What was fetched before a
    partition was assigned or unassigned is given all the same. `options` as of `LogFetcher`."""

    def __init__(self, config: KafkaConfig, name: str, topic_id: str, **options: Any) -> None:
        self._config, self._topic, self._options = config, (name, topic_id), options
        self._calls: SimpleQueue[Callable[[LogFetcher], None]] = SimpleQueue()
        self._queue: Queue[Fetched | Exception] = Queue(_AHEAD)
        self._closed = Event()
        self._thread = Thread(target=self._run, name="acktrail-fetch", daemon=True)
        self._thread.start()

    def assign(self, partition: int, offset: int) -> None:
        """Read `partition` from `offset` on, from the next request on."""
        self._calls.put(lambda fetcher: fetcher.assign(partition, offset))

    def unassign(self, partition: int) -> None:
        """Read `partition` no more, from the next request on."""
        self._calls.put(lambda fetcher: fetcher.unassign(partition))

    def take(self, timeout_s: float) -> Fetched | None:
        """The next records and events; None when none came within `timeout_s`. Raises any error of the reading."""
        try:
            found = self._queue.get(timeout=timeout_s)
        except Empty:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        """End the reading. A request that is under way for longer ends by itself."""
        self._closed.set()
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        try:
            with BrokerClient(self._config) as client:
                fetcher = LogFetcher(client, *self._topic, **self._options)
                while not self._closed.wait(fetcher.pause_s):
                    while not self._calls.empty():
                        self._calls.get()(fetcher)
                    fetched = fetcher.fetch()
                    if not fetched.is_empty:
                        self._put(fetched)
        except Exception as error:  # noqa: BLE001  # raised again by ``take``
            self._put(error)

    def _put(self, found: Fetched | Exception) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put(found, timeout=_LOOK_UP_S)
            except Full:
                continue
            return
