"""Topics, and stretches of their logs whose records are read to their ends on the caller's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from acktrail.errors import ForeignCluster, LogChanged, RetryableError
from acktrail.format.wire.raw_record import RawRecord
from acktrail.format.wire.record_batch import DataBatch, batch_records
from acktrail.kafka.admin import ShareGroupAdmin, client_of
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.client.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION, error_for
from acktrail.kafka.descriptions import LogOffsets, TopicDescription, TopicPartition
from acktrail.kafka.log_fetcher import FetchEvent, LogFetcher
from acktrail.model.share_partition import STATE_TOPIC

_PATIENCE_S: Final = 90.0
_FEW_BYTES: Final = 1 << 16
"""Enough for the batch with one record, and not much more."""
_FEW_RECORDS: Final = 20_000
"""To read 20,000 one by one costs as much as to load what makes columns."""
_Row = tuple[int, int, bytes | None, bytes | None]


class PrunedOffsets(NamedTuple):
    """Offsets of a partition, both ends inclusive, that the log does not hold any more."""

    first_offset: int
    last_offset: int
    partition: int


class LogPart(NamedTuple):
    """Batches of one partition, whose records from `first_offset` up to before `end_offset` are wanted. `is_bulk`: the
    reading has come to a number of records where columns cost less."""

    partition: int
    first_offset: int
    end_offset: int
    batches: Sequence[DataBatch]
    is_bulk: bool

    def records(self, is_chosen: Callable[[bytes], object] = lambda _: True) -> Iterator[RawRecord]:
        """The wanted records whose key is chosen. Raises MalformedRecord as ``batch_records``."""
        number = self.partition
        for offset, time_ms, key, value in self._bulk(is_chosen) if self.is_bulk else self._few():
            if self.first_offset <= offset < self.end_offset and is_chosen(key or b""):
                yield RawRecord(state_partition=number, offset=offset, timestamp_ms=time_ms, key=key, value=value)

    def _few(self) -> Iterator[_Row]:
        records = (record for batch in self.batches for record in batch_records(batch.header, batch.records))
        return ((record.offset, record.timestamp_ms, record.key, record.value) for record in records)

    def _bulk(self, is_chosen: Callable[[bytes], object]) -> Iterator[_Row]:
        from acktrail.format.columns.decoding.batch_columns import batch_columns

        rows = batch_columns(self.batches)
        wanted = [bool(is_chosen(key or b"")) for key in rows.column("key").to_pylist()]
        rows = rows if all(wanted) else rows.filter(wanted)
        return zip(*(column.to_pylist() for column in rows.columns[1:]), strict=True)


class LogReader:
    """Reads partitions of `topic`, and gives up when nothing comes for `patience_s`. One thread; it shares the
    connection of the topic. `options` as of `LogFetcher`."""

    def __init__(self, topic: StateTopic, *, patience_s: float = _PATIENCE_S, **options: Any) -> None:
        self._topic, self._patience_s = topic, patience_s
        self._fetcher = LogFetcher(topic.client, topic.name, topic.topic_id, **options)
        self._at: dict[int, int] = {}
        self._moved_at, self._count = 0.0, 0

    def read(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[LogPart | PrunedOffsets]:
        """The records from the first offset up to before the second one of each partition, each partition's in order,
        and what was pruned. An open transaction before an end keeps it waiting.

        Raises ForeignCluster (the topic was recreated), LogChanged (a log was truncated), RetryableError (nothing
        came in time), and as `LogFetcher`.
        """
        self._at = {number: first for number, (first, end) in ranges.items() if first < end}
        self._moved_at = time.monotonic()
        for number, offset in self._at.items():
            self._fetcher.assign(number, offset, ranges[number][1])
        while self._at:
            fetched = self._fetcher.fetch()
            for number, group in groupby(fetched.batches, attrgetter("partition")):
                batches = [*group]
                self._count += sum(batch.header.record_count for batch in batches)
                yield LogPart(number, self._at[number], ranges[number][1], batches, self._count > _FEW_RECORDS)
            for number, reached in fetched.reached.items():
                self._reach(number, reached, ranges[number][1])
            for number, event in fetched.events.items():
                yield from self._find_again(number, event, ranges[number][1])
            self._wait()

    def records(self, ranges: Mapping[int, tuple[int, int]]) -> Iterator[RawRecord]:
        """The same record by record; what was pruned is left out. Raises as `read`."""
        for part in self.read(ranges):
            if not isinstance(part, PrunedOffsets):
                yield from part.records()

    def _reach(self, number: int, offset: int, end: int) -> None:
        self._at[number], self._moved_at = offset, time.monotonic()
        if offset == end:
            del self._at[number]

    def _find_again(self, number: int, event: FetchEvent, end: int) -> Iterator[PrunedOffsets]:
        """The log does not have the next offset: it was pruned, or this is not the same log any more."""
        at = self._at[number]
        self._topic.check_incarnation()
        start = min(start_without(self._topic, number, at, event), end)
        if start > at:
            yield PrunedOffsets(at, start - 1, number)
            self._reach(number, start, end)
        if number in self._at:
            self._fetcher.assign(number, self._at[number], end)

    def _wait(self) -> None:
        if self._at and self._fetcher.pause_s:
            time.sleep(self._fetcher.pause_s)
        if self._at and time.monotonic() - self._moved_at > self._patience_s:
            raise RetryableError(
                f"no record arrived from partitions {sorted(self._at)} of {self._topic.name} for "
                f"{self._patience_s:g} s",
                hint="check that these partitions have a leader",
            )


def truncated(topic: str, partition: int) -> LogChanged:
    """The error for a log that lost its end, or may be another one."""
    return LogChanged(
        f"partition {partition} of {topic} was truncated, or its leader changed, while it was read",
        hint="run again: the exported records are then compared with the present log",
        data={"topic": topic, "partition": partition},
    )


def start_without(topic: StateTopic, partition: int, offset: int, event: FetchEvent) -> int:
    """Where a log starts that does not have `offset` any more. Raises LogChanged: it lost its end."""
    log = topic.log_offsets([partition])[partition]
    if event is FetchEvent.TRUNCATED or offset > (log.high_watermark or 0):
        raise truncated(topic.name, partition)
    return log.log_start_offset or 0


def records_at(topic: StateTopic, offsets: Mapping[int, int]) -> dict[int, RawRecord | None]:
    """The record at one offset of each partition; None: there is no record at that offset. Raises as `LogReader`."""
    reader = LogReader(topic, most_bytes=_FEW_BYTES)
    found = reader.records({number: (offset, offset + 1) for number, offset in offsets.items()})
    return {**dict.fromkeys(offsets), **{raw.state_partition: raw for raw in found}}


class StateTopic:
    """``__share_group_state`` of one cluster (or the topic `name`), as the incarnation that was there when this object
    was made. Raises NotAuthorized when READ on the topic is missing, Unreachable when no broker answered."""

    def __init__(self, admin: ShareGroupAdmin, name: str = STATE_TOPIC) -> None:
        self._admin = admin
        self.name: Final = name
        self.cluster_id: Final = admin.cluster_id
        self._described = self._describe()

    @property
    def client(self) -> BrokerClient:
        """The connection that reads the topic."""
        return client_of(self._admin)

    @property
    def is_present(self) -> bool:
        """Kafka creates the topic when the first share consumer comes."""
        return self._described is not None

    @property
    def topic_id(self) -> str:
        """The id of this incarnation."""
        return self._present().topic_id or ""

    @property
    def partition_count(self) -> int:
        return self._present().partition_count

    def check_incarnation(self) -> None:
        """Raises ForeignCluster when the topic was deleted or recreated."""
        now = self._describe()
        if now is None or now.topic_id != self.topic_id:
            raise ForeignCluster(
                f"{self.name} was deleted or recreated during the read",
                hint="export the new topic to tables of its own",
                data={"topic_id": self.topic_id, "topic_id_now": now.topic_id if now else None},
            )

    def log_offsets(self, partitions: Collection[int] | None = None) -> dict[int, LogOffsets]:
        """Where the logs begin and end, by partition; None: all of them."""
        chosen = range(self.partition_count) if partitions is None else sorted(partitions)
        wanted = [TopicPartition(topic=self.name, partition=index) for index in chosen]
        rows = self._admin.list_offsets(wanted)
        for row in rows:
            if row.error_code != NONE:
                raise error_for(row.error_code, None, operation="READ", kind="topic", name=self.name)
        return {row.partition: row for row in rows}

    def _describe(self) -> TopicDescription | None:
        (topic,) = self._admin.topics([self.name])
        if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            return None
        if topic.error_code != NONE:
            raise error_for(topic.error_code, None, operation="READ", kind="topic", name=self.name)
        return topic

    def _present(self) -> TopicDescription:
        if self._described is None:
            raise RuntimeError(f"there is no {self.name}")
        return self._described
