"""Headers of record batches: when records were written, and how many data, control and aborted records a range holds.

A batch counts its records (Kafka: ``DefaultRecordBatch``); a read_committed response lists the aborted transactions
beside them (Fetch, ``AbortedTransactions``). No record is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from kafka.protocol.consumer.fetch import FetchRequest

from acktrail.broker.client.broker_client import BrokerClient, NoResponse
from acktrail.broker.client.error_codes import NONE
from acktrail.broker.descriptions import TopicPartition
from acktrail.broker.logs.list_offsets import leaders_of

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, base and max timestamp, producer
id, producer epoch, base sequence, number of records."""
_PREFIX: Final = 12
"""Bytes of a batch that its length does not count."""
_VERSION_2: Final = 2
_CONTROL: Final = 0x20
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_BY_NAME: Final = 11
"""The last version of Fetch that names topics by name."""
_AT_ONCE: Final = 500
_ONE_BATCH: Final = 1
"""Bytes: a broker always gives at least one batch."""


class BatchKind(StrEnum):
    """What a batch is to a consumer."""

    DATA = "data"
    ABORTED = "aborted"
    """Records of an aborted transaction: only read_uncommitted consumers get them."""
    CONTROL = "control"
    """Markers of transactions: no consumer gets them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Offsets `first_offset` to `last_offset`, both inclusive, that hold `records` records (compaction leaves gaps)."""

    first_offset: int
    last_offset: int
    records: int
    kind: BatchKind


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogStretch:
    """Offsets of a log from `first_offset` up to `end_offset` (exclusive)."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogPosition:
    """An offset in a log."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """First and latest timestamp in one record batch, ms since the epoch, as the topic has them."""

    first_ms: int
    latest_ms: int


_PlaceT = TypeVar("_PlaceT", LogPosition, LogStretch)


def read_batch_times(client: BrokerClient, positions: Iterable[LogPosition]) -> dict[LogPosition, BatchTimes]:
    """See ``ShareGroupAdmin.batch_times``: of the batch that holds each position, or comes next after it. Positions
    at the end of their log, and those whose leader does not answer, are left out.
    """
    leaders = _leaders(client, positions)
    asked = list(leaders.items())
    times: dict[LogPosition, BatchTimes] = {}
    for at in range(0, len(asked), _AT_ONCE):
        part = asked[at : at + _AT_ONCE]
        requests = [(leader, _request(p, p.offset, _ONE_BATCH, _READ_UNCOMMITTED)) for p, leader in part]
        for (position, _), reply in zip(part, client.send_all(requests), strict=True):
            found = _times(reply)
            if found is not None:
                times[position] = found
    return times


def read_batches(
    client: BrokerClient, stretches: Iterable[LogStretch], *, most_bytes: int
) -> dict[LogStretch, tuple[Batch, ...]]:
    """See ``ShareGroupAdmin.record_batches``. A stretch is also left out when its leader does not answer or refuses.
    Cost: fetches what it counts.
    """
    reading = [_Reading(leader, stretch, most_bytes) for stretch, leader in _leaders(client, stretches).items()]
    while open_ := [each for each in reading if each.is_open]:
        replies = client.send_all([(each.leader, each.request()) for each in open_])
        for each, reply in zip(open_, replies, strict=True):
            each.take(reply)
    return {each.stretch: tuple(each.batches) for each in reading if each.is_whole}


def batches_in(data: bytes, aborted: Iterable[tuple[int, int]]) -> Iterator[Batch]:
    """The whole batches in `data`, in their order; the last one may be cut off.

    Args:
        aborted: producer id and first offset of every aborted transaction that lies in `data`, even in part.
    """
    waiting = sorted(aborted, key=_first_offset)
    active: set[int] = set()
    at = 0
    while at + _HEADER.size <= len(data):
        header = _HEADER.unpack_from(data, at)
        base, length, magic, attributes, delta, producer, records = (header[i] for i in (0, 1, 3, 5, 6, 9, 12))
        if magic != _VERSION_2 or at + _PREFIX + length > len(data):
            return
        at += _PREFIX + length
        last = base + delta
        while waiting and waiting[0][1] <= last:
            active.add(waiting.pop(0)[0])
        kind = BatchKind.DATA
        if attributes & _CONTROL:
            kind = BatchKind.CONTROL
            active.discard(producer)
        elif producer in active:
            kind = BatchKind.ABORTED
        yield Batch(first_offset=base, last_offset=last, records=records, kind=kind)


class _Reading:
    """One stretch while it is read."""

    def __init__(self, leader: int, stretch: LogStretch, most_bytes: int) -> None:
        self.leader, self.stretch = leader, stretch
        self.batches: list[Batch] = []
        self._next = stretch.first_offset
        self._left = most_bytes
        self._is_given_up = False

    @property
    def is_whole(self) -> bool:
        return self._next >= self.stretch.end_offset

    @property
    def is_open(self) -> bool:
        return not (self.is_whole or self._is_given_up)

    def request(self) -> Any:
        return _request(self.stretch, self._next, self._left, _READ_COMMITTED)

    def take(self, reply: Any) -> None:
        row = _row(reply)
        if row is None:
            self._is_given_up = True
            return
        data = bytes(row.records or b"")
        aborted = {(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()}
        found = list(batches_in(data, aborted))
        self.batches += [batch for batch in found if batch.last_offset >= self._next]
        self._left -= len(data)
        if not found or found[-1].last_offset < self._next:
            self._is_given_up = True
            return
        self._next = found[-1].last_offset + 1
        self._is_given_up = self._left <= 0


def _leaders(client: BrokerClient, places: Iterable[_PlaceT]) -> dict[_PlaceT, int]:
    """The leader of each place's partition, in the order of the places; without those that have none."""
    partitions = {place: TopicPartition(topic=place.topic, partition=place.partition) for place in sorted(set(places))}
    leaders, _ = leaders_of(client, sorted(set(partitions.values())))
    return {place: leaders[partition] for place, partition in partitions.items() if partition in leaders}


def _request(place: LogPosition | LogStretch, offset: int, most_bytes: int, isolation: int) -> Any:
    topic = FetchRequest.FetchTopic
    row = topic.FetchPartition(
        partition=place.partition,
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=most_bytes,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=most_bytes,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[topic(topic=place.topic, partitions=[row])],
        forgotten_topics_data=[],
        rack_id="",
        min_version=4,
        max_version=_BY_NAME,
    )


def _row(reply: Any) -> Any:
    """The one partition's row in a Fetch response; None: no response, or an error."""
    if isinstance(reply, NoResponse) or getattr(reply, "error_code", NONE) != NONE:
        return None
    row = next((row for topic in reply.responses for row in topic.partitions), None)
    return row if row is not None and row.error_code == NONE else None


def _times(reply: Any) -> BatchTimes | None:
    row = _row(reply)
    if row is None or len(row.records or b"") < _HEADER.size:
        return None
    _, _, _, magic, _, _, _, first_ms, latest_ms, *_ = _HEADER.unpack_from(row.records)
    if magic != _VERSION_2 or first_ms < 0 or latest_ms < 0:
        return None
    return BatchTimes(first_ms=first_ms, latest_ms=latest_ms)


def _first_offset(transaction: tuple[int, int]) -> int:
    return transaction[1]
