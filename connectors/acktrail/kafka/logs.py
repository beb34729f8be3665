"""Logs of topic partitions: where they begin and end, where a time lies in them (ListOffsets), and which offsets of a
range are of data, control and aborted records. A batch says what it holds (Kafka: ``DefaultRecordBatch``); a
read_committed response lists the aborted transactions beside them (Fetch, ``AbortedTransactions``). Records are decoded
only where their batch has fewer than offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.offsets import ListOffsetsRequest

from acktrail.backoff import Backoff
from acktrail.errors import MalformedRecord
from acktrail.format.wire.record_batch import HEADER_BYTES, BatchHeader, batch_records, read_header
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import LEADER_NOT_AVAILABLE, LOOK_AGAIN, NONE, UNKNOWN_TOPIC_OR_PARTITION
from acktrail.kafka.descriptions import TopicPartition
from acktrail.model.offset_ranges import Span, joined

_UNKNOWN_TIMEOUT_S: Final = 2.0
"""How long a partition may be unknown to its leader before that is the result: metadata spreads in milliseconds."""
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_BY_NAME: Final = 11
"""The last version of Fetch that names topics by name."""


class BatchKind(StrEnum):
    """Records of an aborted transaction reach read_uncommitted consumers only; control batches (markers) reach none.
    Of records beyond the last stable offset it is not known yet (`OPEN`): read_uncommitted consumers get them."""

    DATA = "data"
    ABORTED = "aborted"
    OPEN = "open"
    CONTROL = "control"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Offsets `first_offset` to `last_offset`, both inclusive; in `gaps` are those that compaction took away."""

    first_offset: int
    last_offset: int
    kind: BatchKind
    gaps: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class LogStretch:
    """Offsets of a log from `first_offset` up to `end_offset` (exclusive)."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int


class Query(NamedTuple):
    """An offset as ListOffsets names it: by a time in ms since the epoch, -1 for the end, -2 for the start."""

    timestamp: int
    isolation: int = 0


class _Failure(NamedTuple):
    """An error code in place of a leader's row. -1: not known."""

    error_code: int
    offset: int = -1
    leader_epoch: int = -1
    timestamp: int = -1


START: Final = Query(-2)
HIGH_WATERMARK: Final = Query(-1)
LAST_STABLE: Final = Query(-1, isolation=1)

_Results = dict[Query, Any]
"""A leader's row, or a `_Failure`, for each query."""


def query_leaders(
    client: BrokerClient, partitions: Iterable[TopicPartition], queries: Sequence[Query]
) -> dict[TopicPartition, _Results]:
    """The leaders' results for each query in each log, in the order asked for. A partition that cannot be asked has an
    error everywhere. Where a leader moved it is looked up and asked again, for `client.request_timeout_s` in all."""
    wanted = tuple(dict.fromkeys(partitions))
    results: dict[TopicPartition, _Results] = {}
    backoff, unknown = Backoff(client.request_timeout_s), Backoff(_UNKNOWN_TIMEOUT_S)
    pending: Sequence[TopicPartition] = wanted
    while pending:
        results |= _round(client, pending, queries, backoff)
        retried = LOOK_AGAIN | {UNKNOWN_TOPIC_OR_PARTITION} if unknown.left_s > 0 else LOOK_AGAIN
        pending = [partition for partition in pending if first_error(results[partition]) in retried]
        if pending and not backoff.wait():
            break
    return {partition: results[partition] for partition in wanted}


def _round(
    client: BrokerClient, partitions: Sequence[TopicPartition], queries: Sequence[Query], backoff: Backoff
) -> dict[TopicPartition, _Results]:
    leaders, failed = _leaders_of(client, partitions)
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition, leader in leaders.items():
        by_leader[leader].append(partition)
    asked = [(leader, query, group) for leader, group in by_leader.items() for query in queries]
    replies = client.send_all([(leader, _offsets_request(query, group)) for leader, query, group in asked])
    failed |= dict.fromkeys(leaders, LEADER_NOT_AVAILABLE)  # until a row is there
    results: dict[TopicPartition, _Results] = {p: dict.fromkeys(queries, _Failure(failed[p])) for p in failed}
    for (_, query, _), reply in zip(asked, replies, strict=True):
        if not isinstance(reply, NoResponse):
            for name, row in ((topic.name, row) for topic in reply.topics for row in topic.partitions):
                results[TopicPartition(topic=name, partition=row.partition_index)][query] = row
        elif not (reply.may_try_again and backoff.left_s > 0):
            raise client.explain(reply)
    return results


def _offsets_request(query: Query, partitions: Sequence[TopicPartition]) -> Any:
    topics: dict[str, list[Any]] = defaultdict(list)
    for partition in partitions:
        row = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
        topics[partition.topic].append(row(partition_index=partition.partition, timestamp=query.timestamp))
    return ListOffsetsRequest(
        isolation_level=query.isolation,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=30_000,
        min_version=4,
    )


def first_error(results: Mapping[Query, Any]) -> int:
    """The first error code among the results for one partition; 0: none."""
    return next((int(result.error_code) for result in results.values() if result.error_code != NONE), NONE)


def _leaders_of(
    client: BrokerClient, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Leader by partition, and error code by partition where there is none."""
    leaders: dict[TopicPartition, int] = {}
    failed: dict[TopicPartition, int] = {}
    if not partitions:
        return leaders, failed
    topics = {t.name: t for t in client.metadata(sorted({p.topic for p in partitions})).topics}
    rows = {name: {row.partition_index: row for row in topic.partitions} for name, topic in topics.items()}
    for partition in partitions:
        topic = topics.get(partition.topic)
        row = rows.get(partition.topic, {}).get(partition.partition)
        if topic is not None and topic.error_code != NONE:
            failed[partition] = topic.error_code
        elif row is None:
            failed[partition] = UNKNOWN_TOPIC_OR_PARTITION
        elif row.leader_id < 0:
            failed[partition] = LEADER_NOT_AVAILABLE
        else:
            leaders[partition] = row.leader_id
    return leaders, failed


def read_batches(
    client: BrokerClient, stretches: Iterable[LogStretch], *, most_bytes: int
) -> dict[LogStretch, tuple[Batch, ...]]:
    """The record batches of stretches of logs, one of each log. A stretch that takes more than `most_bytes` or cannot
    be read is left out. Fetches them. Needs READ on the topics."""
    reading = [_Reading(leader, stretch, most_bytes) for stretch, leader in _leaders(client, stretches).items()]
    while open_ := [each for each in reading if not (each.is_whole or each.is_given_up)]:
        requests = [(each.leader, _fetch_request(each.stretch, each.next, each.left, each.isolation)) for each in open_]
        for each, reply in zip(open_, client.send_all(requests), strict=True):
            each.take(reply)
    return {each.stretch: tuple(each.batches) for each in reading if each.is_whole}


def batches_in(data: bytes, aborted: Iterable[tuple[int, int]], *, is_stable: bool = True) -> Iterator[Batch]:
    """The whole batches in `data`, in their order; the last one may be cut off. `aborted`: producer id and first offset
    of every aborted transaction that lies in `data`, even in part. `is_stable`: all is below the last stable offset.
    Raises MalformedRecord: the records of a batch with gaps cannot be decoded.

    Producer 7 aborts, producer 8 commits, and the response lists (7, 0)::

        0 to 2 of 7, transactional  aborted
        3 to 4 of 8, transactional  data
        5 of 7, a marker            control: 7's transaction is over
        6 of 7, transactional       data: its next transaction is not listed
    """
    waiting = sorted(aborted, key=itemgetter(1))
    active: set[int] = set()
    rest = memoryview(data)
    while (header := _header(rest)) is not None and header.size_bytes <= len(rest):
        body, rest = rest[HEADER_BYTES : header.size_bytes], rest[header.size_bytes :]
        while waiting and waiting[0][1] <= header.last_offset:
            active.add(waiting.pop(0)[0])
        kind = BatchKind.ABORTED if header.producer_id in active else BatchKind.DATA
        if header.is_control:
            kind = BatchKind.CONTROL
            active.discard(header.producer_id)
        elif header.is_transactional and not is_stable:
            kind = BatchKind.OPEN
        is_whole = header.is_control or header.record_count == header.last_offset_delta + 1
        gaps = () if is_whole else _gaps(header, bytes(body))
        yield Batch(first_offset=header.base_offset, last_offset=header.last_offset, kind=kind, gaps=gaps)


def _gaps(header: BatchHeader, body: bytes) -> tuple[Span, ...]:
    from acktrail.format.columns.decoding.batch_columns import unpacked

    offsets = [record.offset for record in batch_records(header, unpacked(header.compression, body))]
    edges = [header.base_offset - 1, *offsets, header.last_offset + 1]
    return joined((before + 1, after - 1) for before, after in pairwise(edges))


def _header(data: bytes | memoryview) -> BatchHeader | None:
    try:
        return read_header(data)
    except MalformedRecord:
        return None


class _Reading:
    """One stretch while it is read."""

    def __init__(self, leader: int, stretch: LogStretch, most_bytes: int) -> None:
        self.leader, self.stretch = leader, stretch
        self.batches: list[Batch] = []
        self.next, self.left = stretch.first_offset, most_bytes
        self.isolation, self.is_given_up = _READ_COMMITTED, False

    @property
    def is_whole(self) -> bool:
        return self.next >= self.stretch.end_offset

    def take(self, reply: Any) -> None:
        """What a response has; a read_committed one without any is about offsets beyond the last stable one."""
        row, is_stable = _row(reply), self.isolation == _READ_COMMITTED
        self.is_given_up = True
        if row is None:
            return
        data = bytes(row.records or b"")
        aborted = {(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()}
        try:
            found = list(batches_in(data, aborted, is_stable=is_stable))
        except MalformedRecord:
            return
        self.left -= len(data)
        if found and found[-1].last_offset >= self.next:
            self.batches += [batch for batch in found if batch.last_offset >= self.next]
            self.next = found[-1].last_offset + 1
            self.is_given_up = self.left <= 0
        elif is_stable:
            self.isolation, self.is_given_up = _READ_UNCOMMITTED, False


def _leaders(client: BrokerClient, places: Iterable[LogStretch]) -> dict[LogStretch, int]:
    """The leader of each place's partition, in the order of the places; without those that have none."""
    partitions = {place: TopicPartition(topic=place.topic, partition=place.partition) for place in sorted(set(places))}
    leaders, _ = _leaders_of(client, sorted(set(partitions.values())))
    return {place: leaders[partition] for place, partition in partitions.items() if partition in leaders}


def _fetch_request(place: LogStretch, offset: int, most_bytes: int, isolation: int) -> Any:
    topic = FetchRequest.FetchTopic
    row = topic.FetchPartition(partition=place.partition, fetch_offset=offset, partition_max_bytes=most_bytes)
    return FetchRequest(
        max_bytes=most_bytes,
        isolation_level=isolation,
        topics=[topic(topic=place.topic, partitions=[row])],
        min_version=4,
        max_version=_BY_NAME,
    )


def _row(reply: Any) -> Any:
    """The one partition's row in a Fetch response; None: no response, or an error."""
    if isinstance(reply, NoResponse) or getattr(reply, "error_code", NONE) != NONE:
        return None
    row = next((row for topic in reply.responses for row in topic.partitions), None)
    return row if row is not None and row.error_code == NONE else None
