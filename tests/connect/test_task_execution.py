"""The run of a task: everything arrives, in commits of the right size and time, however the run ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from samples.memory_source import PAIRS, FakeClock, MemoryLog, MemorySink, MemoryTables, MemoryTask

from acktrail.activity import stop_on_signals
from acktrail.errors import ConcurrentCommit, ForeignCluster, RowsRefused, Unreachable
from acktrail.model.log_positions import Position, SourcePartition
from acktrail_connect.contract import SourceTaskContext
from acktrail_connect.source_batches import Commit, SourceBatch
from acktrail_connect.task_execution import FlushPolicy, Progress, TaskExecution


def logs(*ends: int) -> list[MemoryLog]:
    return [MemoryLog(partition=number, end_offset=end) for number, end in enumerate(ends)]


def watched(log: MemoryLog, watch: Callable[[], None]) -> MemoryTask:
    return MemoryTask([log], batch_rows=10, is_continuous=True, watch=lambda _: watch())


def sizes(tables: MemoryTables) -> list[int]:
    """Rows of each commit."""
    return [commit.rows["state_records"] for commit in tables.commits]


def test_bounded_run_reads_every_log_to_its_end() -> None:
    """Read = committed = all records of all logs; decoded and quarantined add up; the task is stopped. The
    next run finds nothing new."""
    tables = MemoryTables()
    source = MemoryTask(logs(70, 0, 7), batch_rows=10)
    summary = TaskExecution(source, MemorySink(tables)).run()
    assert summary.records_read == 77 == summary.rows["state_records"]
    assert summary.records_quarantined == 11
    assert summary.records_decoded + summary.records_quarantined == summary.records_read
    assert (summary.partitions, summary.partitions_finished, summary.was_stopped) == (3, 3, False)
    assert sorted(summary.positions.values()) == [7, 70]
    assert source.is_stopped
    again = TaskExecution(MemoryTask(logs(70, 0, 7)), MemorySink(tables)).run()
    assert (again.records_read, again.commits, again.rows) == (0, 0, {})


def test_a_sink_is_asked_for_the_position_before_the_first_batch() -> None:
    """Of each source partition, once, also where the source does not ask."""
    calls: list[tuple[str, SourcePartition]] = []

    class Forgetful(MemoryTask):
        def start(self, context: SourceTaskContext) -> None:
            super().start(SourceTaskContext())

    class Watched(MemorySink):
        def position(self, source_partition: SourcePartition) -> Position | None:
            calls.append(("position", source_partition))
            return super().position(source_partition)

        def put(self, batch: SourceBatch) -> None:
            calls.append(("put", batch.source_partition))
            MemorySink.put(self, batch)

    for kind in (MemoryTask, Forgetful):
        calls.clear()
        TaskExecution(kind(logs(15, 5), batch_rows=10), Watched(MemoryTables())).run()
        for part in {part for _, part in calls}:
            assert [call for call, own in calls if own == part][:2] == ["position", "put"]


def test_flush_by_rows_bounds_what_is_pending() -> None:
    """No commit but the last is smaller than the bound, none larger than the bound and a batch."""
    tables, source = MemoryTables(), MemoryTask(logs(1000, 333), batch_rows=30)
    TaskExecution(source, MemorySink(tables), policy=FlushPolicy(rows=100)).run()
    assert sum(sizes(tables)) == 1333
    assert all(100 <= rows < 130 for rows in sizes(tables)[:-1])


def test_flush_by_bytes_bounds_what_is_pending() -> None:
    """Large rows are committed before many of them have come together."""
    large = [(key, (value or b"") + bytes(100_000)) for key, value in PAIRS]
    tables, source = MemoryTables(), MemoryTask([MemoryLog(pairs=large, end_offset=60)], batch_rows=10)
    TaskExecution(source, MemorySink(tables), policy=FlushPolicy(size_bytes=1_500_000)).run()
    assert sizes(tables) == [20, 20, 20]


def test_flush_by_time_while_idle() -> None:
    """What was read is committed in time although nothing more comes, and only once."""
    clock, stop = FakeClock(step=0.5), threading.Event()
    tables = MemoryTables()
    committed_at: list[float] = []

    class TimedSink(MemorySink):
        def flush(self) -> Commit:
            commit = super().flush()
            committed_at.extend([clock.now] if commit.rows else [])
            return commit

    def watch() -> None:
        if clock.now > 50:
            stop.set()

    source = watched(MemoryLog(end_offset=7), watch)
    TaskExecution(source, TimedSink(tables), policy=FlushPolicy(interval_s=10, poll_s=0.001), clock=clock).run(stop)
    assert len(tables.commits) == 1
    assert 10 <= committed_at[0] <= 12


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_and_commits(number: signal.Signals) -> None:
    """SIGTERM and SIGINT end a run with a commit; the handlers of before are back afterwards."""
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    tables = MemoryTables()
    polls: list[int] = []

    def watch() -> None:
        polls.append(1)
        if len(polls) == 3:
            os.kill(os.getpid(), number)

    with stop_on_signals() as stop:
        source = watched(MemoryLog(end_offset=10_000), watch)
        summary = TaskExecution(source, MemorySink(tables)).run(stop)
    assert summary.was_stopped
    assert list(tables.positions.values()) == [summary.records_read]
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def failing(*errors: Exception | None) -> Callable[[], None]:
    """Raises them, call by call."""
    left = iter(errors)

    def call() -> None:
        if (found := next(left)) is not None:
            raise found

    return call


@pytest.mark.parametrize(
    "error", [Unreachable("localhost:1"), ForeignCluster("new", hint="other tables"), RowsRefused("no")]
)
@pytest.mark.parametrize("where", ["source", "sink"])
def test_an_error_ends_the_run_and_stops_the_task(error: Exception, where: str) -> None:
    """It comes out as it is, and what was committed before it stays. What was read before it is committed, too, where
    nothing can be read again of a topic that was created anew, and where good rows would wait until a person has
    mended the batch behind them, whoever refuses it: transform or sink."""
    tables, trouble = MemoryTables(), (None, None, None, error)
    task = watched(MemoryLog(end_offset=100), failing(*trouble) if where == "source" else lambda: None)
    sink = MemorySink(tables, refuses=iter(trouble if where == "sink" else ()))
    with pytest.raises(type(error)):
        TaskExecution(task, sink, policy=FlushPolicy(rows=20)).run()
    reached = 20 if isinstance(error, Unreachable) else 30
    assert list(tables.positions.values()) == [reached]
    assert task.committed == {task.source_partition: reached}
    assert task.is_stopped


def test_nothing_spins_while_the_task_is_idle() -> None:
    """Every poll may wait for `poll_s`, and the sink's side sleeps meanwhile: it wakes up for a batch, and at the end.
    The stop that the task may look at during a long wait is the run's."""
    stop, clock = threading.Event(), FakeClock(step=1)
    waits: list[float] = []

    def watch(timeout_s: float) -> None:
        waits.append(timeout_s)
        if len(waits) == 12:
            stop.set()

    class Idle(MemoryTask):
        def start(self, context: SourceTaskContext) -> None:
            super().start(context)
            assert context.stop is stop

    source = Idle(logs(0, 10, 0), batch_rows=5, is_continuous=True, watch=watch)
    summary = TaskExecution(source, MemorySink(MemoryTables()), policy=FlushPolicy(poll_s=90.0), clock=clock).run(stop)
    assert waits == [90.0] * 12
    assert summary.records_read == 10
    assert clock.now <= 1 + 2 + 1  # looks at the clock: at the start, after each batch, at the end


def test_the_source_is_not_told_of_a_commit_that_failed() -> None:
    """Another writer comes before the third flush: the source knows of the first two commits, each before the next one,
    and of nothing else. It is stopped."""
    tables, told = MemoryTables(), list[Position]()

    class Hearing(MemoryTask):
        def commit(self, positions: Mapping[SourcePartition, Position]) -> None:
            assert positions.items() <= tables.positions.items()
            told.extend(positions.values())

    source = Hearing(logs(200), batch_rows=10)
    other = {source.source_partition: 120}

    def overtake(progress: Progress) -> None:
        if progress.records_committed == 80:
            tables.positions |= other

    run = TaskExecution(source, MemorySink(tables), policy=FlushPolicy(rows=40), progress=overtake)
    with pytest.raises(ConcurrentCommit):
        run.run()
    assert told == [40, 80]
    assert run.summary.records_read == 80
    assert source.is_stopped


def test_a_source_that_cannot_take_in_a_commit_does_not_undo_it() -> None:
    """Its error ends the run; what the sink has committed is in the summary all the same."""
    tables = MemoryTables()

    class Deaf(MemoryTask):
        def commit(self, positions: Mapping[SourcePartition, Position]) -> None:
            raise Unreachable("localhost:1")

    run = TaskExecution(Deaf(logs(100), batch_rows=10), MemorySink(tables), policy=FlushPolicy(rows=40))
    with pytest.raises(Unreachable):
        run.run()
    assert run.summary.rows == {"state_records": 40}
    assert run.summary.positions == tables.positions


def test_a_stop_with_a_backlog_makes_one_more_commit_at_most() -> None:
    """However much was read ahead: what one commit does not take is read again by the next run, and nothing is lost."""
    tables, stop = MemoryTables(), threading.Event()
    log = MemoryLog(end_offset=10_000)

    def stopping(progress: Progress) -> None:
        if progress.records_read >= 300:
            stop.set()

    policy = FlushPolicy(rows=100, poll_s=0)
    run = TaskExecution(MemoryTask([log], batch_rows=10), MemorySink(tables), policy=policy, progress=stopping)
    summary = run.run(stop)
    assert summary.was_stopped
    assert summary.records_read <= 400
    TaskExecution(MemoryTask([log], batch_rows=1_000), MemorySink(tables)).run()
    assert sorted(pa.concat_tables(tables.rows["state_records"])["offset"].to_pylist()) == list(range(10_000))
