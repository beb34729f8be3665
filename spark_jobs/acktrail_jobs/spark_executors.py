"""Spark's executors: each gets the address of what to read, works on it there, and hands Spark typed rows.

A DataFrame of numbers is mapped: each number is a share of the work. What else an executor needs (where the tables are,
and the storage's options, which may hold secrets) is pickled with the function, and so is in no plan and no log. State
records do not travel through the JVM: results do, as a column of structs for each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from acktrail.executors import GROUP, GroupWork, JobStep, Results, Work
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

    def run(self, step: JobStep, shares: Sequence[Any], work: Work) -> dict[str, pa.Table]:
        """One Spark job; none where there are no shares."""
        if not shares:
            return step.gathered(iter(()))
        frame = share_frame(self._session, _structs(step), shares, partial(_as_structs, step, work))
        return self._gathered(step, frame)

    def run_grouped(
        self, first: JobStep, shares: Sequence[Any], work: Work, then: JobStep, groups: int, group_work: GroupWork
    ) -> dict[str, pa.Table]:
        """One Spark job: rows are exchanged by their group."""
        (schema,) = first.kinds.values()
        rows = share_frame(self._session, schema, shares, partial(_rows_alone, work))
        numbers = self._session.range(groups, numPartitions=1).select(
            *(
                (f.col("id").cast("int") if each.name == GROUP else f.lit(None).cast(each.dataType)).alias(each.name)
                for each in from_arrow_schema(schema)
            )
        )
        kinds = from_arrow_schema(_structs(then))
        frame = rows.unionByName(numbers).groupBy(GROUP).applyInArrow(_grouped(then, group_work), kinds)
        both = JobStep(name=f"{first.name}, {then.name}", kinds=then.kinds)
        return self._gathered(both, frame)

    def _gathered(self, step: JobStep, frame: DataFrame) -> dict[str, pa.Table]:
        with described(self._session, step.name, self._run_id):
            rows = frame.toArrow()
        return step.gathered(_of_structs(step, rows))


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


def share_frame(
    spark: SparkSession, schema: pa.Schema, shares: Sequence[Any], read: Callable[[Any], Iterator[pa.RecordBatch]]
) -> DataFrame:
    """A DataFrame with columns of `schema` and one Spark partition a share, which an executor fills with
    `read(share)`."""

    def read_shares(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(shares[number])

    numbers = spark.range(len(shares), numPartitions=max(1, len(shares)))
    return numbers.mapInArrow(read_shares, from_arrow_schema(schema))


def _structs(step: JobStep) -> pa.Schema:
    """A column of structs for each kind: a row has one of them."""
    return pa.schema([pa.field(kind, pa.struct(list(_plain(schema)))) for kind, schema in step.kinds.items()])


def _plain(schema: pa.Schema) -> pa.Schema:
    """`schema` without dictionaries, which Spark does not know."""
    kinds = (field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema)
    return pa.schema(list(zip(schema.names, kinds, strict=True)))


def _as_structs(step: JobStep, work: Work, share: Any) -> Iterator[pa.RecordBatch]:
    """The results of `work` for `share`, a limited number of rows at a time."""
    schema = _structs(step)
    for kind, rows in work(share):
        own = _plain(step.kinds[kind])
        for batch in rows.select(own.names).cast(own).to_batches(max_chunksize=_ROWS_AT_ONCE):
            struct = pa.StructArray.from_arrays(batch.columns, fields=list(own))
            columns = [
                struct if name == kind else pa.nulls(len(struct), schema.field(name).type) for name in step.kinds
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _grouped(step: JobStep, work: GroupWork) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    """For ``applyInArrow``, which reads the hints of what it gets."""

    def work_on(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        own = rows.filter(rows[rows.column_names[0]].is_valid())  # one row only says that there is such a group
        results = _as_structs(step, lambda number: work(number, own), key[0].as_py())
        return pa.Table.from_batches(results, schema=_structs(step))

    return work_on


def _rows_alone(work: Work, share: Any) -> Iterator[pa.RecordBatch]:
    return (batch for _, rows in work(share) for batch in rows.to_batches(max_chunksize=_ROWS_AT_ONCE))


def _of_structs(step: JobStep, rows: pa.Table) -> Results:
    """Each kind's rows out of its column, with the types of the step: Spark has fewer."""
    for kind, schema in step.kinds.items():
        column = rows[kind]
        yield kind, pa.Table.from_arrays(column.filter(column.is_valid()).flatten(), names=schema.names).cast(schema)
