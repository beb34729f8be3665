"""What sinks of logs and observations promise beyond the suite (``test_suites``), in Delta tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from samples.memory_source import MemoryLog, MemoryTask

from acktrail.connect.contract import SinkTask, SourceTaskContext
from acktrail.connect.source_batches import SourceBatch, SourcePartition


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


def test_source_partitions_of_one_flush_commit_together(kind: Any, pairs: list[Any]) -> None:
    """One flush of several source partitions is one commit."""
    sink = kind.open()
    task = MemoryTask([MemoryLog(pairs=pairs, partition=number, end_offset=3) for number in range(4)])
    task.start(SourceTaskContext(position=sink.position))
    for _ in range(4):
        sink.put(batch_of(task))
    assert [*sink.flush().positions.values()] == [3] * 4
    assert kind.commits() == 1


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
