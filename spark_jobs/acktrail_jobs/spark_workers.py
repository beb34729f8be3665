"""Spark's Python workers: each gets the address of what to read, reduces it there, and hands Spark what is left.

A DataFrame of numbers is mapped: each number is a worker's share of the work. What else a worker needs (where the
tables are, and the storage's options, which may hold secrets) is pickled with the function, and so is in no plan and no
log. Spark's Python data source API does the same with two more processes for each source to plan it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from acktrail.workers import Results, Work
from acktrail_jobs.session import parallelism

_ENCODED: Final = pa.schema([pa.field("kind", pa.string()), pa.field("stream", pa.binary())])
"""Results as Arrow streams: the JVM carries opaque bytes and reads no row."""
_ROWS_AT_ONCE: Final = 65_536
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")


class SparkWorkers:
    """The workers of a session (``acktrail.workers.Workers``)."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def count(self) -> int:
        """How many tasks run at once."""
        return parallelism(self._session)

    def run(self, shares: Sequence[Any], work: Work) -> Results:
        """The results of `work` for all `shares`, in their order. One Spark job; none where there are no shares."""
        if not shares:
            return
        rows = worker_frame(self._session, _ENCODED, shares, partial(_encoded, work)).toArrow()
        for kind, stream in zip(*(rows[name].to_pylist() for name in _ENCODED.names), strict=True):
            yield kind, pa.ipc.open_stream(stream).read_all()


def worker_frame(
    spark: SparkSession, schema: pa.Schema, shares: Sequence[Any], read: Callable[[Any], Iterator[pa.RecordBatch]]
) -> DataFrame:
    """A DataFrame with columns of `schema` and one Spark partition a share, which a worker fills with `read(share)`."""

    def read_shares(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(shares[number])

    numbers = spark.range(len(shares), numPartitions=max(1, len(shares)))
    return numbers.mapInArrow(read_shares, from_arrow_schema(schema))


def _encoded(work: Work, share: Any) -> Iterator[pa.RecordBatch]:
    """The results of `work` for `share` as rows of ``_ENCODED``, a limited number of rows at a time; none for none."""
    for kind, rows in work(share):
        for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
                writer.write_table(rows.slice(first, _ROWS_AT_ONCE))
            yield pa.RecordBatch.from_pydict(
                {"kind": [kind], "stream": [sink.getvalue().to_pybytes()]}, schema=_ENCODED
            )
