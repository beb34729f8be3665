"""The replay as a Spark source: each worker replays its share of the state partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from acktrail.columnar.schemas import SHARE_PARTITION_STATES
from acktrail.config import TablesConfig
from acktrail.tables.snapshot import TableSnapshot
from acktrail.tables.store import Tables
from acktrail_jobs import schemas
from acktrail_jobs.coverage import Coverage
from acktrail_jobs.memory import MEMORY_COLUMNS
from acktrail_jobs.memory_table import Kept, read_memory
from acktrail_jobs.observation import Observation
from acktrail_jobs.parcels import opened, sealed
from acktrail_jobs.replayed import Read, Replay
from acktrail_jobs.session import parallelism
from acktrail_jobs.sharing import shares_of
from acktrail_jobs.sources import row_batches, shares_frame

__all__ = ["REPLAYED_ARROW", "Recall", "remembered", "replay_share", "replayed", "replayed_states", "unsealed"]

REPLAYED_ARROW: Final = pa.schema(
    [
        *SHARE_PARTITION_STATES,
        pa.field("is_misplaced", pa.bool_()),
        pa.field("initialized_at", pa.int64()),
        pa.field("archived_at", pa.int64()),
        pa.field("unreadable_at", pa.int64()),
        pa.field("broken_rules", pa.list_(pa.string())),
        pa.field("memory", pa.binary()),
    ]
)


def replayed_states(
    spark: SparkSession, config: TablesConfig, observation: Observation, coverages: Mapping[int, Coverage]
) -> DataFrame:
    """Rows of ``REPLAYED``, out of all records: each worker replays its share of the state partitions."""
    return replayed(spark, config, observation, coverages, Recall(remembers=False)).drop("memory")


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


def replayed(
    spark: SparkSession,
    config: TablesConfig,
    observation: Observation,
    coverages: Mapping[int, Coverage],
    recall: Recall,
) -> DataFrame:
    """Rows of ``REPLAYED``; those with `memory` have nothing else: parcels for ``remembered``."""
    exported = sorted((c for c in coverages.values() if c.end_offset), key=lambda c: c.state_partition)
    shares = shares_of(exported, recall.records_of, parallelism(spark))
    return shares_frame(spark, schemas.REPLAYED, shares, partial(replay_share, config, observation, recall))


def remembered(frame: DataFrame) -> pa.Table:
    """Rows of ``MEMORY_COLUMNS`` out of the parcels in a frame of ``replayed``."""
    return unsealed(frame.where("memory IS NOT NULL").select("memory").toArrow()["memory"].to_pylist())


def unsealed(parcels: Iterable[bytes]) -> pa.Table:
    """Rows of ``MEMORY_COLUMNS`` out of parcels."""
    return pa.concat_tables([MEMORY_COLUMNS.empty_table(), *map(opened, parcels)])


def replay_share(
    config: TablesConfig, observation: Observation, recall: Recall, coverages: Sequence[Coverage]
) -> Iterator[pa.RecordBatch]:
    """What a worker does: rows of ``REPLAYED`` for the state partitions of `coverages`."""
    tables = Tables(config)
    memory = read_memory(tables, recall.kept, [coverage.state_partition for coverage in coverages])
    replay = Replay(_reader(tables, recall), observation, coverages, memory)
    yield from row_batches(replay.rows(), REPLAYED_ARROW)
    if recall.remembers:
        yield from row_batches(({"memory": parcel} for parcel in sealed(replay.remembered())), REPLAYED_ARROW)


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
