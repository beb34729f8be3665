"""What a replay goes on from, and the shares in which workers do it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.observed_run import Observation
from acktrail.reconcile.partition_replay import Read, Replay
from acktrail.reconcile.saved.saved_replay_table import Kept, read_memory
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.workers.partitioning import shares_of
from acktrail.workers.worker_results import parcels_of

__all__ = ["Recall", "ReplayShare", "replay_of", "replay_shares"]

_RECORDS_OF_A_SHARE: Final = 250_000
"""A worker holds what it still needs of the records of one share: more records make more shares, not larger ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What workers go on from: what is `kept`, and the files of ``state_records`` that may have later records (`paths`;
    None: all that it has at `records_version`). `remembers`: they hand out memory for the next time.
    """

    kept: Kept = field(default_factory=Kept)
    records_version: int | None = None
    paths: tuple[str, ...] | None = None
    remembers: bool = True

    def records_of(self, coverage: Coverage) -> int:
        """About how many records there are to replay of a state partition."""
        return max(0, (coverage.end_offset or 0) - self.kept.positions.get(coverage.state_partition, 0))

    def rows(self, coverages: Mapping[int, Coverage]) -> int:
        """About how many rows the replay reads: new records, and share partitions to go on from."""
        return self.kept.share_partitions + sum(map(self.records_of, coverages.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayShare:
    """What a worker does with its share of the state partitions: replay them."""

    config: TablesConfig
    observation: Observation
    recall: Recall = field(default_factory=Recall)

    def __call__(self, coverages: Sequence[Coverage]) -> Iterator[pa.RecordBatch]:
        """Parcels ``memory``: what the replay leaves of every share partition."""
        replay = replay_of(Tables(self.config), self.observation, self.recall, coverages)
        yield from parcels_of("memory", replay.remembered())


def replay_shares(coverages: Mapping[int, Coverage], recall: Recall, count: int) -> list[tuple[Coverage, ...]]:
    """About `count` shares of the state partitions that have records; more where these would have too many of them."""
    exported = sorted((c for c in coverages.values() if c.end_offset), key=lambda c: c.state_partition)
    total = sum(map(recall.records_of, exported))
    return shares_of(exported, recall.records_of, max(count, -(-total // _RECORDS_OF_A_SHARE)))


def replay_of(tables: Tables, observation: Observation, recall: Recall, coverages: Sequence[Coverage]) -> Replay:
    """The replay of the state partitions of `coverages`."""
    memory = read_memory(tables, recall.kept, [coverage.state_partition for coverage in coverages])
    return Replay(_reader(tables, recall), observation, coverages, memory)


def _reader(tables: Tables, recall: Recall) -> Read:
    """Reads what `recall` names."""
    if recall.paths is not None:
        return partial(_read_files, tables, recall.paths)
    snapshot = tables.snapshot("state_records", version=recall.records_version)
    return partial(_read_table, snapshot)


def _read_files(
    tables: Tables, paths: Sequence[str], columns: Sequence[str], where: pc.Expression
) -> Iterator[pa.RecordBatch]:
    return tables.file_batches("state_records", paths, columns=columns, where=where) if paths else iter(())


def _read_table(
    snapshot: TableSnapshot | None, columns: Sequence[str], where: pc.Expression
) -> Iterator[pa.RecordBatch]:
    return iter(()) if snapshot is None else snapshot.batches(columns=columns, where=where)
