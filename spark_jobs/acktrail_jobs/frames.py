"""DataFrames of the jobs: each row is made by an executor, from a piece of the tables.

State records do not travel through the JVM (they would cost 3 to 12 times as much): an executor gets the address of a
piece, reads it with acktrail's own reader, replays it there and hands Spark typed rows. From there on all is Spark's::

    states = frame_of(spark, [(0, 1), (2,)], replayed, STATES)     two Spark partitions: state partitions 0 and 1, and 2
    states.groupBy(BUCKET).cogroup(...).applyInArrow(...)          rows are exchanged and judged
    collected(spark, "replay and judge", verdicts, VERDICTS)       one job with that name in Spark's pages

What a function needs besides (where the tables are, and the storage's options, which may hold secrets) is pickled with
it, and so is in no plan and no log.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail_jobs.local_session import LocalSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS_AT_ONCE: Final = 65_536
_C: Final = ctypes.CDLL(None)
RowsOf = Callable[[Any], Iterator[pa.Table]]
"""The rows that an executor makes of a piece."""


class JobSession:
    """The session that a run's jobs are done in, opened with the first of them: Spark's, or this process."""

    def __init__(self, open_session: Callable[[], SparkSession | LocalSession], run_id: str = "") -> None:
        self._open, self.run_id = open_session, run_id
        self._is_open = False

    @cached_property
    def session(self) -> SparkSession | LocalSession:
        """The session of Spark, opened when it is first asked for. Raises as ``spark_session``."""
        opened = self._open()
        self._is_open = True
        return opened

    @property
    def place(self) -> str | None:
        """Where the work was done, for people; None: there was none."""
        if not self._is_open:
            return None
        if isinstance(self.session, LocalSession):
            return "this process"
        from acktrail_jobs.session import SparkPlace

        found = SparkPlace.of(self.session)
        known = (found.application_id and f"application {found.application_id}", found.ui)
        return ", ".join((f"Spark {found.version} on {found.master or 'a server'}", *filter(None, known)))


def in_process() -> JobSession:
    """This process does the work, without Spark."""
    return JobSession(LocalSession)


def frame_of(spark: JobSession, pieces: Sequence[Any], rows_of: RowsOf, schema: pa.Schema) -> DataFrame:
    """The rows that `rows_of` makes of all `pieces`, in the columns of `schema`: one Spark partition a piece."""

    def batches_of(piece: Any) -> Iterator[pa.RecordBatch]:
        for rows in rows_of(piece):
            yield from rows.cast(schema).to_batches(max_chunksize=_ROWS_AT_ONCE)

    def made(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from batches_of(pieces[number])
                release_memory()

    numbers = spark.session.range(len(pieces), numPartitions=max(1, len(pieces)))
    return numbers.mapInArrow(made, columns_of(spark, schema))


def columns_of(spark: JobSession, schema: pa.Schema) -> Any:
    """`schema` as the session's frames take it."""
    if isinstance(spark.session, LocalSession):
        return schema
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def collected(spark: JobSession, name: str, frame: DataFrame, schema: pa.Schema) -> pa.Table:
    """The rows of a frame. `name`: what the job does, as a user of Spark reads it."""
    release_memory()
    with _described(spark, name):
        return frame.toArrow().cast(schema)


def collected_pieces(
    spark: JobSession, name: str, pieces: Sequence[Any], rows_of: RowsOf, schema: pa.Schema
) -> pa.Table:
    """``frame_of`` and ``collected`` for a job that is nothing else; none where there are no pieces."""
    return collected(spark, name, frame_of(spark, pieces, rows_of, schema), schema) if pieces else schema.empty_table()


def list_columns(**tables: pa.Schema) -> pa.Schema:
    """A column for each of `tables`, a list of its rows: a row of the frame is what an executor left of a piece."""
    return pa.schema([pa.field(name, pa.list_(pa.struct(list(own)))) for name, own in tables.items()])


def one_row(schema: pa.Schema, **tables: pa.Table) -> pa.Table:
    """The row of ``list_columns`` that has all rows of `tables`."""
    lists = []
    for field in schema:
        rows = tables[field.name].cast(pa.schema(field.type.value_type.fields)).to_struct_array().combine_chunks()
        lists.append(pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows, type=field.type))
    return pa.table(lists, schema=schema)


def rows_in(found: pa.Table, name: str) -> pa.Table:
    """The rows of all lists in a column of ``list_columns``."""
    kind = found.schema.field(name).type.value_type
    rows = pc.list_flatten(found[name]).combine_chunks()
    return pa.Table.from_struct_array(rows) if len(rows) else pa.schema(kind.fields).empty_table()


def release_memory() -> None:
    """Give the system what Arrow and numpy keep for later: this process waits now, and others need memory."""
    pa.default_memory_pool().release_unused()
    if trim := getattr(_C, "malloc_trim", None):  # only glibc keeps that much, and has it
        trim(0)


@contextmanager
def _described(spark: JobSession, name: str) -> Iterator[None]:
    """The jobs within the block have this name, and the run as their group, in Spark's pages and event log."""
    session, title = spark.session, f"acktrail: {name}{f' ({spark.run_id})' if spark.run_id else ''}"
    if isinstance(session, LocalSession):
        yield
        return
    from acktrail_jobs.session import is_connected

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
    context.setJobGroup(f"acktrail {spark.run_id}".rstrip(), title)
    try:
        yield
    finally:
        for key, text in before.items():
            context.setLocalProperty(key, text)
