"""Sources and sinks in memory, for tests of whatever implements or uses the contract."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConcurrentCommit
from acktrail.format.columns.decoding.decode_records import decode_records
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.model.log_positions import LogSpan, Position, SourcePartition
from acktrail_connect.contract import SinkTask, SourceTask, SourceTaskContext
from acktrail_connect.source_batches import Commit, SourceBatch

__all__ = ["PAIRS", "FakeClock", "MemoryLog", "MemorySink", "MemoryTables", "MemoryTask"]


Pair = tuple[bytes | None, bytes | None]
PAIRS: tuple[Pair, ...] = (*((b"\x00\x00\x00\x01g" + bytes(20), None),) * 6, (b"\x00\x09", b""))
"""Six tombstones, and a record that cannot be read."""


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

    pairs: Sequence[Pair] = PAIRS
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

    def batch(
        self, source_partition: SourcePartition, first: int, end: int, gap_first: int | None = None
    ) -> SourceBatch:
        """The records at offsets `first` to before `end`, decoded; those from `gap_first` on were pruned before."""
        rows = decode_records(self.raw(first, end))
        has_gap = gap_first is not None and gap_first < first
        span = LogSpan(
            topic_id=self.topic_id,
            partition=self.partition,
            first_offset=first if end > first else None,
            last_offset=end - 1 if end > first else None,
            records=rows.num_rows,
            quarantined=pc.sum(pc.not_equal(rows["decode_status"], "decoded")).as_py() or 0,
            log_start_offset=self.start_offset,
            log_end_offset=self.end_offset,
            gap_first=gap_first if has_gap else None,
            gap_last=first - 1 if has_gap else None,
        )
        return SourceBatch(source_partition=source_partition, rows={"state_records": rows}, position=end, span=span)

    def _times(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        plain = 1_700_000_000_000 + offsets
        own = [n for n, offset in enumerate(offsets.tolist()) if offset in self.times] if self.times else []
        plain[own] = [self.times[int(offsets[n])] for n in own]
        return plain


class MemoryTask(SourceTask):
    """One source partition for each log, read in batches of `batch_rows`; a poll gives one of the next log that has
    any. Bounded by the ends that it sees at start unless `is_continuous`. `watch` gets how long each poll may take."""

    def __init__(
        self,
        logs: Sequence[MemoryLog],
        *,
        cluster_id: str = "memory",
        batch_rows: int = 10_000,
        is_continuous: bool = False,
        watch: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._logs = {SourcePartition(f"{cluster_id}/{log.topic_id}/{log.partition}"): log for log in logs}
        self.source_partition = next(iter(self._logs))
        self._batch_rows, self._is_continuous, self._watch = batch_rows, is_continuous, watch
        self._next: dict[SourcePartition, int] = {}
        self._ends: dict[SourcePartition, int] = {}
        self.is_stopped = False
        self.committed: dict[SourcePartition, Position] = {}

    def start(self, context: SourceTaskContext) -> None:
        for name, log in self._logs.items():
            position = context.position(name)
            assert position is None or isinstance(position, int)
            self._next[name] = log.start_offset if position is None else position
            self._ends[name] = log.end_offset

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        self._watch(timeout_s)
        for name, log in self._logs.items():
            first = self._next[name]
            start = max(first, log.start_offset)
            end = min(start + self._batch_rows, self._limit(name))
            if end > first:
                self._next[name] = max(end, start)
                self._logs[name] = self._logs.pop(name)  # the others come first
                return [log.batch(name, start, self._next[name], gap_first=first)]
        return ()

    def commit(self, positions: Mapping[SourcePartition, Position]) -> None:
        self.committed |= positions

    def stop(self) -> None:
        self.is_stopped = True

    def _limit(self, name: SourcePartition) -> int:
        return self._logs[name].end_offset if self._is_continuous else self._ends[name]

    @property
    def is_finished(self) -> bool:
        ended, count = self.partitions
        return not self._is_continuous and ended == count

    @property
    def partitions(self) -> tuple[int, int]:
        ended = 0 if self._is_continuous else sum(self._next[name] >= self._ends[name] for name in self._logs)
        return ended, len(self._logs)


@dataclass(slots=True, kw_only=True)
class MemoryTables:
    """What was committed: shared by the sinks of a test as real sinks share a storage."""

    rows: dict[str, list[pa.Table]] = field(default_factory=dict)
    positions: dict[SourcePartition, Position] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    """Those that wrote something."""


class MemorySink(SinkTask):
    """Keeps batches in `tables`. What `refuses` and `fails` give is raised by the next put, and by the next flush that
    has rows; None: nothing is."""

    def __init__(
        self,
        tables: MemoryTables,
        *,
        refuses: Iterable[Exception | None] = (),
        fails: Iterable[Exception | None] = (),
    ) -> None:
        self._tables, self._refuses, self._fails = tables, iter(refuses), iter(fails)
        self._pending: list[SourceBatch] = []
        self._committed: dict[SourcePartition, Position | None] = {}

    def position(self, source_partition: SourcePartition) -> Position | None:
        return self._committed.setdefault(source_partition, self._tables.positions.get(source_partition))

    def put(self, batch: SourceBatch) -> None:
        _raise_next(self._refuses)
        if _rows_of([batch]) or batch.position != self._reached(batch.source_partition):
            self._pending.append(batch)

    @property
    def pending_rows(self) -> int:
        return _rows_of(self._pending)

    def flush(self) -> Commit:
        if self.pending_rows:
            _raise_next(self._fails)
        pending, self._pending = self._pending, []
        positions = {batch.source_partition: batch.position for batch in pending if batch.position is not None}
        if any(self._tables.positions.get(each) != self._committed.get(each) for each in positions):
            self._committed.clear()
            raise ConcurrentCommit("another writer moved a position first")
        rows: Counter[str] = Counter()
        for batch in pending:
            for name, table in batch.rows.items():
                self._tables.rows.setdefault(name, []).append(table)
                rows[name] += table.num_rows
        self._tables.positions |= positions
        self._committed |= positions
        commit = Commit(rows=dict(rows), positions=positions)
        self._tables.commits += [commit] if pending else []
        return commit

    def _reached(self, source_partition: SourcePartition) -> Position | None:
        own = (batch.position for batch in reversed(self._pending) if batch.source_partition == source_partition)
        return next(own, self.position(source_partition))


def _rows_of(batches: Sequence[SourceBatch]) -> int:
    return sum(rows.num_rows for batch in batches for rows in batch.rows.values())


def _raise_next(errors: Iterator[Exception | None]) -> None:
    error = next(errors, None)
    if error is not None:
        raise error
