"""The state topic as a streaming source of Spark: a micro-batch is how far each partition shall be read.

A row is a partition and an offset, so that no record travels through the JVM: the sink (``stream_tables``) reads the
records where it writes them. A position is where the tables end, and nowhere else: records and positions are one commit
there, also those of a worker or of ``acktrail run export``. Spark's checkpoint has the number of the batch and how far
it reaches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.connect.source_batches import state_source_partition
from acktrail.executors import balanced_shares
from acktrail.kafka.state.state_range import state_topic_now
from acktrail.tables.cluster_check import OWN_DIALECT, create_records_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.stored_log import TableLogs

STREAM_NAME: Final = "share_group_state"
ENDS: Final = pa.schema([pa.field("state_partition", pa.int32()), pa.field("end_offset", pa.int64())])
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
        now, logs = state_topic_now(self.kafka)
        tables = Tables(self.tables)
        stored = TableLogs(tables, tables.snapshot("state_records"))
        stored.check_state_topic(now.topic_id or None)
        found = {}
        for number, log in logs.items():
            name = state_source_partition(now.cluster_id, now.topic_id, number)
            position = (stored.position(name) or 0) - stored.stored_log(name, number).offset_shift
            found[number] = position, log.last_stable_offset or 0
        return now._asdict(), found

    def prepare(self) -> None:
        """Make ``state_records`` where it is missing and the topic has records: a file without a log beside it is a
        damaged table. Raises as ``backlog``."""
        tables = Tables(self.tables)
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
        return list(map(InputPartition, balanced_shares(ends.items(), lambda item: waiting[item[0]], count) or [()]))

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
