"""Sources over the tables: workers get the address of what to read, reduce it there, and hand Spark what is left.

A source is a range of numbers, mapped: each number is a worker's share of the work. What else a worker needs (where the
tables are, and the storage's options, which may hold secrets) travels pickled with the function, and so is in no plan
and no log. Spark's Python data source API would do the same with two more processes for each source to plan it: 4 to 6
seconds more on two cores for these four.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from acktrail.columnar.schemas import SHARE_PARTITION_STATES
from acktrail.config import TablesConfig
from acktrail.tables.store import Tables
from acktrail_jobs import schemas
from acktrail_jobs.coverage import Coverage
from acktrail_jobs.observation import Observation
from acktrail_jobs.replayed import replay_rows

__all__ = ["REPLAYED_ARROW", "group_samples", "offset_samples", "replayed_states", "row_batches", "topic_statuses"]

REPLAYED_ARROW: Final = pa.schema(
    [
        *SHARE_PARTITION_STATES,
        pa.field("is_misplaced", pa.bool_()),
        pa.field("initialized_at", pa.int64()),
        pa.field("archived_at", pa.int64()),
        pa.field("unreadable_at", pa.int64()),
        pa.field("broken_rules", pa.list_(pa.string())),
    ]
)

_ROWS_AT_ONCE: Final = 2_048


def replayed_states(
    spark: SparkSession, config: TablesConfig, observation: Observation, coverages: Mapping[int, Coverage]
) -> DataFrame:
    """Rows of ``REPLAYED``: each worker replays its share of the state partitions."""
    exported = sorted((c for c in coverages.values() if c.end_offset), key=lambda c: -(c.end_offset or 0))
    workers = min(len(exported), spark.sparkContext.defaultParallelism)
    shares = [tuple(exported[worker::workers]) for worker in range(workers)]
    return shares_frame(spark, schemas.REPLAYED, shares, partial(_replay_share, config, observation))


def offset_samples(spark: SparkSession, config: TablesConfig, run_id: str) -> DataFrame:
    """Rows of ``OFFSET_SAMPLES``: what was observed of topic partitions and share partitions."""
    return _sides(spark, config, "offset_observations", schemas.OFFSET_SAMPLES, run_id)


def group_samples(spark: SparkSession, config: TablesConfig, run_id: str) -> DataFrame:
    """Rows of ``GROUP_SAMPLES``: what was observed of groups."""
    return _sides(spark, config, "group_observations", schemas.GROUP_SAMPLES, run_id)


def topic_statuses(spark: SparkSession, config: TablesConfig) -> DataFrame:
    """Rows of ``TOPIC_STATUSES``: every topic id ever seen."""
    read = partial(_read_rows, config, "topics", tuple(schemas.TOPIC_STATUSES.names))
    return shares_frame(spark, schemas.TOPIC_STATUSES, [None], read)


def row_batches(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """`rows` in record batches of `schema`, a few at a time."""
    remaining = iter(rows)
    while taken := list(islice(remaining, _ROWS_AT_ONCE)):
        yield pa.RecordBatch.from_pylist([dict(row) for row in taken], schema=schema)


def _sides(spark: SparkSession, config: TablesConfig, table: str, schema: StructType, run_id: str) -> DataFrame:
    sides = [(pc.field("run_id") == run_id) & (pc.field("phase") == phase) for phase in ("before", "after")]
    return shares_frame(spark, schema, sides, partial(_read_rows, config, table, tuple(schema.names)))


def _replay_share(
    config: TablesConfig, observation: Observation, coverages: Sequence[Coverage]
) -> Iterator[pa.RecordBatch]:
    snapshot = Tables(config).snapshot("state_records")
    if snapshot is None:
        return

    def read(columns: Sequence[str], where: pc.Expression) -> Iterator[pa.RecordBatch]:
        return snapshot.batches(columns=columns, where=where)

    yield from row_batches(replay_rows(read, observation, coverages), REPLAYED_ARROW)


def _read_rows(
    config: TablesConfig, table: str, columns: tuple[str, ...], where: pc.Expression | None
) -> Iterator[pa.RecordBatch]:
    snapshot = Tables(config).snapshot(table)
    if snapshot is not None:
        yield from snapshot.batches(columns=columns, where=where)


def shares_frame(
    spark: SparkSession, schema: StructType, shares: Sequence[Any], read: Callable[[Any], Iterator[pa.RecordBatch]]
) -> DataFrame:
    """A DataFrame of one Spark partition a share, which a worker gets by calling `read` with it."""

    def read_shares(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(shares[number])

    return spark.range(len(shares), numPartitions=max(1, len(shares))).mapInArrow(read_shares, schema)
