"""A cluster on paper whose records reach the tables as an export brings them: by a task, positions and the sink."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jobs.world import World, topic_id
from samples.memory_source import MemoryLog, MemoryTask

from acktrail.connect.contract import SinkTask, SourceTaskContext

__all__ = ["CLUSTER", "ExportedWorld"]

CLUSTER = "c1"
_BATCH_ROWS = 64


class ExportedWorld(World):
    """`open_sink`: the class ``DeltaSink``, wherever the release under test has it."""

    def __init__(self, folder: Path, open_sink: Callable[..., SinkTask], *, state_partitions: int = 3) -> None:
        super().__init__(folder, state_partitions=state_partitions)
        self._open_sink = open_sink

    def export(self, run_id: str, *, lost: dict[int, int] | None = None, at_most: int | None = None) -> None:
        """Export what is new from where the tables end; `lost`: the offset before which Kafka pruned a state
        partition."""
        assert at_most is None
        self.log_starts |= lost or {}
        sink = self._open_sink(self.tables, cluster_id=CLUSTER, run_id=run_id, clock=lambda: self.now)
        for partition in self.logs:
            task = MemoryTask([self._log(partition)], cluster_id=CLUSTER, batch_rows=_BATCH_ROWS)
            task.start(SourceTaskContext(position=sink.position))
            while not task.is_finished:
                for batch in task.poll(0):
                    sink.put(batch)
            self.exported[partition] = len(self.logs[partition])
        sink.flush()

    def _log(self, partition: int) -> MemoryLog:
        log = self.logs[partition]
        return MemoryLog(
            pairs=log,
            partition=partition,
            topic_id=topic_id(99),
            start_offset=self.log_starts[partition],
            end_offset=len(log),
            times={offset: time for (on, offset), time in self.times.items() if on == partition},
        )
