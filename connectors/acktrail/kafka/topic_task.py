"""One topic as a source task: all partitions of it, or some, record by record.

A log that starts behind the position is read from its start; the offsets between are counted, and are a line in the
log. Offsets between two records are no gap: a compacted topic, and a transaction's end, have some without a record.
"""

from __future__ import annotations

import logging
import time
from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import pyarrow as pa

from acktrail.config import KafkaConfig
from acktrail.connect.contract import SourceTask, SourceTaskContext
from acktrail.connect.source_batches import RowCounts, SourceBatch, SourcePartition
from acktrail.errors import ForeignCluster, LogChanged
from acktrail.format.columns.decoding.batch_columns import DataBatch, batch_columns
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.descriptions import LogOffsets
from acktrail.kafka.state.fetch_thread import FetchThread
from acktrail.kafka.state.log_fetcher import FetchEvent
from acktrail.kafka.state.state_consumer import partition_runs
from acktrail.kafka.state.state_topic import StateTopic

_LOG: Final = logging.getLogger(__name__)
_LOOK_AGAIN_S: Final = 2.0
_SILENCE_S: Final = 5.0
_SHORTEST_WAIT_S: Final = 0.005


class TopicRows(NamedTuple):
    """Rows of one table, and how many records are in none of them."""

    rows: pa.Table
    left_out: int = 0


@dataclass(slots=True, kw_only=True)
class _Place:
    """Where a partition is read: the next offset, and where a bounded reading ends (exclusive; None: never)."""

    source_partition: SourcePartition
    next_offset: int
    end_offset: int | None

    @property
    def is_read(self) -> bool:
        return self.end_offset is not None and self.next_offset >= self.end_offset


class TopicTask(SourceTask):
    """Reads the `topic` record by record. A batch has the rows of `table` for consecutive records of one partition;
    those that are left out are counted as filtered. `bounded`: it ends where the logs ended when it was started; else
    it also waits for a topic that is not there yet. `partitions` None: all of them. `linger_s` as of ``LogFetcher``.

    Records of open transactions, and those behind them, come when the transaction ends. What an unclean election took
    back stays in the tables.

    Raises NotAuthorized (READ on the topic is missing), ForeignCluster (a log ends before its position), LogChanged
    (the log was truncated or the topic recreated: start again), Unreachable, RetryableError, ConfigurationError.
    """

    table: ClassVar[str]

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        *,
        bounded: bool = True,
        partitions: Collection[int] | None = None,
        linger_s: float = 0.0,
    ) -> None:
        self._config, self._name, self._bounded = config, topic, bounded
        self._chosen, self._linger_s = partitions, linger_s
        self._context = SourceTaskContext()
        self._admin: ShareGroupAdmin | None = None
        self._topic: StateTopic | None = None
        self._thread: FetchThread | None = None
        self._places: dict[int, _Place] = {}
        self.passed_offsets = 0
        """Offsets between a position and the start of its log."""
        self._looked_at = self._received_at = 0.0

    def start(self, context: SourceTaskContext) -> None:
        """Begin at the positions of `context`, else where the logs start."""
        self._context = context
        self._admin = ShareGroupAdmin(self._config)
        self._look(self._admin)

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        """The next batches of all partitions; none when nothing came within `timeout_s`."""
        if self._topic is not None:
            return () if self.is_finished else self._read(self._topic, max(timeout_s, _SHORTEST_WAIT_S))
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

    @staticmethod
    def columns(batches: Sequence[DataBatch]) -> pa.Table:
        """What is read of the records (``BatchColumns``)."""
        return batch_columns(batches)

    @abstractmethod
    def source_partition(self, topic: StateTopic, partition: int) -> SourcePartition:
        """The permanent name of a partition's reading."""

    @abstractmethod
    def rows(self, topic: StateTopic, records: pa.Table, run_id: str) -> TopicRows:
        """The rows of at least one of `records`, which have the columns that `columns` gives."""

    @property
    def is_present(self) -> bool:
        """Whether the topic was found."""
        return self._topic is not None

    @property
    def is_finished(self) -> bool:
        if self._topic is None:
            return self._bounded and self._admin is not None
        return all(place.is_read for place in self._places.values())

    @property
    def partitions(self) -> tuple[int, int]:
        return sum(place.is_read for place in self._places.values()), len(self._places)

    def _look(self, admin: ShareGroupAdmin) -> None:
        """Find the topic, and begin to read its partitions if it is there."""
        self._looked_at = time.monotonic()
        topic = StateTopic(admin, self._name)
        if not topic.is_present:
            return
        chosen = range(topic.partition_count) if self._chosen is None else self._chosen
        logs = topic.log_offsets(chosen)
        for number, log in sorted(logs.items()):
            self._places[number] = self._opened(topic, log)
        self._topic, self._received_at = topic, time.monotonic()
        self._thread = FetchThread(
            self._config, self._name, topic.topic_id, linger_s=self._linger_s, columns=self.columns
        )
        for number, place in self._places.items():
            if not place.is_read:
                self._thread.assign(number, place.next_offset)

    def _opened(self, topic: StateTopic, log: LogOffsets) -> _Place:
        source_partition = self.source_partition(topic, log.partition)
        position, start = self._context.position(source_partition), log.log_start_offset or 0
        assert position is None or isinstance(position, int)
        end = log.high_watermark or 0
        if position is not None and position > end:
            raise ForeignCluster(
                f"partition {log.partition} of {self._name} ends at {end}, before the position {position}",
                hint="its log was truncated: set the position to where reading shall continue",
                data={"partition": log.partition, "position": position, "log_end_offset": end},
            )
        place = _Place(
            source_partition=source_partition,
            next_offset=start if position is None else position,
            end_offset=(log.last_stable_offset or 0) if self._bounded else None,
        )
        self._pass_to(log.partition, place, start)
        return place

    def _read(self, topic: StateTopic, timeout_s: float) -> list[SourceBatch]:
        fetched = None if self._thread is None else self._thread.take(timeout_s)
        if fetched is None:
            self._check_silence(topic)
            return []
        self._received_at = time.monotonic()
        records = dict(partition_runs(fetched.records, "partition")) if fetched.records.num_rows else {}
        nothing = fetched.records.slice(0, 0)
        batches = [
            self._batch(topic, self._places[number], records.get(number, nothing), reached)
            for number, reached in fetched.reached.items()
            if reached > self._places[number].next_offset
        ]
        for number in self._places.keys() & fetched.reached.keys():
            if self._places[number].is_read and self._thread is not None:
                self._thread.unassign(number)
        for number, event in fetched.events.items():
            self._find_again(topic, number, event)
        return [batch for batch in batches if batch is not None]

    def _batch(self, topic: StateTopic, place: _Place, records: pa.Table, reached: int) -> SourceBatch | None:
        """The batch up to `reached`, or to the end of a bounded reading."""
        first, end = place.next_offset, reached if place.end_offset is None else min(reached, place.end_offset)
        if end <= first:
            return None
        offsets = records.column("offset").to_numpy()
        wanted = records.filter(pa.array((offsets >= first) & (offsets < end)))
        place.next_offset = end
        found = self.rows(topic, wanted, self._context.run_id) if wanted.num_rows else None
        return SourceBatch(
            source_partition=place.source_partition,
            rows={self.table: found.rows} if found is not None and found.rows.num_rows else {},
            position=end,
            counts=RowCounts(read=wanted.num_rows, filtered=0 if found is None else found.left_out),
        )

    def _find_again(self, topic: StateTopic, number: int, event: FetchEvent) -> None:
        """The log does not have the next offset: its start moved, or it is not the same log any more."""
        place = self._places[number]
        try:
            topic.check_incarnation()
        except ForeignCluster as error:
            raise LogChanged(error.message, hint="the new topic is read from its start") from error
        log = topic.log_offsets([number])[number]
        if event is FetchEvent.TRUNCATED or place.next_offset > (log.high_watermark or 0):
            raise LogChanged(
                f"partition {number} of {self._name} was truncated while it was read",
                hint="it is read again from its position",
                data={"topic": self._name, "partition": number},
            )
        self._pass_to(number, place, log.log_start_offset or 0)
        if self._thread is not None and not place.is_read:
            self._thread.assign(number, place.next_offset)

    def _pass_to(self, number: int, place: _Place, log_start_offset: int) -> None:
        """Continue where the log starts, when that is behind the next offset."""
        passed = log_start_offset - place.next_offset
        if passed <= 0:
            return
        _LOG.info(
            "partition %d of %s starts at %d, %d offsets behind the position %d: reading continues there",
            number,
            self._name,
            log_start_offset,
            passed,
            place.next_offset,
            extra={"event": "log_start_passed"},
        )
        self.passed_offsets += passed
        place.next_offset = log_start_offset

    def _check_silence(self, topic: StateTopic) -> None:
        """A quiet topic and a lost cluster look the same: ask, from time to time."""
        if time.monotonic() - self._received_at < _SILENCE_S:
            return
        self._received_at = time.monotonic()
        try:
            topic.check_incarnation()
        except ForeignCluster as error:
            raise LogChanged(error.message, hint="the new topic is read from its start") from error
