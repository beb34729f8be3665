"""Spark's executors: each gets the address of what to read, works on it there, and hands Spark typed rows.

A DataFrame of numbers is mapped: each number is a piece of the work. What else an executor needs (where the tables are,
and the storage's options, which may hold secrets) is pickled with the function, and so is in no plan and no log. State
records do not travel through the JVM; what they became does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from acktrail.executors import GROUP, GroupedWork, Work, whole_rows
from acktrail_jobs.session import SparkPlace, is_connected, parallelism

_ROWS_AT_ONCE: Final = 65_536


class SparkExecutors:
    """The executors of a session (``acktrail.executors.Executors``), which is opened with the first work. `run_id`: of
    the run whose jobs they are."""

    def __init__(self, open_session: Callable[[], SparkSession], run_id: str = "") -> None:
        self._open, self._run_id = open_session, run_id

    @cached_property
    def _session(self) -> SparkSession:
        return self._open()

    @property
    def count(self) -> int:
        """How many tasks run at once."""
        return parallelism(self._session)

    @property
    def place(self) -> str | None:
        if "_session" not in self.__dict__:
            return None
        found = SparkPlace.of(self._session)
        known = (found.application_id and f"application {found.application_id}", found.ui)
        return ", ".join((f"Spark {found.version} on {found.master or 'a server'}", *filter(None, known)))

    def run(self, name: str, pieces: Sequence[Any], work: Work, schema: pa.Schema) -> pa.Table:
        """One Spark job; none where there are no pieces."""
        if not pieces:
            return schema.empty_table()
        return self._collected(name, piece_frame(self._session, pieces, work, schema), schema)

    def run_grouped(self, name: str, pieces: Sequence[Any], grouped: GroupedWork, schema: pa.Schema) -> pa.Table:
        """One query: rows are exchanged by their group."""

        def judged(key: tuple[pa.Scalar, ...], rows: pa.Table, _number: pa.Table) -> pa.Table:
            return whole_rows(grouped.judge(key[0].as_py(), rows), schema)

        rows = piece_frame(self._session, pieces, grouped.work, grouped.rows)
        numbers = self._session.range(grouped.groups, numPartitions=1).withColumnRenamed("id", GROUP)
        frame = rows.groupBy(GROUP).cogroup(numbers.groupBy(GROUP)).applyInArrow(judged, from_arrow_schema(schema))
        return self._collected(name, frame, schema)

    def _collected(self, name: str, frame: DataFrame, schema: pa.Schema) -> pa.Table:
        with described(self._session, name, self._run_id):
            return frame.toArrow().cast(schema)


@contextmanager
def described(session: SparkSession, name: str, run_id: str) -> Iterator[None]:
    """The jobs within the block have this name and group in Spark's pages and event log."""
    title = f"acktrail: {name}{f' ({run_id})' if run_id else ''}"
    if is_connected(session):
        tag = title.replace(",", " and")  # which separates tags
        session.addTag(tag)
        try:
            yield
        finally:
            session.removeTag(tag)
        return
    context = session.sparkContext
    before = {key: context.getLocalProperty(key) for key in ("spark.jobGroup.id", "spark.job.description")}
    context.setJobGroup(f"acktrail {run_id}".rstrip(), title)
    try:
        yield
    finally:
        for key, text in before.items():
            context.setLocalProperty(key, text)


def piece_frame(spark: SparkSession, pieces: Sequence[Any], work: Work, schema: pa.Schema) -> DataFrame:
    """A DataFrame with columns of `schema` and one Spark partition a piece, which an executor fills by `work`."""

    def made(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in work(pieces[number]):
                    yield from whole_rows([rows], schema).to_batches(max_chunksize=_ROWS_AT_ONCE)

    return spark.range(len(pieces), numPartitions=max(1, len(pieces))).mapInArrow(made, from_arrow_schema(schema))
