"""The state topic into the tables by Spark's Structured Streaming, exactly once: executors read and write, the driver
commits.

A micro-batch names how far each partition shall be read (``state_stream``). A task begins where the tables end, reads
its partitions as the Connect worker does, and writes data files of ``state_records``. What it covered goes to the
driver, which makes one commit of it, with the positions, the rows of ``export_ranges``, and the number of the
micro-batch under the id of the query. So a worker, an export and a stream continue each other, in any order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from acktrail import errors
from acktrail.connect.activity import doing
from acktrail.connect.runtime.connector_config import ErrorPolicy
from acktrail.connect.runtime.outage import Outage
from acktrail.connect.runtime.task_execution import TaskExecution
from acktrail.errors import AcktrailError, LeaseLost, OutcomeUnknown, RetryableError
from acktrail.export.export_run import ExportRun, Written
from acktrail.kafka.state.state_source import StateTask
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.written_records import WRITTEN, DataFileSink, written_records
from acktrail.tables.lease import SinkLease
from acktrail.times import new_run_id
from acktrail_jobs.session import parallelism
from acktrail_jobs.state_stream import STREAM_NAME, StreamPlan, state_stream

_LOOK_S: Final = 1
_FORESEEN: Final = re.compile(r"acktrail\.errors\.(\w+): (.*\S)")
"""How an error reads at the end of a traceback of another process."""


@dataclass(slots=True, kw_only=True)
class TableStream:
    """Streams `plan` as part of `run` while it holds `lease`. `checkpoint` is a location of Spark's; without it nothing
    is lost: the tables have the positions."""

    run: ExportRun
    plan: StreamPlan
    checkpoint: str
    lease: SinkLease
    stop: Event
    _failure: AcktrailError | None = None
    _landed: Callable[[], None] = lambda: None

    def drain(self, session: Callable[[], SparkSession]) -> None:
        """Up to where the logs end now; where the tables have that, no `session` is asked for. Use ``run.open`` first.

        Raises LeaseLost (a worker or another stream has the lease), and as ``ExportRun.read_state``.
        """
        topic, logs = self.plan.backlog()
        self.run.is_topic_absent = not topic["topic_id"]
        left, before = sum(abs(end - begin) for begin, end in logs.values()), -1
        while left and left != before and not self.stop.is_set():
            self._follow(session, {"availableNow": True})
            before, begins = left, {number: begin for number, (begin, _) in self.plan.backlog()[1].items()}
            left = sum(max(0, end - begins.get(number, 0)) for number, (_, end) in logs.items())

    def keep_up(self, session: Callable[[], SparkSession], every_s: float) -> None:
        """A micro-batch every `every_s` seconds where there are new records, until the stop; another holder of the
        lease and an outage of broker or storage are waited for, with a line when that begins and one when it ends.
        Raises what a person must correct."""
        outage = Outage(ErrorPolicy(), lambda _, text: doing(f"stream {text}", stays=True))
        self._landed = outage.end
        while not self.stop.is_set():
            try:
                with self.run.open():
                    self._follow(session, {"processingTime": f"{round(every_s * 1000)} milliseconds"})
            except (RetryableError, OutcomeUnknown) as error:
                self.stop.wait(outage.begin(error))

    def _follow(self, session: Callable[[], SparkSession], trigger: Mapping[str, Any]) -> None:
        """One query, until it ends or the stop is set. Raises LeaseLost, and what the query failed with."""
        self._hold()
        spark = session()
        plan = replace(self.plan, start_id=new_run_id(), tasks=parallelism(spark))
        spark.dataSource.register(state_stream(plan))
        stream = spark.readStream.format(STREAM_NAME).load().writeStream.trigger(**trigger)
        name, self._failure = f"acktrail run stream {plan.start_id}", None
        mine = copy_context()  # Spark calls on a thread of its own
        stream = stream.queryName(name).foreachBatch(lambda *batch: mine.run(self._write, spark, name, *batch))
        try:
            query = stream.option("checkpointLocation", self.checkpoint).start()
            try:
                while not (query.awaitTermination(_LOOK_S) or self.stop.is_set()):
                    self._hold()
            finally:
                query.stop()
        except PySparkException as error:
            raise self._failure or foreseen(error) or error from error

    def _hold(self) -> None:
        if not self.lease.acquire():
            raise LeaseLost(
                f"{self.lease.holder} exports into these tables", hint="one at a time does: stop it, or let it do that"
            )

    def _write(self, spark: SparkSession, name: str, ends: DataFrame, number: int) -> None:
        """One micro-batch, again from the last commit where another writer came first."""
        query_id = next(str(each.id) for each in spark.streams.active if each.name == name)

        def write(cluster_id: str) -> Written:
            self.plan.prepare()
            try:
                found = ends.mapInArrow(partial(write_share, self.plan), from_arrow_schema(WRITTEN)).toArrow()
            except PySparkException as error:
                raise foreseen(error) or error from error
            return written_records(found, cluster_id)

        try:
            self.run.commit_written(f"stream/{query_id}", number, write)
        except AcktrailError as error:
            self._failure = error
            raise
        self._landed()
        doing(f"{self.run.summary().records_read:,} records committed")


def write_share(plan: StreamPlan, ends: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The work of one task: read the partitions in `ends` (``ENDS``) from where the tables end, and write their data
    files. Gives ``WRITTEN``. Raises as ``StateTask``."""
    wanted = {number: end for batch in ends for number, end in zip(*batch.to_pydict().values(), strict=True)}
    if wanted:
        sink = DataFileSink(Tables(plan.tables))
        source = StateTask(plan.kafka, partitions=wanted, ends=wanted)
        TaskExecution(source, sink, run_id=plan.run_id).run()
        yield from sink.written.to_batches()


def foreseen(error: Exception) -> AcktrailError | None:
    """The error of acktrail's that another process of Spark raised, by the text of `error`; None: it was none."""
    for kind, message in _FORESEEN.findall(str(error))[-1:]:
        raised: AcktrailError = Exception.__new__(getattr(errors, kind), message)
        raised.message, raised.hint, raised.data = message, "", {}
        return raised
    return None
