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

from acktrail.config import TablesConfig
from acktrail.tables.store import Tables
from acktrail_jobs import schemas

__all__ = ["group_samples", "offset_samples", "row_batches", "shares_frame", "topic_statuses"]

_ROWS_AT_ONCE: Final = 2_048


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
