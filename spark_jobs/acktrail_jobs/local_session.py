"""What the jobs use of a Spark session, for a process without Java: a frame is an Arrow table, and nothing is lazy.

The same functions make the same rows (tests hold both to the same tables). It is for tests, for machines without Java,
and for few records: the names are PySpark's, so that a job reads as it does on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class LocalSession:
    """``SparkSession``, as far as the jobs use it."""

    def range(self, end: int, numPartitions: int = 1) -> LocalFrame:  # noqa: ARG002  # PySpark's name
        return LocalFrame(pa.table({"id": pa.array(range(end), pa.int64())}))


class LocalFrame:
    """``DataFrame``, and what its ``groupBy`` gives. `schema` is Arrow's."""

    def __init__(self, rows: pa.Table, grouped_by: str = "", beside: pa.Table | None = None) -> None:
        self._rows, self._by, self._beside = rows, grouped_by, beside

    def toArrow(self) -> pa.Table:
        return self._rows

    def mapInArrow(
        self, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: pa.Schema
    ) -> LocalFrame:
        return LocalFrame(pa.Table.from_batches(function(self._rows.to_batches()), schema))

    def groupBy(self, column: str) -> LocalFrame:
        return LocalFrame(self._rows, column)

    def cogroup(self, other: LocalFrame) -> LocalFrame:
        return LocalFrame(self._rows, self._by, other.toArrow())

    def applyInArrow(self, function: Callable[[Any, pa.Table, pa.Table], pa.Table], schema: pa.Schema) -> LocalFrame:
        assert self._beside is not None
        sides, by = (self._rows, self._beside), self._by
        keys = sorted({key for rows in sides for key in pc.unique(rows[by]).to_pylist()})
        own = ((pa.scalar(key), *(rows.filter(pc.field(by) == key) for rows in sides)) for key in keys)
        return LocalFrame(pa.concat_tables([schema.empty_table(), *(function((k,), *both) for k, *both in own)]))
