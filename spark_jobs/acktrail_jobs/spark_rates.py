"""Rates with Spark: the files of the history counted by the executors, added up by Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from acktrail.columnar.rate_counts import COUNTS, RATE_INPUTS, RATES, partial_rates, sum_rates
from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail.tables.past.history_tables import CHANGES
from acktrail_jobs.spark_executors import share_frame


def delivery_rates(spark: SparkSession, config: TablesConfig, every_ms: int) -> DataFrame:
    """Rows of ``acktrail.columnar.rate_counts.RATES`` for intervals of `every_ms`: what ``acktrail rates`` shows. A
    count is null where it is more than a long holds. Which state records are missing, so that counts are least ones, is
    in ``acktrail.tables.past.history_reader.HistoryReader.completeness``."""
    snapshot = Tables(config).snapshot(CHANGES)
    paths = [] if snapshot is None else [(file.path,) for file in snapshot.files()]
    pieces = share_frame(spark, RATES, paths, partial(_counted, config, every_ms))
    sums = [f.when(~f.bool_or(f.isnull(name)), f.try_sum(name)).alias(name) for name in COUNTS]
    return pieces.groupBy("group_id", "topic_id", "partition", "interval_start_ms").agg(*sums)


def _counted(config: TablesConfig, every_ms: int, paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    rows = Tables(config).read_files(CHANGES, paths, columns=RATE_INPUTS)
    yield from sum_rates([partial_rates(rows, every_ms)]).to_batches()
