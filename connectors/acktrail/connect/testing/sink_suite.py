"""What every sink promises: rows and positions land together or not at all, for one writer at a time;
and a sink in memory, the shortest one that keeps this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.contract import SinkTask, SinkTaskContext
from acktrail.connect.source_batches import Commit, Position, SourceBatch, SourcePartition
from acktrail.connect.testing.connector_suite import ConnectorSuite, RandomRun, for_random_runs
from acktrail.errors import ConcurrentCommit

_A, _B = SourcePartition("suite/a"), SourcePartition("suite/b")


class SinkSuite(ConnectorSuite):
    """Set also ``numbers``. Rows have a number that counts from 0 in each source partition; a sink with rows of its own
    sets ``rows``, ``position_after`` and ``batch`` too."""

    table: ClassVar[str] = "suite_rows"
    connector_name: ClassVar[str] = "suite"
    reads_logs: ClassVar[bool] = False
    cluster_id: ClassVar[str | None] = None
    examples: ClassVar[int] = 15

    def numbers(self, source_partition: SourcePartition) -> list[int]:
        """The numbers that are committed, read from the storage as any reader would."""
        raise NotImplementedError

    def commits(self) -> int | None:
        """How many commits the storage has; None: it has no such number."""
        return None

    def partitions(self) -> Sequence[SourcePartition]:
        """Two source partitions."""
        return (_A, _B)

    def position_after(self, number: int) -> Position:
        """The position after the row `number` - 1."""
        return {"line": number}

    def batch(self, source_partition: SourcePartition, first: int, end: int) -> SourceBatch:
        """The rows `first` to before `end`."""
        numbers = list(range(first, end))
        rows = pa.table(
            {
                "part": pa.array([str(source_partition)] * len(numbers), pa.string()),
                "number": pa.array(numbers, pa.int64()),
            }
        )
        position = self.position_after(end)
        return SourceBatch(source_partition=source_partition, rows={self.table: rows}, position=position)

    def task(self, run_id: str = "run") -> SinkTask:
        """One more task onto the same storage."""
        connector = self.connector()
        connector.start()
        context = SinkTaskContext(
            connector=self.connector_name, run_id=run_id, cluster_id=self.cluster_id, reads_logs=self.reads_logs
        )
        task: SinkTask = connector.task(context)
        task.start()
        return task

    def test_stop_needs_no_start_and_may_come_twice(self) -> None:
        """Connector and task can be stopped at any time; what was put and not flushed is dropped."""
        connector = self.connector()
        connector.stop()
        task, part = self.task(), self.partitions()[0]
        task.put(self.batch(part, 0, 2))
        task.stop()
        task.stop()
        assert self.numbers(part) == []
        assert self.task().position(part) is None

    def test_put_is_not_a_commit(self) -> None:
        """What was put shows nowhere before the flush."""
        task, part = self.task(), self.partitions()[0]
        assert task.position(part) is None
        task.put(self.batch(part, 0, 3))
        assert task.pending_rows == 3
        assert self.numbers(part) == []
        assert self.task("other").position(part) is None

    def test_flush_commits_rows_and_positions(self) -> None:
        """After a flush the rows of all source partitions are there, and every new task knows where they continue."""
        task, (one, two) = self.task(), self.partitions()
        task.put(self.batch(one, 0, 2))
        task.put(self.batch(two, 0, 1))
        task.put(self.batch(one, 2, 3))
        commit = task.flush()
        expected = {one: self.position_after(3), two: self.position_after(1)}
        assert commit.positions == expected
        assert task.pending_rows == 0
        assert (self.numbers(one), self.numbers(two)) == ([0, 1, 2], [0])
        for each, position in expected.items():
            assert task.position(each) == self.task("next").position(each) == position
        assert self.connector().positions(self.connector_name, [one, two]) == expected

    def test_idle_leaves_no_trace(self) -> None:
        """A flush of nothing, and of a batch that moves nothing, is no commit."""
        task, part = self.task(), self.partitions()[0]
        task.put(self.batch(part, 0, 2))
        task.flush()
        before = self.commits()
        for again in (task, self.task("next")):
            again.put(self.idle(part, 2))
            commit = again.flush()
            assert not commit.positions, f"an idle batch was committed: {commit}"
            assert not any(commit.rows.values()), f"an idle batch was committed: {commit}"
        assert self.commits() == before
        assert self.numbers(part) == [0, 1]

    def idle(self, source_partition: SourcePartition, at: int) -> SourceBatch:
        """A batch without rows that stands where the one before ended."""
        return self.batch(source_partition, at, at)

    def test_a_second_writer_lands_nothing(self) -> None:
        """Two tasks at one position: the second flush raises ConcurrentCommit, leaves nothing pending, and the task
        continues at the position that landed."""
        first, second, part = self.task(), self.task("second"), self.partitions()[0]
        for task in (first, second):
            assert task.position(part) is None
            task.put(self.batch(part, 0, 2))
        first.flush()
        try:
            second.flush()
        except ConcurrentCommit:
            pass
        else:
            raise AssertionError("two writers committed the same rows")
        assert self.numbers(part) == [0, 1]
        assert second.pending_rows == 0
        again = self.task("again")
        assert again.position(part) == self.position_after(2)
        again.put(self.batch(part, 2, 4))
        again.flush()
        assert self.numbers(part) == [0, 1, 2, 3]

    def test_restarts_lose_and_double_nothing(self) -> None:
        """Runs of any length, each ended after some flushes: every row once, in the end."""

        def check(runs: list[RandomRun]) -> None:
            self.teardown_method()
            self.setup_method()
            part, end = self.partitions()[0], 0
            for number, run in enumerate([*runs, RandomRun(1, 1, 1, is_killed=False)]):
                end = self._run(f"run-{number}", part, end, run)
            assert self.numbers(part) == list(range(end)), f"{self.numbers(part)} of {end}"

        for_random_runs(check, examples=self.examples)

    def _run(self, run_id: str, part: SourcePartition, committed: int, run: RandomRun) -> int:
        """One task that begins where the storage says; gives how many rows are committed then."""
        task = self.task(run_id)
        position: Any = task.position(part)
        assert position == (self.position_after(committed) if committed else None)
        end = committed
        for number in range(run.polls):
            task.put(self.batch(part, end, end + run.grown))
            end += run.grown
            if number < run.flushed and end > committed:
                task.flush()
                committed = end
        if not run.is_killed:
            task.stop()
        return committed


@dataclass(slots=True, kw_only=True)
class MemoryTables:
    """What was committed: shared by the sinks of a test as real sinks share a storage."""

    rows: dict[str, list[pa.Table]] = field(default_factory=dict)
    positions: dict[SourcePartition, Position] = field(default_factory=dict)
    phases: set[tuple[SourcePartition, str, str]] = field(default_factory=set)
    commits: int = 0


class MemorySink(SinkTask):
    """Keeps batches in `tables`. A batch without a position lands once for each run and phase."""

    def __init__(self, tables: MemoryTables, *, run_id: str = "run") -> None:
        self._tables = tables
        self._run_id = run_id
        self._pending: list[SourceBatch] = []
        self._committed: dict[SourcePartition, Position | None] = {}

    def position(self, source_partition: SourcePartition) -> Position | None:
        if source_partition not in self._committed:
            self._committed[source_partition] = self._tables.positions.get(source_partition)
        return self._committed[source_partition]

    def put(self, batch: SourceBatch) -> None:
        self.position(batch.source_partition)
        if not _is_idle(batch, self._reached(batch.source_partition)):
            self._pending.append(batch)

    @property
    def pending_rows(self) -> int:
        return sum(rows.num_rows for batch in self._pending for rows in batch.rows.values())

    def flush(self) -> Commit:
        pending, self._pending = self._pending, []
        positions = {batch.source_partition: batch.position for batch in pending if batch.position is not None}
        if any(self._tables.positions.get(each) != self._committed.get(each) for each in positions):
            self._committed.clear()
            raise ConcurrentCommit("another writer moved a position first")
        rows: dict[str, int] = {}
        for batch in pending:
            for name, table in self._new_rows(batch).items():
                self._tables.rows.setdefault(name, []).append(table)
                rows[name] = rows.get(name, 0) + table.num_rows
        self._tables.positions |= positions
        self._committed |= positions
        self._tables.commits += bool(pending)
        return Commit(rows=rows, positions=positions)

    def _reached(self, source_partition: SourcePartition) -> Position | None:
        own = (batch.position for batch in reversed(self._pending) if batch.source_partition == source_partition)
        return next(own, self._committed[source_partition])

    def _new_rows(self, batch: SourceBatch) -> Mapping[str, pa.Table]:
        if batch.position is not None:
            return batch.rows
        phase = (batch.source_partition, self._run_id, _phases(batch))
        if phase in self._tables.phases:
            return {}
        self._tables.phases.add(phase)
        return batch.rows


def _is_idle(batch: SourceBatch, reached: Position | None) -> bool:
    has_rows = any(rows.num_rows for rows in batch.rows.values())
    return batch.position is not None and batch.position == reached and not has_rows


def _phases(batch: SourceBatch) -> str:
    named = (rows["phase"] for rows in batch.rows.values() if "phase" in rows.column_names)
    return " ".join(sorted({phase for column in named for phase in pc.unique(column).to_pylist()}))
