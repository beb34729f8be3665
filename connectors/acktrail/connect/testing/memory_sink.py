"""A sink in memory: for tests of sources, and the shortest one that keeps every promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.contract import SinkTask
from acktrail.connect.source_batches import Commit, Position, SourceBatch, SourcePartition
from acktrail.errors import ConcurrentCommit


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
