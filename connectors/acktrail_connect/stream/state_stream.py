"""The state topic into the tables by Spark's Structured Streaming, exactly once: executors read and write, the driver
commits.

A row of the source is a partition and how far it shall be read in a micro-batch, so that no record travels through the
JVM. A task begins where the tables end, reads its partitions as the Connect worker does, and writes data files of
``state_records``. What it covered goes to the driver, which makes one commit of it, with the positions, the rows of
``export_ranges``, and the number of the micro-batch under the id of the query. So a worker, an export and a stream
continue each other, in any order. Between executors and driver travels what a file is called and what it covers, never
a row. A file that is not committed is no part of the table: its writer was killed, or did the work a second time.
``acktrail tables maintain`` removes it. Spark's checkpoint has the number of the batch and how far it reaches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import asdict, dataclass, replace
from functools import partial
from threading import Event
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from acktrail import errors
from acktrail.activity import doing
from acktrail.backoff import Outage
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import AcktrailError, LeaseLost, OutcomeUnknown, RetryableError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.log_reader import StateTopic
from acktrail.model.log_positions import LogSpan, SourcePartition, state_source_partition
from acktrail.model.share_partition import STATE_TOPIC
from acktrail.tables.cluster_check import OWN_DIALECT, create_records_for
from acktrail.tables.delta.delta_log_writer import WRITTEN_FILES, write_data_file
from acktrail.tables.delta.store import Tables
from acktrail.tables.records.export_ranges import TableLogs
from acktrail.times import new_run_id
from acktrail_connect.contract import SinkTask
from acktrail_connect.export.export_run import ExportRun, Written
from acktrail_connect.sinks.delta_sink import placed
from acktrail_connect.sinks.writer_lease import WorkerLease
from acktrail_connect.source_batches import Commit, SourceBatch
from acktrail_connect.sources.state_source import StateTask
from acktrail_connect.task_execution import TaskExecution
from acktrail_jobs.pieces import balanced_pieces
from acktrail_jobs.session import parallelism

_LOOK_S: Final = 1
_FORESEEN: Final = re.compile(r"acktrail\.errors\.(\w+): (.*\S)")
"""How an error reads at the end of a traceback of another process."""
STREAM_NAME: Final = "share_group_state"
ENDS: Final = pa.schema([pa.field("state_partition", pa.int32()), pa.field("end_offset", pa.int64())])
_NUMBERS: Final = (
    *("partition", "first_offset", "last_offset", "records", "quarantined", "log_start_offset", "log_end_offset"),
    *("gap_first", "gap_last", "offset_shift", "leader_epoch", "last_fingerprint"),
)
_TEXTS: Final = ("topic_id", "gap_reason")
_SPANS: Final = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in (*_NUMBERS, "position")),
        *(pa.field(name, pa.string()) for name in _TEXTS),
    ]
)
WRITTEN: Final = pa.schema([*_SPANS, *WRITTEN_FILES])
"""A row is a span of a log (``acktrail.model.log_positions.LogSpan``) with the position behind it, or a data file."""
_LEAST_OF_A_TASK: Final = 50_000
"""Fewer records are read by one task, and are one file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """What is read into which tables. `tasks`: how many work at once. `most`: how many offsets a micro-batch has at
    most, in all partitions. `run_id` is that of the records; `start_id` differs from start to start, so that each
    begins with a micro-batch: the tables may be those of before the last one."""

    kafka: KafkaConfig
    tables: TablesConfig
    run_id: str
    start_id: str = ""
    tasks: int = 1
    most: int = 1_000_000

    def backlog(self) -> tuple[dict[str, Any], dict[int, tuple[int, int]]]:
        """The state topic (`cluster_id` and `topic_id`, empty: there is none), and by partition Kafka's next offset
        that the tables lack, pruned or not, with where the log ends. Raises ForeignCluster (the tables are of another
        incarnation of the topic), NotAuthorized (READ on the topic is missing), Unreachable, RetryableError, and as
        ``Tables.snapshot``."""
        with ShareGroupAdmin(self.kafka) as admin:
            topic = StateTopic(admin, STATE_TOPIC)
            topic_id = topic.topic_id if topic.is_present else ""
            logs = topic.log_offsets() if topic_id else {}
        tables = Tables(self.tables)
        tables.begin()
        stored = TableLogs(tables, tables.snapshot("state_records"))
        stored.check_state_topic(topic_id or None)
        found = {}
        for number, log in logs.items():
            name = state_source_partition(topic.cluster_id, topic_id, number)
            position = (stored.position(name) or 0) - stored.stored_log(name, number).offset_shift
            found[number] = position, log.last_stable_offset or 0
        return {"cluster_id": topic.cluster_id, "topic_id": topic_id}, found

    def prepare(self) -> None:
        """Make ``state_records`` where it is missing and the topic has records: a file without a log beside it is a
        damaged table. Raises as ``backlog``."""
        tables = Tables(self.tables)
        tables.begin()
        if not tables.exists("state_records"):
            topic, logs = self.backlog()
            if any(end for _, end in logs.values()):
                create_records_for(tables, topic["cluster_id"], topic["topic_id"], OWN_DIALECT)


def state_stream(plan: StreamPlan) -> type[DataSource]:
    """The data source ``share_group_state`` of `plan`, which may hold secrets: it travels with the class, and is in no
    option of a query."""

    class ShareGroupState(DataSource):
        @classmethod
        def name(cls) -> str:
            return STREAM_NAME

        def schema(self) -> StructType:
            return from_arrow_schema(ENDS)

        def streamReader(self, schema: StructType) -> StateStreamReader:  # noqa: ARG002, N802  # Spark's signature
            return StateStreamReader(plan)

    return ShareGroupState


class StateStreamReader(DataSourceStreamReader):
    """Plans micro-batches on the driver. An offset is an object of JSON: the topic, and `partitions` with the end of
    the batch by partition. Raises (methods of the driver): as ``StreamPlan.backlog``."""

    def __init__(self, plan: StreamPlan) -> None:
        self._plan = plan
        self._begins: Mapping[int, int] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # as all below: names that Spark calls
        return {}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802  # the form that every release of PySpark 4 calls
        topic, logs = self._plan.backlog()
        self._begins = {number: begin for number, (begin, _) in logs.items()}
        ends = limited(self._begins, {number: end for number, (_, end) in logs.items()}, self._plan.most)
        return {"start": self._plan.start_id, **topic, "partitions": {str(number): ends[number] for number in logs}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002  # Spark's
        """One task a share of the partitions, of about the same number of offsets each; at least one."""
        ends = {int(number): offset for number, offset in end["partitions"].items()}
        waiting = {number: max(0, offset - self._begins.get(number, 0)) for number, offset in ends.items()}
        count = min(self._plan.tasks, 1 + sum(waiting.values()) // _LEAST_OF_A_TASK)
        return list(map(InputPartition, balanced_pieces(ends.items(), lambda item: waiting[item[0]], count) or [()]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The ends of one task's partitions."""
        numbers, offsets = zip(*partition.value, strict=True) if partition.value else ((), ())
        yield pa.RecordBatch.from_pydict(dict(zip(ENDS.names, (numbers, offsets), strict=True)), schema=ENDS)


def limited(begins: Mapping[int, int], ends: Mapping[int, int], most: int) -> dict[int, int]:
    """`ends` moved back so that all partitions together have at most `most` offsets: small backlogs are read whole,
    large ones get equal shares of the rest.

    >>> limited({0: 5}, {0: 100, 1: 3}, 13)
    {1: 3, 0: 15}
    """
    found: dict[int, int] = {}
    by_backlog = sorted(ends, key=lambda each: ends[each] - begins.get(each, 0))
    for left, number in zip(range(len(by_backlog), 0, -1), by_backlog, strict=True):
        begin = begins.get(number, 0)
        taken = min(ends[number] - begin, -(-most // left))
        found[number], most = begin + taken, most - max(0, taken)
    return found


@dataclass(slots=True, kw_only=True)
class TableStream:
    """Streams `plan` as part of `run` while it holds `lease`. `checkpoint` is a location of Spark's; without it nothing
    is lost: the tables have the positions."""

    run: ExportRun
    plan: StreamPlan
    checkpoint: str
    lease: WorkerLease
    stop: Event
    _failure: AcktrailError | None = None
    _landed: Callable[[], None] = lambda: None

    def drain(self, session: Callable[[], SparkSession]) -> None:
        """Up to where the logs end now. Where the tables end there, no `session` is asked for: this process compares
        the logs with the stored records. Use ``run.open`` first.

        Raises LeaseLost (a worker or another stream has the lease), and as ``ExportRun.read_state``.
        """
        topic, logs = self.plan.backlog()
        self.run.is_topic_absent = not topic["topic_id"]
        left, before = sum(abs(end - begin) for begin, end in logs.values()), -1
        if logs and not left:  # another log may end at the same offset
            self._hold()
            self.run.read_state()
        while left and left != before and not self.stop.is_set():
            self._follow(session, {"availableNow": True})
            before, begins = left, {number: begin for number, (begin, _) in self.plan.backlog()[1].items()}
            left = sum(max(0, end - begins.get(number, 0)) for number, (_, end) in logs.items())

    def keep_up(self, session: Callable[[], SparkSession], every_s: float) -> None:
        """A micro-batch every `every_s` seconds where there are new records, until the stop; another holder of the
        lease and an outage of broker or storage are waited for, with a line when that begins and one when it ends.
        Raises what a person must correct."""
        outage = Outage(lambda _, text: doing(f"stream {text}", stays=True))
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
                f"{self.lease.holder} exports into these tables",
                hint="only one exporter works at a time: stop that one, or do not start the stream",
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


class DataFileSink(SinkTask):
    """Writes batches of logs, continued where ``state_records`` ends now, as data files that are not committed. The
    table is there. Raises as ``Tables.snapshot``."""

    def __init__(self, tables: Tables) -> None:
        self._place = tables.place("state_records")
        self._logs = TableLogs(tables, tables.snapshot("state_records"))
        self._records: list[pa.Table] = []
        self._spans: list[dict[str, Any]] = []
        self._files = [WRITTEN_FILES.empty_table()]

    def position(self, source_partition: SourcePartition) -> int | None:
        return self._logs.position(source_partition)

    @property
    def stored(self) -> TableLogs:
        return self._logs

    @property
    def pending_rows(self) -> int:
        return sum(rows.num_rows for rows in self._records)

    def put(self, batch: SourceBatch) -> None:
        assert batch.span is not None
        self._records.append(batch.rows["state_records"])
        self._spans.append({**asdict(batch.span), "position": batch.position})

    def flush(self) -> Commit:
        """One file of everything put so far; nothing is committed."""
        rows, self._records = placed(self._records), []
        with self._place.translated():
            self._files.append(write_data_file(self._place, rows))
        return Commit(rows={})

    @property
    def written(self) -> pa.Table:
        """Spans in the order of their offsets, and files (``WRITTEN``)."""
        spans = pa.Table.from_pylist(self._spans, schema=_SPANS)
        return pa.concat_tables([WRITTEN.empty_table(), spans, *self._files], promote_options="default")


def written_records(written: pa.Table, cluster_id: str) -> tuple[list[SourceBatch], pa.Table]:
    """The spans in `written` (``WRITTEN``) as batches without rows, and the files (``WRITTEN_FILES``)."""
    batches = [
        SourceBatch(
            source_partition=state_source_partition(cluster_id, row["topic_id"], row["partition"]),
            rows={},
            position=row["position"],
            span=LogSpan(**{name: row[name] for name in (*_NUMBERS, *_TEXTS)}),
        )
        for row in written.filter(written["path"].is_null()).to_pylist()
    ]
    return batches, written.filter(written["path"].is_valid()).select(WRITTEN_FILES.names)


def foreseen(error: Exception) -> AcktrailError | None:
    """The error of acktrail's that another process of Spark raised, by the text of `error`; None: it was none."""
    for kind, message in _FORESEEN.findall(str(error))[-1:]:
        raised: AcktrailError = Exception.__new__(getattr(errors, kind), message)
        raised.message, raised.hint, raised.data = message, "", {}
        return raised
    return None
