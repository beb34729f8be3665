"""Sources and sinks in memory, for tests of whatever implements or uses the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.contract import SinkTask, SourceTask, SourceTaskContext
from acktrail.connect.source_batches import Commit, LogSpan, Position, SourceBatch, SourcePartition
from acktrail.errors import ConcurrentCommit
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS

__all__ = ["FakeClock", "MemoryLog", "MemorySink", "MemoryTables", "MemoryTask"]


@dataclass(slots=True, kw_only=True)
class FakeClock:
    """Seconds that pass only when told to, or by `step` with every look at them."""

    now: float = 0.0
    step: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass(slots=True, kw_only=True)
class MemoryLog:
    """A state partition: the record at offset o is ``pairs[o % len(pairs)]``. Change the bounds to write or prune.

    `times`: when a record was appended, by offset, in ms; others were a ms after the one before.
    """

    pairs: Sequence[tuple[bytes | None, bytes | None]]
    partition: int = 0
    topic_id: str = "AAAAAAAAAAAAAAAAAAAAAQ"
    start_offset: int = 0
    end_offset: int = 0
    times: Mapping[int, int] = field(default_factory=dict)

    def raw(self, first: int, end: int) -> pa.Table:
        """The records at offsets `first` to before `end`, as ``RAW_RECORDS``."""
        offsets = np.arange(first, end)
        rows = pa.array(offsets % max(1, len(self.pairs)))
        keys = pa.array([key for key, _ in self.pairs], pa.binary())
        values = pa.array([value for _, value in self.pairs], pa.binary())
        columns = [
            pa.array(np.full(len(offsets), self.partition, np.int32)),
            pa.array(offsets),
            pa.array(self._times(offsets)),
            keys.take(rows),
            values.take(rows),
        ]
        return pa.Table.from_arrays(columns, schema=RAW_RECORDS)

    def _times(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        plain = 1_700_000_000_000 + offsets
        own = [n for n, offset in enumerate(offsets.tolist()) if offset in self.times] if self.times else []
        plain[own] = [self.times[int(offsets[n])] for n in own]
        return plain


class _LogReading:
    """Reads a `MemoryLog` in batches of `batch_rows`; bounded by the end it sees at start unless `is_continuous`."""

    def __init__(self, cluster_id: str, log: MemoryLog, *, batch_rows: int, is_continuous: bool) -> None:
        self._log = log
        self.source_partition = SourcePartition(f"{cluster_id}/{log.topic_id}/{log.partition}")
        self._batch_rows = batch_rows
        self._is_continuous = is_continuous
        self._next: int | None = None
        self._end = 0

    def start(self, position: Position | None) -> None:
        assert position is None or isinstance(position, int)
        self._next = self._log.start_offset if position is None else position
        self._end = self._log.end_offset

    def read(self) -> SourceBatch | None:
        first = self._position()
        start = max(first, self._log.start_offset)
        end = min(start + self._batch_rows, self._limit())
        if end <= first:
            return None
        self._next = max(end, start)
        return self._batch(first, start, self._next)

    @property
    def is_finished(self) -> bool:
        return not self._is_continuous and self._position() >= self._limit()

    def _position(self) -> int:
        if self._next is None:
            raise RuntimeError("a task is polled only after its start")
        return self._next

    def _limit(self) -> int:
        return self._log.end_offset if self._is_continuous else self._end

    def _batch(self, first: int, start: int, end: int) -> SourceBatch:
        rows = decode_records(self._log.raw(start, end))
        span = LogSpan(
            topic_id=self._log.topic_id,
            partition=self._log.partition,
            first_offset=start if end > start else None,
            last_offset=end - 1 if end > start else None,
            records=rows.num_rows,
            quarantined=pc.sum(pc.not_equal(rows["decode_status"], "decoded")).as_py() or 0,
            log_start_offset=self._log.start_offset,
            log_end_offset=self._log.end_offset,
            gap_first=first if start > first else None,
            gap_last=start - 1 if start > first else None,
        )
        return SourceBatch(
            source_partition=self.source_partition, rows={"state_records": rows}, position=end, span=span
        )


class MemoryTask(SourceTask):
    """One source partition for each log; a poll gives a batch of the next one that has any."""

    def __init__(
        self,
        logs: Sequence[MemoryLog],
        *,
        cluster_id: str = "memory",
        batch_rows: int = 10_000,
        is_continuous: bool = False,
    ) -> None:
        self._logs = [_LogReading(cluster_id, log, batch_rows=batch_rows, is_continuous=is_continuous) for log in logs]
        self._first = self._logs[0]
        self.is_stopped = False
        self.committed: dict[SourcePartition, Position] = {}

    @property
    def source_partition(self) -> SourcePartition:
        """The first log's."""
        return self._first.source_partition

    def start(self, context: SourceTaskContext) -> None:
        for log in self._logs:
            log.start(context.position(log.source_partition))

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        for log in self._logs:
            batch = log.read()
            if batch is not None:
                self._logs.remove(log)
                self._logs.append(log)
                return [batch]
        return ()

    def commit(self, positions: Mapping[SourcePartition, Position]) -> None:
        self.committed |= positions

    def stop(self) -> None:
        self.is_stopped = True

    @property
    def is_finished(self) -> bool:
        return all(log.is_finished for log in self._logs)

    @property
    def partitions(self) -> tuple[int, int]:
        return sum(log.is_finished for log in self._logs), len(self._logs)


@dataclass(slots=True, kw_only=True)
class MemoryTables:
    """What was committed: shared by the sinks of a test as real sinks share a storage."""

    rows: dict[str, list[pa.Table]] = field(default_factory=dict)
    positions: dict[SourcePartition, Position] = field(default_factory=dict)
    commits: int = 0


class MemorySink(SinkTask):
    """Keeps batches in `tables`."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self._pending: list[SourceBatch] = []
        self._committed: dict[SourcePartition, Position | None] = {}

    def position(self, source_partition: SourcePartition) -> Position | None:
        return self._committed.setdefault(source_partition, self._tables.positions.get(source_partition))

    def put(self, batch: SourceBatch) -> None:
        if self.pending_rows_of(batch) or batch.position != self._reached(batch.source_partition):
            self._pending.append(batch)

    @staticmethod
    def pending_rows_of(batch: SourceBatch) -> int:
        return sum(rows.num_rows for rows in batch.rows.values())

    @property
    def pending_rows(self) -> int:
        return sum(map(self.pending_rows_of, self._pending))

    def flush(self) -> Commit:
        pending, self._pending = self._pending, []
        positions = {batch.source_partition: batch.position for batch in pending if batch.position is not None}
        if any(self._tables.positions.get(each) != self._committed.get(each) for each in positions):
            self._committed.clear()
            raise ConcurrentCommit("another writer moved a position first")
        rows: dict[str, int] = {}
        for batch in pending:
            for name, table in batch.rows.items():
                self._tables.rows.setdefault(name, []).append(table)
                rows[name] = rows.get(name, 0) + table.num_rows
        self._tables.positions |= positions
        self._committed |= positions
        self._tables.commits += bool(pending)
        return Commit(rows=rows, positions=positions)

    def _reached(self, source_partition: SourcePartition) -> Position | None:
        own = (batch.position for batch in reversed(self._pending) if batch.source_partition == source_partition)
        return next(own, self.position(source_partition))
