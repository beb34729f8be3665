"""Which offsets of a stretch of a log are records: data, control and aborted batches, by one bounded reading.

A batch says what it holds (Kafka: ``DefaultRecordBatch``); a read_committed response lists the aborted transactions
beside them (``AbortedTransactions``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from kafka.protocol.consumer.fetch import FetchRequest

from acktrail.errors import MalformedRecord
from acktrail.format.wire.record_batch import BatchKind, PackedBatch, batch_records
from acktrail.kafka.client.broker_client import BrokerClient, NoResponse
from acktrail.kafka.client.error_codes import NONE
from acktrail.kafka.descriptions import Batch, LogStretch, TopicPartition
from acktrail.kafka.log_fetcher import intact_batches, unpacked_records
from acktrail.kafka.logs import leaders_of
from acktrail.model.offset_ranges import Span, joined

_BY_NAME: Final = 11
"""The last version of Fetch that names topics by name."""
ISOLATION: Final = "share.isolation.level"
_UNCOMMITTED_LEVEL: Final = "read_uncommitted"
DEPENDS_ON_LEVEL: Final = frozenset({BatchKind.ABORTED, BatchKind.OPEN})
"""What only a read_uncommitted group gets, now."""
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1


def read_batches(
    client: BrokerClient, stretches: Iterable[LogStretch], *, most_bytes: int
) -> dict[LogStretch, tuple[Batch, ...]]:
    """The record batches of stretches of logs. A stretch that takes more than `most_bytes`, cannot be
    read or has a damaged batch is left out. Fetches them. Needs READ on the topics."""
    logs = {each: TopicPartition(topic=each.topic, partition=each.partition) for each in sorted(stretches)}
    leaders, _ = leaders_of(client, [*dict.fromkeys(logs.values())])
    reading = [_Reading(leaders[log], each, most_bytes) for each, log in logs.items() if log in leaders]
    while open_ := [each for each in reading if not (each.is_whole or each.is_given_up)]:
        requests = [(each.leader, _fetch_request(each.stretch, each.next, each.left, each.isolation)) for each in open_]
        for each, reply in zip(open_, client.send_all(requests), strict=True):
            each.take(reply)
    return {each.stretch: tuple(each.batches) for each in reading if each.is_whole}


def hidden_offsets(batches: Sequence[Batch], first: int, last: int, level: str | None) -> tuple[Span, ...] | None:
    """The offsets from `first` to `last` that are no records of a group with the isolation `level`. None: it depends on
    a level that is not known, or on how a transaction will end."""
    kinds = {batch.kind for batch in batches if batch.last_offset >= first}
    if kinds & DEPENDS_ON_LEVEL and (level is None or (level != _UNCOMMITTED_LEVEL and BatchKind.OPEN in kinds)):
        return None
    unseen = {BatchKind.CONTROL} if level == _UNCOMMITTED_LEVEL else {BatchKind.CONTROL, BatchKind.ABORTED}
    spans = joined(_unseen(batches, first, last, unseen))
    return joined((max(begin, first), min(end, last)) for begin, end in spans)


def _unseen(batches: Sequence[Batch], first: int, last: int, unseen: Collection[BatchKind]) -> Iterator[Span]:
    at = first
    for batch in batches:
        yield at, batch.first_offset - 1
        if batch.kind in unseen:
            yield batch.first_offset, batch.last_offset
        else:
            yield from batch.gaps
        at = batch.last_offset + 1
    yield at, last


def log_batch(packed: PackedBatch) -> Batch:
    """What a batch holds. Raises MalformedRecord: the records of one with gaps cannot be decoded."""
    header, gaps = packed.header, tuple[Span, ...]()
    if not header.is_control and header.record_count != header.last_offset_delta + 1:
        offsets = [record.offset for record in batch_records(header, unpacked_records(packed))]
        edges = [header.base_offset - 1, *offsets, header.last_offset + 1]
        gaps = joined((before + 1, after - 1) for before, after in pairwise(edges))
    return Batch(first_offset=header.base_offset, last_offset=header.last_offset, kind=packed.kind, gaps=gaps)


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
            found = [log_batch(packed) for packed in intact_batches(data, aborted, is_stable=is_stable)]
        except MalformedRecord:
            return
        self.left -= len(data)
        if found and found[-1].last_offset >= self.next:
            self.batches += [batch for batch in found if batch.last_offset >= self.next]
            self.next = found[-1].last_offset + 1
            self.is_given_up = self.left <= 0
        elif is_stable:
            self.isolation, self.is_given_up = _READ_UNCOMMITTED, False


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
