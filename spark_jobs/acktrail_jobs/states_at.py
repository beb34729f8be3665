"""The state of every share partition at any past moment, as a Spark DataFrame: each executor replays its share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import SHARE_PARTITION_STATES
from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.observed_run import Observation
from acktrail.reconcile.replay_resume import ReplayStart, replay_of, replay_shares
from acktrail.reconcile.state_at import topic_at_time
from acktrail.tables.delta.store import Tables
from acktrail_jobs.session import parallelism
from acktrail_jobs.spark_executors import share_frame

_NOT_OF_A_MOMENT: Final = ("cluster_id", "run_id", "topic")
_STATE_AT: Final = pa.schema([field for field in SHARE_PARTITION_STATES if field.name not in _NOT_OF_A_MOMENT])
_ROWS_AT_ONCE: Final = 8_192


def states_at(spark: SparkSession, config: TablesConfig, at_ms: int | None = None) -> DataFrame:
    """Every share partition that had a state, or may have had one, at `at_ms` (ms since the epoch, inclusive; None: at
    the end of the export), with columns of ``share_partition_states``; `observed_at` is the moment.

    A share partition with records on two state partitions has two rows. ``acktrail.reconcile.state_at`` reports what
    the export lacks for that moment. Raises ConfigurationError (nothing was exported).
    """
    moment = topic_at_time(Tables(config), at_ms)
    shares = replay_shares(moment.coverages, ReplayStart(), parallelism(spark))
    return share_frame(spark, _STATE_AT, shares, partial(_replay_share, config, moment.observation))


def _replay_share(
    config: TablesConfig, observation: Observation, coverages: Sequence[Coverage]
) -> Iterator[pa.RecordBatch]:
    states = replay_of(Tables(config), observation, ReplayStart(), coverages).states()
    yield from states.select(_STATE_AT.names).to_batches(max_chunksize=_ROWS_AT_ONCE)
