"""What lies in a stretch of a log, as the headers of its record batches say: records, control records, aborted ones.

A batch counts its records (Kafka: ``DefaultRecordBatch``); which of them belong to aborted transactions a broker says
beside a read_committed answer (Fetch, ``AbortedTransactions``). No record is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kafka.protocol.consumer import FetchRequest

from acktrail.broker.client.broker_client import BrokerClient, NoResponse
from acktrail.broker.client.error_codes import NONE
from acktrail.broker.descriptions import TopicPartition
from acktrail.broker.logs.list_offsets import leaders_of

__all__ = ["Batch", "BatchKind", "LogStretch", "batches_in", "read_batches"]

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta, base and max timestamp, producer
id, producer epoch, base sequence, number of records."""
_PREFIX: Final = 12
"""Bytes of a batch that its length does not count."""
_VERSION_2: Final = 2
_CONTROL: Final = 0x20
_READ_COMMITTED: Final = 1
_BY_NAME: Final = 11
"""The last version of Fetch that names topics by name."""


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


def read_batches(
    client: BrokerClient, stretches: Iterable[LogStretch], *, most_bytes: int
) -> dict[LogStretch, tuple[Batch, ...]]:
    """The batches of each stretch, which must be of different partitions. Left out are those that are not read through
    within `most_bytes` each, that end beyond the last stable offset, and whose leader does not answer or refuses.

    Cost: fetches what it counts. Needs READ on the topics.
    """
    wanted = sorted(set(stretches))
    partitions = sorted({TopicPartition(topic=s.topic, partition=s.partition) for s in wanted})
    leaders, _ = leaders_of(client, partitions) if partitions else ({}, {})
    reading = {
        stretch: _Reading(leader, stretch, most_bytes)
        for stretch in wanted
        if (leader := leaders.get(TopicPartition(topic=stretch.topic, partition=stretch.partition))) is not None
    }
    while open_ := [each for each in reading.values() if each.is_open]:
        replies = client.send_all([(each.leader, each.request()) for each in open_])
        for each, reply in zip(open_, replies, strict=True):
            each.take(reply)
    return {stretch: tuple(each.batches) for stretch, each in reading.items() if each.is_whole}


class _Reading:
    """One stretch while it is read."""

    def __init__(self, leader: int, stretch: LogStretch, most_bytes: int) -> None:
        self.leader = leader
        self.batches: list[Batch] = []
        self._stretch = stretch
        self._next = stretch.first_offset
        self._left = most_bytes
        self._is_given_up = False

    @property
    def is_whole(self) -> bool:
        return self._next >= self._stretch.end_offset

    @property
    def is_open(self) -> bool:
        return not (self.is_whole or self._is_given_up)

    def request(self) -> Any:
        topic = FetchRequest.FetchTopic
        row = topic.FetchPartition(
            partition=self._stretch.partition,
            current_leader_epoch=-1,
            fetch_offset=self._next,
            log_start_offset=-1,
            partition_max_bytes=self._left,
        )
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=self._left,
            isolation_level=_READ_COMMITTED,
            session_id=0,
            session_epoch=-1,
            topics=[topic(topic=self._stretch.topic, partitions=[row])],
            forgotten_topics_data=[],
            rack_id="",
            min_version=4,
            max_version=_BY_NAME,
        )

    def take(self, reply: Any) -> None:
        rows = [] if isinstance(reply, NoResponse) else [row for topic in reply.responses for row in topic.partitions]
        if not rows or rows[0].error_code != NONE:
            self._is_given_up = True
            return
        data = bytes(rows[0].records or b"")
        aborted = {(each.producer_id, each.first_offset) for each in rows[0].aborted_transactions or ()}
        found = list(batches_in(data, aborted))
        self.batches += [batch for batch in found if batch.last_offset >= self._next]
        self._left -= len(data)
        if not found or found[-1].last_offset < self._next:
            self._is_given_up = True
            return
        self._next = found[-1].last_offset + 1
        self._is_given_up = self._left <= 0


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


def _first_offset(transaction: tuple[int, int]) -> int:
    return transaction[1]
