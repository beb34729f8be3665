"""Spark's Python workers: one job for all shares, whose results the JVM carries as bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from acktrail_jobs import spark_schemas
from acktrail_jobs.session import parallelism, spark_session
from acktrail_jobs.worker_frame import shares_frame
from acktrail_jobs.workers import Work

__all__ = ["SparkWorkers", "spark_session"]


class SparkWorkers:
    """The workers of a session."""

    are_here: bool = False

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def count(self) -> int:
        """How many tasks run at once."""
        return parallelism(self._session)

    def parcels(self, shares: Sequence[Any], work: Work) -> Iterator[pa.RecordBatch]:
        """What `work` gives of all `shares`, in their order. One Spark job; none where there are no shares."""
        if shares:
            yield from shares_frame(self._session, spark_schemas.PARCELS, shares, work).toArrow().to_batches()
