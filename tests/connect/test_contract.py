"""What every sink promises: the same suite for the sink in memory and the Delta sink."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples.memory_source import MemoryLog, MemoryTask

from acktrail.connect.contract import SinkTask, SourceTaskContext
from acktrail.connect.runtime.task_execution import FlushPolicy, TaskExecution
from acktrail.connect.source_batches import SourceBatch, SourcePartition
from acktrail.errors import ConcurrentCommit


def task_of(log: MemoryLog, sink: SinkTask, *, batch_rows: int = 4) -> MemoryTask:
    """The reading of one log, started where `sink` says."""
    task = MemoryTask([log], batch_rows=batch_rows)
    task.start(SourceTaskContext(position=sink.position))
    return task


def batch_of(task: MemoryTask) -> SourceBatch:
    (batch,) = task.poll(0)
    return batch


def offsets(rows: pa.Table) -> list[int]:
    return sorted(rows["offset"].to_pylist())


def test_a_source_partition_that_never_committed_has_no_position(kind: Any) -> None:
    """Before its first commit a source partition has no position."""
    assert kind.open().position(SourcePartition("t")) is None


def test_put_is_not_a_commit(kind: Any, pairs: list[Any]) -> None:
    """What was put shows nowhere until the flush, and not at all when the sink goes away before."""
    log = MemoryLog(pairs=pairs, end_offset=10)
    sink = kind.open()
    task = task_of(log, sink)
    sink.put(batch_of(task))
    assert sink.pending_rows == 4
    assert kind.rows("state_records").num_rows == 0
    assert kind.open().position(task.source_partition) is None


def test_flush_commits_rows_and_position(kind: Any, pairs: list[Any]) -> None:
    """After a flush the rows are there and every new sink knows where the task continues."""
    log = MemoryLog(pairs=pairs, end_offset=10)
    sink = kind.open()
    task = task_of(log, sink)
    sink.put(batch_of(task))
    sink.put(batch_of(task))
    commit = sink.flush()
    assert commit.rows["state_records"] == 8
    assert commit.positions == {task.source_partition: 8}
    assert sink.pending_rows == 0
    assert offsets(kind.rows("state_records")) == list(range(8))
    assert kind.open().position(task.source_partition) == sink.position(task.source_partition) == 8


def test_flush_of_nothing_is_no_commit(kind: Any, pairs: list[Any]) -> None:
    """An idle task leaves no trace."""
    sink = kind.open()
    task = task_of(MemoryLog(pairs=pairs, end_offset=3), sink)
    sink.put(batch_of(task))
    sink.flush()
    before = kind.commits()
    assert not task.poll(0)
    commit = sink.flush()
    assert not commit.rows
    assert not commit.positions
    assert kind.commits() == before


def test_source_partitions_of_one_flush_commit_together(kind: Any, pairs: list[Any]) -> None:
    """One flush of several source partitions is one commit."""
    sink = kind.open()
    task = MemoryTask([MemoryLog(pairs=pairs, partition=number, end_offset=3) for number in range(4)])
    task.start(SourceTaskContext(position=sink.position))
    for _ in range(4):
        sink.put(batch_of(task))
    assert [*sink.flush().positions.values()] == [3] * 4
    assert kind.commits() == 1


def test_second_writer_fails_and_nothing_of_it_lands(kind: Any, pairs: list[Any]) -> None:
    """Two sinks at the same position: the second to flush fails, and continues cleanly when it starts again."""
    log = MemoryLog(pairs=pairs, end_offset=10)
    first, second = kind.open(), kind.open()
    for sink in (first, second):
        sink.put(batch_of(task_of(log, sink)))
    first.flush()
    with pytest.raises(ConcurrentCommit):
        second.flush()
    assert offsets(kind.rows("state_records")) == [0, 1, 2, 3]
    again = kind.open()
    again.put(batch_of(task_of(log, again)))
    again.flush()
    assert offsets(kind.rows("state_records")) == list(range(8))


def test_gap_without_records_moves_the_position(kind: Any, pairs: list[Any]) -> None:
    """A log pruned to its end gives no record but a new position."""
    log = MemoryLog(pairs=pairs, end_offset=4)
    sink = kind.open()
    sink.put(batch_of(task_of(log, sink)))
    sink.flush()
    log.start_offset = log.end_offset = 20
    task = task_of(log, sink)
    sink.put(batch_of(task))
    assert sink.flush().positions == {task.source_partition: 20}
    assert kind.open().position(task.source_partition) == 20
    assert offsets(kind.rows("state_records")) == [0, 1, 2, 3]


def test_phase_of_a_run_lands_once(kind: Any, observation: Callable[..., pa.Table]) -> None:
    """A retried run adds no second copy of a phase it has; its other phase, and another run's, are added."""
    for run_id, phase in (("1", "before"), ("1", "before"), ("1", "after"), ("2", "before")):
        sink = kind.open(run_id=run_id)
        rows = {"group_observations": observation(phase, "a", "b")}
        sink.put(SourceBatch(source_partition=SourcePartition("groups"), rows=rows))
        sink.flush()
    phases = kind.rows("group_observations")["phase"].to_pylist()
    assert (phases.count("before"), phases.count("after")) == (4, 2)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 5), st.integers(1, 12)), min_size=1, max_size=5
    )
)
def test_restarts_lose_and_double_nothing(fresh: Callable[[], list[Any]], steps: list[Any], pairs: list[Any]) -> None:
    """Runs of any length over a log that grows, each ended after some batches: every offset once, in the end."""
    for kind in fresh():
        log = MemoryLog(pairs=pairs)
        for grown, put, batch_rows, flush_rows in steps:
            log.end_offset += grown
            sink = kind.open()
            task = task_of(log, sink, batch_rows=batch_rows)
            for batch in some_batches(task, put):
                sink.put(batch)
                if sink.pending_rows >= flush_rows:
                    sink.flush()
        TaskExecution(MemoryTask([log]), kind.open(), policy=FlushPolicy(rows=3)).run()
        assert offsets(kind.rows("state_records")) == list(range(log.end_offset))


def some_batches(task: MemoryTask, most: int) -> Iterable[SourceBatch]:
    for _ in range(most):
        yield from task.poll(0)
