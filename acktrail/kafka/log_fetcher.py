"""Record batches with data as brokers send them (Fetch), for readers that follow a log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

import google_crc32c
from kafka.protocol.consumer.fetch import FetchRequest

from acktrail.errors import MalformedRecord, NotAuthorized, RetryableError
from acktrail.format.wire.record_batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    BatchKind,
    Compression,
    DataBatch,
    PackedBatch,
    batches_in,
)
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
_CHECKED_BYTES: Final = 1 << 20
_ENOUGH_BYTES: Final = 1 << 20
"""A broker that has so much answers before the wait is over."""
_WAIT_S: Final = 0.5
"""How long a broker waits for the first byte where nothing lingers."""
_LONGEST_WAIT_S: Final = 1.0
"""Longer waits are made here, where they can be ended."""
_RETRY_S: Final = 0.1


class FetchEvent(StrEnum):
    """Why a partition is not read on until it is assigned again. Lost: the log does not have the offset, or there is no
    such topic or partition with this id. Truncated: the log was cut before the offset."""

    LOST = "lost"
    TRUNCATED = "truncated"


@dataclass(slots=True)
class Fetched:
    """What a round of requests brought: batches (a partition's in one run), the offset reached (at most the end), the
    newest leader epoch, and events, by partition."""

    batches: list[DataBatch] = field(default_factory=list)
    reached: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    events: dict[int, FetchEvent] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.reached or self.events)


@dataclass(slots=True, kw_only=True)
class _Place:
    """Where a partition is read: the next offset, the end (exclusive; None: there is none), the epoch of the last batch
    (-1: not known), and whether more was there when it was asked last. `back`: how many offsets earlier the next
    request begins, to compare the batch there with the `last` one (first and last offset, checksum; None: not known).
    """

    offset: int
    end: int | None
    last_epoch: int = -1
    is_behind: bool = True
    back: int = 0
    last: tuple[int, int, int] | None = None


def intact_batches(data: bytes, aborted: Iterable[tuple[int, int]], *, is_stable: bool = True) -> list[PackedBatch]:
    """As `batches_in`, every checksum verified. Raises MalformedRecord: one is wrong, or as `batches_in`."""
    found = [*batches_in(data, aborted, is_stable=is_stable)]
    for batch in found:
        check_intact(batch)
    return found


def check_intact(batch: PackedBatch) -> None:
    """Raise MalformedRecord if the checksum of a batch is wrong. Copies a part of a large one at a time."""
    header, raw, check = batch.header, batch.raw, 0
    for at in range(CHECKED_FROM, len(raw), _CHECKED_BYTES):
        check = google_crc32c.extend(check, bytes(raw[at : at + _CHECKED_BYTES]))
    if check != header.crc:
        text = f"the CRC-32C of the batch at offset {header.base_offset} is wrong"
        raise MalformedRecord(text, part="batch", position=0)


def data_batches(partition: int, batches: Iterable[PackedBatch]) -> list[DataBatch]:
    """Those that a consumer gets. Raises as `unpacked_records`."""
    consumed = (batch for batch in batches if batch.kind is BatchKind.DATA)
    return [DataBatch(partition, batch.header, unpacked_records(batch)) for batch in consumed]


class LogFetcher:
    """Reads partitions of the topic `name` with id `topic_id`: whole batches, by the id (KIP-516). The requests say
    which epoch the last fetched batch had, so that a broker whose log was truncated reports it (KIP-595: a diverging
    epoch). One thread.

    Nothing is jumped over: a partition whose offset is not there stops with an event until it is assigned again. One
    that was read up to its end stops, too. A broker that does not answer is asked again, without end: who calls decides
    when that is an outage. `linger_s`: how long a broker that has nothing but a few records waits for more. Without
    `is_committed` records of open and aborted transactions are among the others, as a share group gets them by default.
    `most_bytes`: of a partition in one response. `is_compared`: after each new connection the batch before the next
    offset is compared with the one that was read, since a restored cluster repeats its epochs: another one is a
    truncated log.

    Raises NotAuthorized, ConfigurationError (the login is refused), RetryableError (a damaged batch).
    """

    def __init__(
        self,
        client: BrokerClient,
        name: str,
        topic_id: str,
        *,
        linger_s: float = 0.0,
        is_committed: bool = True,
        most_bytes: int | None = None,
        is_compared: bool = False,
    ) -> None:
        self._is_compared, self._connections = is_compared, client.connections
        self._client, self._name, self._linger_s = client, name, linger_s
        self._isolation = _READ_COMMITTED if is_committed else _READ_UNCOMMITTED
        self._most_bytes = most_bytes or _MOST_OF_A_PARTITION
        self._topic_id = UUID(bytes=topic_id_bytes(TopicId(topic_id)))
        self._places: dict[int, _Place] = {}
        self._leaders: dict[int, tuple[int, int]] = {}
        """Leader and its epoch by partition."""
        self.pause_s = 0.0
        """How long to wait before the next round: after a failure, or where records may linger longer."""

    def assign(self, partition: int, offset: int, end: int | None = None) -> None:
        """Read `partition` from `offset` on, up to before `end`; None: without end."""
        self._places[partition] = _Place(offset=offset, end=end, back=int(self._is_compared and offset > 0))

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
        is_new = self._is_compared and self._client.connections != self._connections
        self._connections = self._client.connections
        for reply in replies:
            self._take(reply, done, is_new=is_new)
        if not (is_behind or done.events):
            self.pause_s = max(self.pause_s, self._linger_s - _LONGEST_WAIT_S)
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
                fetch_offset=self._places[number].offset - self._places[number].back,
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

    def _take(self, reply: Any, done: Fetched, *, is_new: bool) -> None:
        if isinstance(reply, NoResponse) or reply.error_code != NONE:
            self._ask_again()
            return
        for row in (row for topic in reply.responses for row in topic.partitions):
            place = self._places.get(row.partition_index)
            if place is None:
                continue
            if is_new and place.offset > 0 and not place.back:
                place.back = 1  # what came over the new connection is asked for again, from the batch before on
            elif row.error_code != NONE:
                self._refused(row.partition_index, row.error_code, done)
            elif row.diverging_epoch is not None and row.diverging_epoch.epoch >= 0:
                self._stop(row.partition_index, FetchEvent.TRUNCATED, done)
            else:
                self._read(row, place, done)

    def _read(self, row: Any, place: _Place, done: Fetched) -> None:
        number, data = row.partition_index, row.records or b""
        aborted = ((each.producer_id, each.first_offset) for each in row.aborted_transactions or ())
        try:
            batches = intact_batches(data, aborted)
            consumed = data_batches(number, batches)
        except MalformedRecord as error:
            raise RetryableError(
                f"{self._name} partition {number} at offset {place.offset} cannot be read: {error.fault}",
                hint="try again; see the broker's log",
            ) from error
        place.is_behind = False
        if place.back and batches:
            place.back, before = 0, _identity(batches[0])
            if place.last not in (None, before):
                self._stop(number, FetchEvent.TRUNCATED, done)
                return
            place.last = before
        if not batches or batches[-1].header.last_offset < place.offset:
            place.is_behind = bool(data)
            return
        place.offset = done.reached[number] = batches[-1].header.last_offset + 1
        if place.end is not None and place.offset >= place.end:
            done.reached[number] = place.end
            del self._places[number]
        place.last_epoch = max(batch.header.leader_epoch for batch in batches)
        place.last = _identity(batches[-1])
        place.is_behind = place.offset < row.last_stable_offset
        done.batches += consumed
        if place.last_epoch >= 0:
            done.epochs[number] = place.last_epoch

    def _refused(self, number: int, code: int, done: Fetched) -> None:
        if code == TOPIC_AUTHORIZATION_FAILED:
            raise NotAuthorized("READ", f"topic {self._name}")
        place = self._places[number]
        if code == _OUT_OF_RANGE and place.back:  # the log begins at the next offset, or does not have it
            place.back, place.last = 0, None
            return
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
        del self._places[number]


def _identity(batch: PackedBatch) -> tuple[int, int, int]:
    return batch.header.base_offset, batch.header.last_offset, batch.header.crc


def unpacked_records(batch: PackedBatch) -> bytes:
    """The bytes behind the header of a batch, decompressed: what decompresses is loaded for batches that need it.
    Raises MalformedRecord as `unpacked`."""
    compression, body = batch.header.compression, bytes(batch.raw[HEADER_BYTES:])
    if compression is Compression.NONE:
        return body
    from acktrail.format.columns.decoding.compression import unpacked

    return unpacked(compression, body)
