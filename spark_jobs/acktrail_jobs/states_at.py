"""The state of every share partition at any past moment, as a Spark DataFrame."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from acktrail.config import TablesConfig
from acktrail.reconcile.state_at import read_moment
from acktrail.tables.delta.store import Tables
from acktrail_jobs.replay_source import replayed_states
from acktrail_jobs.spark_schemas import SHARE_PARTITION_STATES

__all__ = ["states_at"]

_NOT_OF_A_MOMENT = ("cluster_id", "run_id", "topic")


def states_at(spark: SparkSession, config: TablesConfig, at_ms: int | None = None) -> DataFrame:
    """Every share partition that had a state, or may have had one, at `at_ms` (ms since the epoch, inclusive; None: at
    the end of the export), with columns of ``share_partition_states``; `observed_at` is the moment.

    A share partition with records on two state partitions has two rows. What the export cannot tell of the moment is in
    ``acktrail.reconcile.state_at.read_moment``.

    Raises:
        ConfigurationError: nothing was exported.
    """
    moment = read_moment(Tables(config), at_ms)
    columns = [name for name in SHARE_PARTITION_STATES.names if name not in _NOT_OF_A_MOMENT]
    return replayed_states(spark, config, moment.observation, moment.coverages).select(*columns)
