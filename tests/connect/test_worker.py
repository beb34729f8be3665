"""The worker: everything arrives, in commits of the right size and time, however the run ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from samples.memory_source import FakeClock, MemoryLog, MemorySink, MemorySource, MemoryTables, MemoryTask

from acktrail.connect.contract import Commit, SourceBatch
from acktrail.connect.signals import stop_on_signals
from acktrail.connect.worker import FlushPolicy, Progress, Worker
from acktrail.errors import Unreachable


class CountingSink(MemorySink):
    """Notes how many rows each flush had."""

    def __init__(self, tables: MemoryTables) -> None:
        super().__init__(tables)
        self.flushed: list[int] = []

    def flush(self) -> Commit:
        commit = super().flush()
        if commit.rows:
            self.flushed.append(commit.rows["state_records"])
        return commit


class WatchedTask(MemoryTask):
    """Calls `watch` with every poll."""

    watch: Callable[[], None]

    def poll(self, timeout_s: float) -> SourceBatch | None:
        self.watch()
        return super().poll(timeout_s)


class OneTask:
    def __init__(self, task: MemoryTask) -> None:
        self.task = task

    def tasks(self) -> Sequence[MemoryTask]:
        return [self.task]

    def close(self) -> None: ...


def logs(pairs: list[Any], *ends: int) -> list[MemoryLog]:
    return [MemoryLog(pairs=pairs, partition=number, end_offset=end) for number, end in enumerate(ends)]


def watched(log: MemoryLog, watch: Callable[[], None], *, batch_rows: int = 10) -> OneTask:
    task = WatchedTask("memory", log, batch_rows=batch_rows, is_continuous=True)
    task.watch = watch
    return OneTask(task)


def test_bounded_run_reads_every_log_to_its_end(pairs: list[Any]) -> None:
    """Read = committed = all records of all logs; decoded and quarantined add up; tasks are closed."""
    tables = MemoryTables()
    source = MemorySource(logs(pairs, 70, 0, 7), batch_rows=10)
    summary = Worker(source, MemorySink(tables)).run()
    assert summary.records_read == 77 == summary.rows["state_records"]
    assert summary.records_quarantined == 11
    assert summary.records_decoded + summary.records_quarantined == summary.records_read
    assert (summary.tasks, summary.tasks_finished, summary.was_stopped) == (3, 3, False)
    assert sorted(summary.positions.values()) == [7, 70]
    assert all(task.is_closed for task in source.tasks())


def test_second_run_finds_nothing_new(pairs: list[Any]) -> None:
    """A run right after another reads nothing and commits nothing."""
    tables = MemoryTables()
    some = logs(pairs, 20, 5)
    Worker(MemorySource(some), MemorySink(tables)).run()
    summary = Worker(MemorySource(some), MemorySink(tables)).run()
    assert (summary.records_read, summary.commits, summary.rows) == (0, 0, {})


def test_flush_by_rows_bounds_what_is_pending(pairs: list[Any]) -> None:
    """No commit but the last is smaller than the bound, none larger than the bound and a batch."""
    sink = CountingSink(MemoryTables())
    Worker(MemorySource(logs(pairs, 1000, 333), batch_rows=30), sink, policy=FlushPolicy(rows=100)).run()
    assert sum(sink.flushed) == 1333
    assert all(100 <= rows < 130 for rows in sink.flushed[:-1])


def test_flush_by_bytes_bounds_what_is_pending(pairs: list[Any]) -> None:
    """Large rows are committed before many of them have come together."""
    large = [(key, (value or b"") + bytes(100_000)) for key, value in pairs]
    sink = CountingSink(MemoryTables())
    Worker(MemorySource(logs(large, 60), batch_rows=10), sink, policy=FlushPolicy(size_bytes=1_500_000)).run()
    assert sink.flushed == [20, 20, 20]


def test_flush_by_time_while_idle(pairs: list[Any]) -> None:
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

    source = watched(MemoryLog(pairs=pairs, end_offset=7), watch)
    Worker(source, TimedSink(tables), policy=FlushPolicy(interval_s=10, poll_s=0.001), clock=clock).run(stop)
    assert tables.commits == 1
    assert 10 <= committed_at[0] <= 12


def test_stop_commits_what_was_read(pairs: list[Any]) -> None:
    """A stop in the middle of a continuous run loses nothing that was read."""
    stop, tables = threading.Event(), MemoryTables()
    polls: list[int] = []

    def watch() -> None:
        polls.append(1)
        if len(polls) == 4:
            stop.set()

    source = watched(MemoryLog(pairs=pairs, end_offset=1000), watch)
    summary = Worker(source, MemorySink(tables)).run(stop)
    assert summary.was_stopped
    assert summary.records_read == 40 == summary.rows["state_records"]
    assert list(tables.positions.values()) == [40]
    assert source.task.is_closed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_and_commits(pairs: list[Any], number: signal.Signals) -> None:
    """SIGTERM and SIGINT end a run with a commit; the handlers of before are back afterwards."""
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    tables = MemoryTables()
    polls: list[int] = []

    def watch() -> None:
        polls.append(1)
        if len(polls) == 3:
            os.kill(os.getpid(), number)

    with stop_on_signals() as stop:
        source = watched(MemoryLog(pairs=pairs, end_offset=10_000), watch)
        summary = Worker(source, MemorySink(tables)).run(stop)
    assert summary.was_stopped
    assert list(tables.positions.values()) == [summary.records_read]
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def test_continuous_run_takes_what_is_written_meanwhile(pairs: list[Any]) -> None:
    """A log that grows during the run is followed until the stop."""
    stop, tables = threading.Event(), MemoryTables()
    log = MemoryLog(pairs=pairs)

    def watch() -> None:
        log.end_offset += 3
        if log.end_offset == 300:
            stop.set()

    Worker(watched(log, watch), MemorySink(tables)).run(stop)
    assert list(tables.positions.values()) == [300]


def test_gaps_are_reported(pairs: list[Any]) -> None:
    """What was pruned between two runs is in the second one's summary."""
    tables, log = MemoryTables(), MemoryLog(pairs=pairs, end_offset=10)
    Worker(MemorySource([log]), MemorySink(tables)).run()
    log.start_offset, log.end_offset = 15, 20
    summary = Worker(MemorySource([log]), MemorySink(tables)).run()
    assert [(span.gap_first, span.gap_last, span.first_offset) for span in summary.gaps] == [(10, 14, 15)]


def test_failure_ends_the_run_and_closes_the_tasks(pairs: list[Any]) -> None:
    """An error of the source comes out as it is; what was committed before it stays."""
    tables = MemoryTables()
    polls: list[int] = []

    def watch() -> None:
        polls.append(1)
        if len(polls) == 4:
            raise Unreachable("localhost:1")

    source = watched(MemoryLog(pairs=pairs, end_offset=100), watch)
    with pytest.raises(Unreachable):
        Worker(source, MemorySink(tables), policy=FlushPolicy(rows=20)).run()
    assert list(tables.positions.values()) == [20]
    assert source.task.is_closed


def test_progress_only_grows_and_ends_complete(pairs: list[Any]) -> None:
    """Progress never goes back, committed never passes read, and the last report says all is done."""
    reports: list[Progress] = []
    source = MemorySource(logs(pairs, 95, 10), batch_rows=10)
    Worker(source, MemorySink(MemoryTables()), policy=FlushPolicy(rows=40), progress=reports.append).run()
    read = [report.records_read for report in reports]
    committed = [report.records_committed for report in reports]
    assert read == sorted(read)
    assert committed == sorted(committed)
    assert all(done <= seen for done, seen in zip(committed, read, strict=True))
    assert reports[-1] == Progress(records_read=105, records_committed=105, tasks_finished=2, tasks=2)


def test_idle_tasks_are_waited_for_one_at_a_time(pairs: list[Any]) -> None:
    """As long as any task gives records no other is waited for; when all are idle one is, so that nothing spins."""
    stop = threading.Event()
    waits: list[float] = []

    class Idle(MemoryTask):
        def poll(self, timeout_s: float) -> SourceBatch | None:
            waits.append(timeout_s)
            if len(waits) == 12:
                stop.set()
            return super().poll(timeout_s)

    class Source:
        def tasks(self) -> Sequence[MemoryTask]:
            return [Idle("memory", log, batch_rows=5, is_continuous=True) for log in logs(pairs, 0, 10, 0)]

        def close(self) -> None: ...

    Worker(Source(), MemorySink(MemoryTables()), policy=FlushPolicy(poll_s=9.0)).run(stop)
    assert waits[:5] == [0.0] * 5
    assert waits[-4:] == [9.0] * 4


def test_a_stop_with_a_backlog_makes_one_more_commit_at_most(pairs: list[Any]) -> None:
    """However much was read ahead: what one commit does not take is read again by the next run, and nothing is lost."""
    tables, stop = MemoryTables(), threading.Event()
    log = MemoryLog(pairs=pairs, end_offset=10_000)

    def stopping(progress: Progress) -> None:
        if progress.records_read >= 300:
            stop.set()

    policy = FlushPolicy(rows=100, poll_s=0)
    worker = Worker(MemorySource([log], batch_rows=10), MemorySink(tables), policy=policy, progress=stopping)
    summary = worker.run(stop)
    assert summary.was_stopped
    assert summary.records_read <= 400
    Worker(MemorySource([log], batch_rows=1_000), MemorySink(tables, run_id="next")).run()
    assert sorted(pa.concat_tables(tables.rows["state_records"])["offset"].to_pylist()) == list(range(10_000))
