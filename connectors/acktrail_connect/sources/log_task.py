"""One topic as a source task: all partitions of it, or some, record by record.

Offsets between two records are no gap: a compacted topic, and a transaction's end, have some without a record.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, Full, Queue, SimpleQueue
from threading import Event, Thread
from typing import Any, ClassVar, Final

import pyarrow as pa

from acktrail.config import KafkaConfig
from acktrail.errors import ForeignCluster, LogChanged, RetryableError
from acktrail.format.columns.decoding.batch_columns import BatchColumns, batch_columns, between, partition_runs
from acktrail.format.wire.record_batch import DataBatch
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.broker_client import BrokerClient
from acktrail.kafka.descriptions import LogOffsets
from acktrail.kafka.log_fetcher import Fetched, LogFetcher
from acktrail.kafka.log_reader import StateTopic, start_without, truncated
from acktrail.model.log_positions import SourcePartition, log_partition
from acktrail.model.share_partition import STATE_TOPIC
from acktrail_connect.contract import SourceTask, SourceTaskContext
from acktrail_connect.source_batches import SourceBatch

_LOOK_AGAIN_S: Final = 2.0
_SILENCE_S: Final = 5.0
_STALL_S: Final = 90.0
_AHEAD: Final = 1
_LOOK_UP_S: Final = 0.1
_PATIENCE_S: Final = 2.0
_SHORTEST_WAIT_S: Final = 0.005
"""The least wait of a read, or the caller would spin while the next records are on their way."""


@dataclass(slots=True, kw_only=True)
class LogPlace:
    """Where a partition is read: the next offset, and where a bounded reading ends (exclusive; None: never). The log
    was that of `leader_epoch` when it was opened, and goes from `log_start` to `log_end` as far as is known. All
    offsets are Kafka's; `shift` is added to those that are given."""

    partition: int
    source_partition: SourcePartition
    next_offset: int
    end_offset: int | None
    log_start: int
    log_end: int
    leader_epoch: int | None
    shift: int = 0

    @property
    def is_read(self) -> bool:
        return self.end_offset is not None and self.next_offset >= self.end_offset

    def reach(self, offset: int) -> None:
        """The log was read up to `offset`."""
        self.next_offset = max(self.next_offset, offset)
        self.log_end = max(self.log_end, offset)


class FetchThread:
    """Fetches what is assigned, with `options` of ``LogFetcher``. One `Fetched` waits for ``take``, another for its
    place; its batches are columns by then."""

    def __init__(self, config: KafkaConfig, name: str, topic_id: str, columns: BatchColumns, **options: Any) -> None:
        self._config, self._topic, self._columns, self._options = config, (name, topic_id), columns, options
        self._assigned: SimpleQueue[tuple[int, int, int | None]] = SimpleQueue()
        self._queue: Queue[tuple[Fetched, pa.Table] | Exception] = Queue(_AHEAD)
        self._closed = Event()
        self._thread = Thread(target=self._run, name="acktrail-fetch", daemon=True)
        self._thread.start()

    def assign(self, partition: int, offset: int, end: int | None) -> None:
        """Read `partition` from `offset` on up to before `end` (None: without end), from the next request on."""
        self._assigned.put((partition, offset, end))

    def take(self, timeout_s: float) -> tuple[Fetched, pa.Table] | None:
        """The next events and records; None when none came within `timeout_s`. Raises any error of the reading."""
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
                    while not self._assigned.empty():
                        fetcher.assign(*self._assigned.get())
                    fetched = fetcher.fetch()
                    if not fetched.is_empty:
                        records, fetched.batches = self._columns(fetched.batches), []
                        self._put((fetched, records))
        except Exception as error:  # noqa: BLE001  # raised again by ``take``
            self._put(error)

    def _put(self, found: tuple[Fetched, pa.Table] | Exception) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put(found, timeout=_LOOK_UP_S)
            except Full:
                continue
            return


class LogTask(SourceTask):
    """Reads the topic `name`, each batch has consecutive records of one partition. `bounded`: it ends where the logs
    ended when it was started, or at the offsets `ends` by partition; else it also waits for a topic that is not there
    yet. `partitions` None: all of them. `linger_s` as of ``LogFetcher``.

    Records of open transactions, and those behind them, come when the transaction ends. Memory: two `Fetched` of the
    thread, of some 4 MB a broker.

    Raises NotAuthorized (READ on the topic is missing), ForeignCluster (a log ends before its position), LogChanged
    (the log was truncated or the topic recreated: start again), Unreachable, RetryableError, ConfigurationError.
    """

    kind: ClassVar[str]
    """How the names of its source partitions begin."""
    is_compared: ClassVar[bool] = False
    """As of ``LogFetcher``."""

    def __init__(
        self,
        config: KafkaConfig,
        name: str = STATE_TOPIC,
        *,
        bounded: bool = True,
        partitions: Collection[int] | None = None,
        ends: Mapping[int, int] | None = None,
        linger_s: float = 0.0,
    ) -> None:
        self._config, self._name, self._bounded = config, name, bounded
        self._chosen, self._linger_s, self._ends = partitions, linger_s, ends or {}
        self._context = SourceTaskContext()
        self._admin: ShareGroupAdmin | None = None
        self._topic: StateTopic | None = None
        self._thread: FetchThread | None = None
        self._places: dict[int, LogPlace] = {}
        self._ready: list[SourceBatch] = []
        self._looked_at = self._received_at = self._moved_at = 0.0

    def start(self, context: SourceTaskContext) -> None:
        """Begin at the positions of `context`, else where the logs start."""
        self._context = context
        self._admin = ShareGroupAdmin(self._config)
        self._look(self._admin)

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        """The next batches of all partitions; none when nothing came within `timeout_s`."""
        if self._topic is not None:
            if not self._ready and not self.is_finished:
                self._read(self._topic, max(timeout_s, _SHORTEST_WAIT_S))
            ready, self._ready = self._ready, []
            return ready
        self._context.stop.wait(timeout_s)
        if self._admin is not None and time.monotonic() - self._looked_at >= _LOOK_AGAIN_S:
            self._look(self._admin)
        return ()

    def stop(self) -> None:
        """Close connections. May be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
        if self._admin is not None:
            self._admin.close()

    @property
    def is_present(self) -> bool:
        """Whether the topic was found."""
        return self._topic is not None

    @property
    def is_finished(self) -> bool:
        if self._topic is None:
            return self._admin is not None and self._bounded
        return not self._ready and all(place.is_read for place in self._places.values())

    @property
    def partitions(self) -> tuple[int, int]:
        waiting = {batch.source_partition for batch in self._ready}
        read = sum(place.is_read and place.source_partition not in waiting for place in self._places.values())
        return read, len(self._places)

    @staticmethod
    def columns(batches: Sequence[DataBatch]) -> pa.Table:
        """What is read of the records (``BatchColumns``)."""
        return batch_columns(batches)

    def source_partition(self, topic: StateTopic, partition: int) -> SourcePartition:
        """The permanent name of a partition's reading."""
        return log_partition(self.kind, topic.cluster_id, topic.topic_id, partition)

    def check_topic(self, topic_id: str | None) -> None:
        """Whether what is stored can be continued from this incarnation; None: there is no such topic."""

    @abstractmethod
    def open(self, topic: StateTopic, logs: Mapping[int, LogOffsets]) -> None:
        """`begin` each partition of `logs`."""

    @abstractmethod
    def deliver(self, topic: StateTopic, records: pa.Table, reached: Mapping[int, int]) -> None:
        """`give` what was read: the wanted records of all partitions, and the new offset of each of them."""

    @abstractmethod
    def pass_to(self, place: LogPlace, log_start: int) -> None:
        """The log starts at `log_start` now, behind the next offset: note what cannot be read."""

    def begin(self, topic: StateTopic, log: LogOffsets, position: int | None) -> LogPlace:
        """Where a partition is read from `position` on (None: from its start). Raises ForeignCluster for a log that
        ends before."""
        log_end, stable = log.high_watermark or 0, log.last_stable_offset or 0
        if position is not None and position > log_end:
            raise ForeignCluster(
                f"partition {log.partition} of {self._name} ends at {log_end}, before the position {position}",
                hint="the topic was recreated or its log truncated: use other tables for it, or set the position",
                data={"partition": log.partition, "position": position, "log_end_offset": log_end},
            )
        start = log.log_start_offset or 0
        place = self._places[log.partition] = LogPlace(
            partition=log.partition,
            source_partition=self.source_partition(topic, log.partition),
            next_offset=start if position is None else position,
            end_offset=min(stable, self._ends.get(log.partition, stable)) if self._bounded else None,
            log_start=start,
            log_end=log_end,
            leader_epoch=log.leader_epoch,
        )
        return place

    def give(self, batch: SourceBatch) -> None:
        """Hand out `batch` at this or the next poll."""
        self._ready.append(batch)

    def position(self, source_partition: SourcePartition) -> int | None:
        """The offset that was committed."""
        found = self._context.position(source_partition)
        assert found is None or isinstance(found, int)
        return found

    def _look(self, admin: ShareGroupAdmin) -> None:
        """Find the topic, and begin to read its partitions if it is there."""
        self._looked_at = self._received_at = self._moved_at = time.monotonic()
        topic = StateTopic(admin, self._name)
        self.check_topic(topic.topic_id if topic.is_present else None)
        if not topic.is_present:
            return
        chosen = range(topic.partition_count) if self._chosen is None else self._chosen
        self.open(topic, dict(sorted(topic.log_offsets(chosen).items())))
        self._topic = topic
        for place in self._places.values():
            self._go_on(topic, place, place.log_start)

    def _go_on(self, topic: StateTopic, place: LogPlace, log_start: int) -> None:
        """Read from the next offset on, or from where the log starts behind it."""
        place.log_start = log_start
        if log_start > place.next_offset:
            self.pass_to(place, log_start)
            place.reach(log_start)
        if place.is_read:
            return
        if self._thread is None:
            options = {"linger_s": self._linger_s, "is_compared": self.is_compared}
            self._thread = FetchThread(self._config, self._name, topic.topic_id, self.columns, **options)
        self._thread.assign(place.partition, place.next_offset, place.end_offset)

    def _read(self, topic: StateTopic, timeout_s: float) -> None:
        assert self._thread is not None
        taken = self._thread.take(timeout_s)
        if taken is None:
            self._check_silence(topic)
            return
        fetched, records = taken
        self._received_at = time.monotonic()
        self._check_leaders(fetched.epochs)
        if fetched.reached:
            self._moved_at = self._received_at
            self.deliver(topic, self._wanted(records), fetched.reached)
        for number, offset in fetched.reached.items():
            self._places[number].reach(offset)
        for number, event in fetched.events.items():
            self.check_incarnation(topic)
            place = self._places[number]
            self._go_on(topic, place, start_without(topic, number, place.next_offset, event))

    def _wanted(self, records: pa.Table) -> pa.Table:
        """The records from the next offset up to the end: the first and the last batch may have others."""
        found = [
            (part, between(part, self._places[number].next_offset, self._places[number].end_offset))
            for number, part in partition_runs(records, "partition")
        ]
        # What is decoded together costs as much for two rows as for thousands: a delivery stays one chunk.
        return records if all(part is own for part, own in found) else pa.concat_tables(own for _, own in found)

    def _check_leaders(self, epochs: Mapping[int, int]) -> None:
        """A record with a newer leader epoch than the log had when it was opened may be one of another log."""
        for number, epoch in epochs.items():
            opened = self._places[number].leader_epoch
            if opened is not None and epoch > opened:
                raise truncated(self._name, number)

    def check_incarnation(self, topic: StateTopic) -> None:
        """Raises LogChanged when the topic was deleted or recreated."""
        try:
            topic.check_incarnation()
        except ForeignCluster as error:
            raise LogChanged(error.message, hint="the new topic is read from its start") from error

    def _check_silence(self, topic: StateTopic) -> None:
        """A quiet topic and a lost cluster look the same: ask, from time to time."""
        now = time.monotonic()
        if now - self._received_at < _SILENCE_S:
            return
        self._received_at = now
        self.check_incarnation(topic)
        if self._bounded and now - self._moved_at > _STALL_S:
            stuck = sorted(number for number, place in self._places.items() if not place.is_read)
            raise RetryableError(
                f"no record arrived from partitions {stuck} of {self._name} for {_STALL_S:g} s",
                hint="check that these partitions have a leader",
            )
