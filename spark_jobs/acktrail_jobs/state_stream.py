"""The records of the state topic as a streaming source of Spark, for clusters whose logs one process cannot follow.

::

    spark.dataSource.register(ShareGroupState)
    spark.readStream.format("share_group_state").option("kafka.bootstrap.servers", "broker-1:9092").load()

Spark's checkpoint has the position: cluster, topic id and the next offset of each partition. A micro-batch has one task
for each partition with new records, which reads its offsets by itself; repeated, it gives the same records, or reports
that they were pruned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from acktrail.broker.client.kafka_keys import KAFKA_KEYS, kafka_config
from acktrail.broker.state.state_range import Incarnation, PrunedOffsets, StateRange, read_range, state_topic_now
from acktrail.columnar.schemas.table_schemas import EXPORT_RANGES, STATE_RECORDS
from acktrail.connect.config_def import ConfigDef, ConfigKey, OneOf
from acktrail.connect.config_values import ConfigType
from acktrail.connect.source_batches import PRUNED
from acktrail.errors import ConfigurationError, ForeignCluster
from acktrail.model.share_partition import STATE_TOPIC

_START: Final = "startingOffsets"
_GAPS: Final = "gaps"
_MOST: Final = "maxOffsetsPerTrigger"
_RUN: Final = "runId"


def _at_least_one(_name: str, value: Any) -> None:
    if value is not None and value < 1:
        raise ValueError("Value must be at least 1")


STREAM_KEYS: Final = KAFKA_KEYS.with_keys(
    ConfigDef(
        [
            ConfigKey(
                name=_START,
                type=ConfigType.STRING,
                default="earliest",
                validator=OneOf(("earliest", "latest")),
                documentation="Where a query without a checkpoint begins.",
                group="Stream",
            ),
            ConfigKey(
                name=_GAPS,
                type=ConfigType.STRING,
                default="fail",
                validator=OneOf(("fail", "rows")),
                documentation="What becomes of offsets that were pruned before they were read: the query fails, or "
                "they are a row with gap_first, gap_last and gap_reason, columns that the stream has then.",
                group="Stream",
            ),
            ConfigKey(
                name=_MOST,
                type=ConfigType.LONG,
                default=None,
                validator=_at_least_one,
                documentation="How many offsets a micro-batch has at most, in all partitions.",
                group="Stream",
            ),
            ConfigKey(
                name=_RUN,
                type=ConfigType.STRING,
                default=None,
                documentation="What the column run_id says; it is null otherwise.",
                group="Stream",
            ),
        ]
    )
)
"""The options of the stream."""
_GAP_COLUMNS: Final = ("gap_first", "gap_last", "gap_reason")


class ShareGroupState(DataSource):
    """The format ``share_group_state``: rows of ``state_records``. Spark's Python processes must be able to import
    acktrail."""

    @classmethod
    def name(cls) -> str:
        return "share_group_state"

    def schema(self) -> StructType:
        return from_arrow_schema(_columns(self._config()))

    def streamReader(self, schema: StructType) -> StateStreamReader:  # noqa: ARG002, N802  # Spark's signature
        return StateStreamReader(self._config())

    def _config(self) -> dict[str, Any]:
        """Spark hands over names in small letters. Raises InvalidConfiguration."""
        names = {name.lower(): name for name in STREAM_KEYS.keys}
        return STREAM_KEYS.parse({names.get(name, name): text for name, text in dict(self.options).items()})


class _Part(InputPartition):
    """What one task reads."""

    def __init__(self, wanted: StateRange) -> None:
        super().__init__(wanted)


class StateStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver, and reads parts of them on executors.

    Offsets are objects of JSON with `cluster_id`, `topic_id` (empty: there is no state topic yet) and `partitions`: the
    next offset by partition. Raises (methods of the driver): ForeignCluster: the checkpoint is of another cluster or
    another incarnation of the topic, or a log ends before it; NotAuthorized, Unreachable, RetryableError.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._kafka = kafka_config(config)
        self._starts_at_end, self._most = config[_START] == "latest", config[_MOST]
        self._is_marking, self._run_id = config[_GAPS] == "rows", config[_RUN]
        self._columns = _columns(config)
        self._target: Mapping[str, int] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # as all below: names that Spark calls
        now, logs = state_topic_now(self._kafka)
        ends = self._starts_at_end
        offsets = {str(n): (log.last_stable_offset if ends else log.log_start_offset) or 0 for n, log in logs.items()}
        return _offset(now, offsets)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        now, ends = self._ends()
        _incarnation(start).check(now)
        begins: Mapping[str, int] = start["partitions"]
        for number, begin in begins.items():
            end = ends.get(number, 0)
            if end < begin:
                raise ForeignCluster(
                    f"partition {number} of {STATE_TOPIC} ends at {end}, before the offset {begin} of the checkpoint",
                    hint="its log was truncated: begin with a checkpoint of its own",
                    data={"partition": int(number), "offset": begin, "log_end_offset": end},
                )
        if self._target is not None:
            ends = {each: max(begins.get(each, 0), min(end, self._target.get(each, 0))) for each, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            ends = limited(begins, ends, limit.max_rows)
        return _offset(now, ends)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends()[1]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        _incarnation(start).check(_incarnation(end))
        begins, ends = start["partitions"], end["partitions"]
        ranges = [
            StateRange(
                incarnation=_incarnation(end),
                partition=int(number),
                first_offset=begins.get(number, 0),
                end_offset=ends[number],
            )
            for number in sorted(ends, key=int)
        ]
        return [_Part(each) for each in ranges if each.first_offset < each.end_offset]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises ConfigurationError: offsets were pruned, and the query fails for that; else as ``read_range``."""
        wanted: StateRange = partition.value
        schema = to_arrow_schema(from_arrow_schema(self._columns), timezone="UTC")
        for part in read_range(self._kafka, wanted, run_id=self._run_id):
            rows = self._gap(wanted, part) if isinstance(part, PrunedOffsets) else part
            for name in self._columns.names[rows.num_columns :]:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, self._columns.field(name).type))
            yield from rows.cast(schema).combine_chunks().to_batches()

    def _gap(self, wanted: StateRange, gap: PrunedOffsets) -> pa.Table:
        if not self._is_marking:
            raise ConfigurationError(
                f"offsets {gap.first_offset} to {gap.last_offset} of partition {wanted.partition} of {STATE_TOPIC} "
                "were pruned before they were read",
                hint="with the option gaps=rows they become a row, and the query continues behind them",
                data={"partition": wanted.partition, "gap_first": gap.first_offset, "gap_last": gap.last_offset},
            )
        row = {
            "cluster_id": wanted.incarnation.cluster_id,
            "run_id": self._run_id,
            "state_partition": wanted.partition,
            **dict(zip(_GAP_COLUMNS, (*gap, PRUNED), strict=True)),
        }
        return pa.Table.from_pylist([row], schema=self._columns)

    def _ends(self) -> tuple[Incarnation, dict[str, int]]:
        now, logs = state_topic_now(self._kafka)
        return now, {str(number): log.last_stable_offset or 0 for number, log in logs.items()}


def limited(begins: Mapping[str, int], ends: Mapping[str, int], most: int) -> dict[str, int]:
    """`ends` moved back so that all partitions together have at most `most` offsets: small backlogs are read whole,
    large ones get equal shares of the rest.

    >>> limited({"0": 5}, {"0": 100, "1": 3}, 13)
    {'1': 3, '0': 15}
    """
    found: dict[str, int] = {}
    by_backlog = sorted(ends, key=lambda each: ends[each] - begins.get(each, 0))
    for left, number in zip(range(len(by_backlog), 0, -1), by_backlog, strict=True):
        begin = begins.get(number, 0)
        taken = min(ends[number] - begin, -(-most // left))
        found[number], most = begin + taken, most - taken
    return found


def _columns(config: Mapping[str, Any]) -> pa.Schema:
    if config[_GAPS] == "fail":
        return STATE_RECORDS
    return pa.schema([*STATE_RECORDS, *(EXPORT_RANGES.field(name) for name in _GAP_COLUMNS)])


def _offset(now: Incarnation, offsets: Mapping[str, int]) -> dict[str, Any]:
    return {"cluster_id": now.cluster_id, "topic_id": now.topic_id, "partitions": dict(offsets)}


def _incarnation(offset: Mapping[str, Any]) -> Incarnation:
    return Incarnation(offset["cluster_id"], offset["topic_id"])
