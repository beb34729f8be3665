"""The replay of everything as a Spark DataFrame: each worker replays its share of the state partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from acktrail.columnar.schemas.table_schemas import SHARE_PARTITION_STATES
from acktrail.config import TablesConfig
from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.observed_run import Observation
from acktrail.reconcile.saved.replay_start import Recall, replay_of, replay_shares
from acktrail.tables.delta.store import Tables
from acktrail_jobs import spark_schemas
from acktrail_jobs.session import parallelism
from acktrail_jobs.worker_frame import shares_frame

__all__ = ["REPLAYED_ARROW", "replay_share", "replayed_states"]

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
    """Rows of ``REPLAYED``, out of all records."""
    recall = Recall(remembers=False)
    shares = replay_shares(coverages, recall, parallelism(spark))
    return shares_frame(spark, spark_schemas.REPLAYED, shares, partial(replay_share, config, observation))


def replay_share(
    config: TablesConfig, observation: Observation, coverages: Sequence[Coverage]
) -> Iterator[pa.RecordBatch]:
    """What a worker does: rows of ``REPLAYED`` for the state partitions of `coverages`."""
    yield from _batches(replay_of(Tables(config), observation, Recall(remembers=False), coverages).rows())


def _batches(rows: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    remaining = iter(rows)
    while taken := list(islice(remaining, _ROWS_AT_ONCE)):
        yield pa.RecordBatch.from_pylist([dict(row) for row in taken], schema=REPLAYED_ARROW)
