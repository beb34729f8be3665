"""Spark's Python workers: each gets the address of what to read, reduces it there, and hands Spark what is left.

A DataFrame of numbers is mapped: each number is a worker's share of the work. What else a worker needs (where the
tables are, and the storage's options, which may hold secrets) is pickled with the function, and so is in no plan and no
log. Spark's Python data source API does the same with two more processes for each source to plan it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from acktrail.workers.worker_results import PARCELS_ARROW
from acktrail.workers.workers import Work
from acktrail_jobs.session import parallelism

__all__ = ["SparkWorkers", "worker_frame"]


class SparkWorkers:
    """The workers of a session (``acktrail.workers.workers.Workers``)."""

    in_this_process: bool = False

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def count(self) -> int:
        """How many tasks run at once."""
        return parallelism(self._session)

    def run(self, shares: Sequence[Any], work: Work) -> Iterator[pa.RecordBatch]:
        """What `work` gives for all `shares`, in their order. One Spark job; none where there are no shares."""
        if shares:
            yield from worker_frame(self._session, PARCELS_ARROW, shares, work).toArrow().to_batches()


def worker_frame(spark: SparkSession, schema: pa.Schema, shares: Sequence[Any], read: Work) -> DataFrame:
    """A DataFrame with columns of `schema` and one Spark partition a share, which a worker fills with `read(share)`."""

    def read_shares(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(shares[number])

    numbers = spark.range(len(shares), numPartitions=max(1, len(shares)))
    return numbers.mapInArrow(read_shares, from_arrow_schema(schema))
