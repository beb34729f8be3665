"""Partitions of the state topic, read together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from acktrail.config import KafkaConfig
from acktrail.connect.source_batches import SourceBatch, StoredLog
from acktrail.errors import ForeignCluster, LogChanged, RetryableError
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.schemas.table_schemas import STATE_RECORDS
from acktrail.kafka.client.librdkafka import RecordReader
from acktrail.kafka.descriptions import LogOffsets
from acktrail.kafka.state.fetch_thread import FetchThread
from acktrail.kafka.state.log_fetcher import FetchEvent
from acktrail.kafka.state.partition_buffer import Opening, PartitionBuffer, Resumption, openings
from acktrail.kafka.state.state_topic import StateTopic

_SHORTEST_WAIT_S: Final = 0.005
"""The least wait of a read, or the caller would spin while the next records are on their way."""
_SILENCE_S: Final = 5.0
_STALL_S: Final = 90.0


class StateTopicConsumer:
    """Reads the state topic into one buffer a partition. `bounded`: up to the ends seen when a partition is opened,
    or the offsets `ends` where they come first.

    Where the leader of a partition is another one than when it was stored, its log is compared with the stored records
    before any batch is given. Every record that is given was read from the topic incarnation of `topic`: it is fetched
    by its id. Memory: two `Fetched` of the thread, of some 4 MB a broker. `linger_s` as of `LogFetcher`.
    """

    def __init__(
        self,
        config: KafkaConfig,
        topic: StateTopic,
        *,
        run_id: str,
        bounded: bool,
        ends: Mapping[int, int] | None = None,
        linger_s: float = 0.0,
    ) -> None:
        self._topic = topic
        self._config = config
        self._run_id = run_id
        self._bounded, self._bounds = bounded, ends or {}
        self._linger_s = linger_s
        self._buffers: dict[int, PartitionBuffer] = {}
        self._uncompared: dict[int, Resumption] = {}
        self._reading: set[int] = set()
        self._thread: FetchThread | None = None
        self._received_at = self._moved_at = time.monotonic()
        self._ends = topic.log_offsets()

    def open(self, partition: int, position: int | None, stored: StoredLog | None = None) -> None:
        """Begin to read `partition` at `position`; None: at the log's start.

        `stored` is what the tables have of the log: where Kafka has another one now, the reading begins at the first
        difference, with a break before it. Without it, a log that ends before `position` raises ForeignCluster.
        """
        now = self._ends.pop(partition, None) or self._topic.log_offsets()[partition]
        if position is None or stored is None:
            end = now.high_watermark or 0
            if position is not None and position > end:
                where = f"partition {partition} of {self._topic.name}"
                raise ForeignCluster(
                    f"{where} ends at {end}, before the position {position} that the tables have",
                    hint="the topic was recreated or its log was truncated: export it to tables of its own",
                    data={"partition": partition, "position": position, "log_end_offset": end},
                )
            self._begin(now, Opening(position, leader_epoch=now.leader_epoch))
            return
        resumed = Resumption(partition=partition, position=position, stored=stored, now=now)
        if resumed.needs_comparison:
            self._uncompared[partition] = resumed
        else:
            self._begin(now, resumed.in_same_log())

    def _begin(self, now: LogOffsets, opening: Opening) -> None:
        seen, bound = now.last_stable_offset or 0, self._bounds.get(now.partition)
        end = None if not self._bounded else seen if bound is None else min(seen, bound)
        buffer = self._buffers[now.partition] = PartitionBuffer(self._topic, now, opening, end)
        self._assign(buffer)

    def read(self, timeout_s: float) -> list[SourceBatch]:
        """The next batches of all partitions; none when nothing came within `timeout_s`.

        Raises NotAuthorized, ConfigurationError, Unreachable or RetryableError when the topic cannot be read,
        ForeignCluster when it was deleted or recreated, LogChanged when the leader of a partition changed: start again.
        """
        if self._uncompared:
            uncompared, self._uncompared = self._uncompared, {}
            with RecordReader(self._config, self._topic.name) as records:
                found = openings(uncompared, records.records_at)
            for number, opening in found.items():
                self._begin(uncompared[number].now, opening)
        if not (self.is_finished or any(buffer.is_ready for buffer in self._buffers.values())):
            self._poll_once(max(timeout_s, _SHORTEST_WAIT_S))
        batches: list[SourceBatch] = []
        for buffer in self._buffers.values():
            while (batch := buffer.pop()) is not None:
                batches.append(batch)
        return batches

    @property
    def is_finished(self) -> bool:
        """Everything of a bounded reading has been given."""
        ended, count = self.partitions
        return ended == count

    @property
    def partitions(self) -> tuple[int, int]:
        """How many partitions of a bounded reading are at their end, with everything given, and how many there are."""
        ended = sum(buffer.is_read and not buffer.is_ready for buffer in self._buffers.values())
        return ended, len(self._buffers) + len(self._uncompared)

    def close(self) -> None:
        """End the fetching. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    def _poll_once(self, timeout_s: float) -> None:
        """Read once, for all partitions."""
        fetched = self._source().take(timeout_s)
        if fetched is None:
            self._check_stalled()
            return
        self._received_at = time.monotonic()
        self._check_leaders(fetched.epochs)
        self._take(fetched.records)
        for partition, offset in fetched.reached.items():
            if partition in self._buffers:
                self._buffers[partition].reach(offset)
        for partition, event in fetched.events.items():
            self._handle(partition, event)
        for buffer in self._buffers.values():
            if buffer.is_read:
                self._unassign(buffer.partition)

    def _check_leaders(self, epochs: Mapping[int, int]) -> None:
        """A record with a newer leader epoch than the log had when it was opened may be one of another log."""
        for partition, epoch in epochs.items():
            buffer = self._buffers.get(partition)
            if buffer is not None and buffer.leader_epoch is not None and epoch > buffer.leader_epoch:
                raise _changed(self._topic.name, partition)

    def _take(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        parts = list(partition_runs(rows, "partition"))
        wanted = [self._wanted(number, part) for number, part in parts]
        # Decoding costs as much for a chunk of two rows as for one of thousands: a delivery is one chunk.
        if any(left is not part for left, (_, part) in zip(wanted, parts, strict=True)):
            rows = pa.concat_tables(wanted)
        if not rows.num_rows:
            return
        self._moved_at = time.monotonic()
        records = state_rows(rows, self._topic.cluster_id, self._run_id)
        for partition, part in partition_runs(records, "state_partition"):
            self._buffers[partition].put(part)

    def _wanted(self, partition: int, rows: pa.Table) -> pa.Table:
        """The rows that the partition's buffer still waits for."""
        buffer = self._buffers.get(partition)
        if buffer is None:
            return rows.slice(0, 0)
        offsets = rows.column("offset").to_numpy()
        first, end = buffer.next_offset, buffer.end_offset
        expected = (offsets >= first) & (True if end is None else offsets < end)
        return rows if expected.all() else rows.filter(pa.array(expected))

    def _handle(self, partition: int, event: FetchEvent) -> None:
        buffer = self._buffers.get(partition)
        if buffer is None:
            return
        if event is FetchEvent.TRUNCATED:
            raise _changed(self._topic.name, partition)
        self._find_again(buffer)

    def _find_again(self, buffer: PartitionBuffer) -> None:
        """The log does not have the next offset: it was pruned since, or this is not the same log any more."""
        self._topic.check_incarnation()
        seen = self._topic.log_offsets()[buffer.partition]
        if buffer.next_offset > (seen.high_watermark or 0):
            raise _changed(self._topic.name, buffer.partition)
        self._unassign(buffer.partition)
        buffer.skip_to(seen.log_start_offset or 0)
        self._assign(buffer)

    def _check_stalled(self) -> None:
        """A quiet log and a lost cluster look the same: ask, from time to time."""
        now = time.monotonic()
        if now - self._received_at < _SILENCE_S:
            return
        self._received_at = now
        self._topic.check_incarnation()
        if self._bounded and now - self._moved_at > _STALL_S:
            stuck = sorted(p for p, buffer in self._buffers.items() if not buffer.is_read)
            raise RetryableError(
                f"no record came from partitions {stuck} of {self._topic.name} for {_STALL_S:g} s",
                hint="do these partitions have a leader?",
            )

    def _source(self) -> FetchThread:
        if self._thread is None:
            self._thread = FetchThread(self._config, self._topic.name, self._topic.topic_id, linger_s=self._linger_s)
        return self._thread

    def _assign(self, buffer: PartitionBuffer) -> None:
        if not buffer.is_read:
            self._source().assign(buffer.partition, buffer.next_offset)
            self._reading.add(buffer.partition)
            self._received_at = self._moved_at = time.monotonic()

    def _unassign(self, partition: int) -> None:
        if partition in self._reading:
            self._source().unassign(partition)
            self._reading.discard(partition)


def state_rows(raw: pa.Table, cluster_id: str, run_id: str) -> pa.Table:
    """Raw records (``RAW_RECORDS``) as rows of ``STATE_RECORDS``."""
    decoded = decode_records(raw.combine_chunks())
    origin = [pa.repeat(pa.scalar(text, pa.string()), decoded.num_rows) for text in (cluster_id, run_id)]
    return pa.Table.from_arrays([*origin, *decoded.columns], schema=STATE_RECORDS)


def partition_runs(rows: pa.Table, column: str) -> Iterator[tuple[int, pa.Table]]:
    """Each run of rows with the same partition in `column`, in their order."""
    partitions = rows.column(column).to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    for start, end in pairwise(bounds):
        if end > start:
            yield int(partitions[start]), rows.slice(start, end - start)


def _changed(topic: str, partition: int) -> LogChanged:
    return LogChanged(
        f"the leader of partition {partition} of {topic} changed while it was read",
        hint="run again: the log is then compared with the stored records",
        data={"topic": topic, "partition": partition},
    )
