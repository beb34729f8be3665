"""A source over the tables: workers get the address of what to read, reduce it there, and hand Spark what is left.

A source is a range of numbers, mapped: each number is a worker's share of the work. What else a worker needs (where the
tables are, and the storage's options, which may hold secrets) travels pickled with the function, and so is in no plan
and no log. Spark's Python data source API would do the same with two more processes for each source to plan it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

__all__ = ["shares_frame"]


def shares_frame(
    spark: SparkSession, schema: StructType, shares: Sequence[Any], read: Callable[[Any], Iterator[pa.RecordBatch]]
) -> DataFrame:
    """A DataFrame of one Spark partition a share, which a worker gets by calling `read` with it."""

    def read_shares(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(shares[number])

    return spark.range(len(shares), numPartitions=max(1, len(shares))).mapInArrow(read_shares, schema)
