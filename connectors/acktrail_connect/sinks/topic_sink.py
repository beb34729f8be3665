"""``KafkaTopicSink``: rows as JSON records of topics, and the position after them, in one transaction."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Final
from urllib.parse import quote

import pyarrow as pa

from acktrail.errors import ConcurrentCommit, ConfigurationError, InvalidConfiguration, RowsRefused
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.model.log_positions import Position, SourcePartition
from acktrail.text_parsing import parse_json
from acktrail_connect import TRANSACTIONAL_IDS
from acktrail_connect.address_keys import KAFKA_KEYS, kafka_config
from acktrail_connect.config_def import ConfigDef, keys_in
from acktrail_connect.contract import Config, SinkConnector, SinkTask, SinkTaskContext
from acktrail_connect.sinks.target_topics import HeldUp, TargetTopics, TopicPositions, check_topic_name
from acktrail_connect.sinks.transactional_writer import TRANSACTION_S, OutRecord, TransactionalWriter
from acktrail_connect.source_batches import Commit, SourceBatch, parts_of

_FRAME_BYTES: Final = 200
"""More than what frames one record in a batch of its own."""
_SHORT_S: Final = 2.0
"""A writer that lives ends its transaction sooner."""
LONG_S: Final = TRANSACTION_S + 15.0
"""After this the coordinator has aborted every transaction of a writer that died."""
_GAPS: Final = "export_gaps"
_NO_NUMBERS: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_LOOK_S: Final = 15.0
_PARTITIONS, _REPLICATION = "topics.partitions", "topics.replication.factor"
_TOPIC, _PREFIX, _POSITIONS = "topic", "topic.prefix", "positions.topic"
TOPIC_KEYS: Final = KAFKA_KEYS.with_keys(keys_in(__package__, "topic_keys.toml"))


@dataclass(slots=True)
class _Held:
    """What was put of a source partition since its last transaction."""

    position: Position
    records: list[OutRecord] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)


class TopicSinkTask(SinkTask):
    """Writes each source partition in transactions of its own. Not thread-safe.

    A source partition lands as a whole or not at all; several of one flush land one after the other. The first flush of
    a source partition fences the writer before; then its position must still be the one that this task continues.
    """

    def __init__(self, sink: KafkaTopicSink, context: SinkTaskContext) -> None:
        self._sink, self._context = sink, context
        self._positions = sink.positions_of(context.connector)
        self._topics: TargetTopics | None = None
        self._known: dict[SourcePartition, Position] = {}
        self._is_started = self._is_whole = False
        self._limits: dict[str, int] = {}
        self._writers: dict[SourcePartition, TransactionalWriter] = {}
        self._held: dict[SourcePartition, _Held] = {}

    def start(self) -> None:
        """Read the positions. Raises ConfigurationError: the topic of positions is not compacted, or dead letters have
        no topic; NotAuthorized, RetryableError."""
        if self._is_started:
            return
        if self._context.dead_letter_table is not None:
            try:
                check_topic_name(self._dead_letter_topic(self._context.dead_letter_table))
            except RowsRefused as error:
                raise ConfigurationError(f"errors.deadletterqueue.table: {error.message}", hint=error.hint) from error
        self._topics = self._sink.topics_ready_for_positions()
        try:
            self._known, self._is_whole = self._positions.read(_SHORT_S), True
        except HeldUp:
            self._known, self._is_whole = {}, False
        self._is_started = True

    def position(self, source_partition: SourcePartition) -> Position | None:
        """As committed. Where an open transaction hides it, the writer that left it open is fenced: another connector's
        is waited for."""
        self.start()
        if not self._is_whole:
            self._fence(source_partition)
            self._known, self._is_whole = self._positions.read(LONG_S), True
        return self._known.get(source_partition)

    @property
    def pending_rows(self) -> int:
        return sum(held.rows.total() for held in self._held.values())

    def put(self, batch: SourceBatch) -> None:
        """Take a batch. Raises RowsRefused: rows without a position, a row that is too large for its topic or lacks a
        key column, a value or a table's name that Kafka or JSON cannot have. ConfigurationError: a topic is missing."""
        if batch.position is None:
            raise RowsRefused(
                "this source gives no positions, so a restart would write rows to topics twice",
                hint="write them with DeltaSink",
            )
        known, held = self.position(batch.source_partition), self._held.get(batch.source_partition)
        rows, dead = parts_of(batch, self._context.dead_letter_table)
        by_table = {
            table: list(self._records(table, part, self._sink.config["key.columns"])) for table, part in rows.items()
        }
        for table, part in _gaps(batch).items():
            by_table[table] = list(self._records(table, part, ()))
        letters = self._context.dead_letter_table
        if dead is not None and letters is not None:
            by_table[letters] = list(self._dead_letters(letters, dead))
        if not any(by_table.values()) and batch.position == (known if held is None else held.position):
            return
        if held is None:
            held = self._held[batch.source_partition] = _Held(batch.position)
        held.position = parse_json(json.dumps(batch.position))
        for table, records in by_table.items():
            held.records += records
            held.rows[table] += len(records)

    def flush(self) -> Commit:
        """One transaction for each source partition."""
        held, self._held = self._held, {}
        rows: Counter[str] = Counter()
        try:
            self._become_writer_of([each for each in held if each not in self._writers])
            for source_partition, each in held.items():
                position = self._positions.record(source_partition, each.position)
                self._writers[source_partition].write([*each.records, position])
                each.records.clear()
                self._known[source_partition] = each.position
                rows += each.rows
        except BaseException:  # only the cluster knows what landed
            self.stop()
            raise
        return Commit(rows=rows, positions={source_partition: each.position for source_partition, each in held.items()})

    def stop(self) -> None:
        writers, self._writers = self._writers, {}
        self._held, self._known, self._is_started, self._is_whole = {}, {}, False, False
        for writer in writers.values():
            writer.close()

    def _become_writer_of(self, source_partitions: Sequence[SourcePartition]) -> None:
        """Raises ConcurrentCommit when another writer moved one of the positions."""
        if not source_partitions:
            return
        for each in source_partitions:
            self._fence(each)
        found = self._positions.read(LONG_S)
        for each in source_partitions:
            if found.get(each) != self._known.get(each):
                raise ConcurrentCommit(
                    f"another writer changed the position of {each} first; this commit was not written",
                    hint="run this connector on only one worker at a time",
                    data={"source_partition": str(each), "expected": self._known.get(each), "found": found.get(each)},
                )

    def _fence(self, source_partition: SourcePartition) -> None:
        if source_partition not in self._writers:
            most = min(self._limits.values(), default=1_000_000) - _FRAME_BYTES
            writer = self._sink.writer(self._context.connector, source_partition, most)
            self._writers[source_partition] = writer
            writer.fence()

    def _limit(self, topic: str) -> int:
        """The most bytes of a record in `topic`. A smaller limit than before needs writers of smaller batches."""
        if topic not in self._limits:
            before = min(self._limits.values(), default=0)
            topics, config = self._topics or TargetTopics(self._sink.kafka), self._sink.config
            self._limits[topic] = topics.ready(topic, config[_PARTITIONS], config[_REPLICATION])
            if self._limits[topic] < before:
                writers, self._writers = self._writers, {}
                for writer in writers.values():
                    writer.close()
        return self._limits[topic] - _FRAME_BYTES

    def _records(self, table: str, rows: pa.Table, keys: Sequence[str]) -> Iterator[OutRecord]:
        if not rows.num_rows:
            return
        topic = self._sink.topic_of(table)
        limit, headers = self._limit(topic), (("table", table.encode()),)
        missing = [name for name in keys if name not in rows.column_names]
        if missing or len(set(rows.column_names)) != len(rows.column_names):
            raise RowsRefused(
                f"rows of {table} do not have the key columns {missing}, or have two columns of the same name"
            )
        try:
            for number, row in enumerate(json_rows(rows)):
                key = _json({name: row[name] for name in keys}) if keys else None
                record = OutRecord(topic, key, _json(row), headers)
                if record.size_bytes > limit:
                    raise RowsRefused(
                        f"row {number} of {table} is a record of {record.size_bytes} bytes; {topic} accepts {limit}",
                        hint="raise max.message.bytes of the topic",
                        data={"table": table, "row": number, "bytes": record.size_bytes},
                    )
                yield record
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise RowsRefused(f"rows of {table} have a value that is not JSON: {error}") from error

    def _dead_letter_topic(self, table: str) -> str:
        return f"{self._sink.config[_PREFIX] or ''}{table}"

    def _dead_letters(self, table: str, rows: pa.Table) -> Iterator[OutRecord]:
        """Letters whose content is too large for a record keep its beginning; the row is where its address says."""
        topic = self._dead_letter_topic(table)
        limit = self._limit(topic)
        for row in json_rows(rows):
            record = OutRecord(topic, None, _json(row), (("table", table.encode()),))
            if record.size_bytes > limit:
                half = max(0, limit // 2 - len(_json({**row, "content": ""})))
                cut = row["content"].encode()[: half // 3].decode(errors="ignore")
                value = _json({**row, "content": cut, "reason": f"{row['reason']} (content is cut)"})
                record = OutRecord(topic, None, value, record.headers)
            yield record


def _gaps(batch: SourceBatch) -> Mapping[str, pa.Table]:
    """What Kafka pruned before it could be read, as a row: a topic has no other place for it."""
    span = batch.span
    if span is None or span.gap_first is None:
        return {}
    row = {
        "source_partition": str(batch.source_partition),
        "gap_first": span.gap_first,
        "gap_last": span.gap_last,
        "gap_reason": span.gap_reason,
    }
    return {_GAPS: pa.Table.from_pylist([row])}


def _json(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()


def json_rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Each row by column name, of values that ``json.dumps`` takes. Raises pa.ArrowException or ValueError for a value
    that has no JSON."""
    for batch in rows.to_batches():
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            yield _plain(row)


def _plain(value: Any) -> Any:  # one line for each kind of value
    match value:
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime():
            return (value if value.tzinfo is None else value.astimezone(dt.UTC)).isoformat().replace("+00:00", "Z")
        case dt.timedelta():
            return value // dt.timedelta(microseconds=1)
        case dt.date() | dt.time() | Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return _NO_NUMBERS[str(value)]
    return value


class KafkaTopicSink(SinkConnector):
    """Writes JSON records, rows and positions in one transaction."""

    description = "JSON records in topics that others consume, exactly once."
    config_def: ClassVar[ConfigDef] = TOPIC_KEYS

    def __init__(self, config: Config) -> None:
        """Raises InvalidConfiguration: topic and topic.prefix, or none of them; a name that Kafka does not take."""
        super().__init__(config)
        topic, prefix = config[_TOPIC], config[_PREFIX]
        if (topic is None) == (prefix is None):
            raise InvalidConfiguration({_TOPIC: (f"give one of {_TOPIC} and {_PREFIX}",)})
        for key, name in ((_TOPIC, topic), (_PREFIX, prefix and f"{prefix}t"), (_POSITIONS, config[_POSITIONS])):
            try:
                check_topic_name(name or "t")
            except RowsRefused as error:
                raise InvalidConfiguration({key: (error.message,)}, hint=error.hint) from error
        if topic == config[_POSITIONS]:
            raise InvalidConfiguration({_TOPIC: (f"{_POSITIONS} must be another topic",)})
        self.kafka: Final = kafka_config(config)

    def start(self) -> None:
        """Reach the cluster: an address or a login that is wrong is one error here."""
        with ShareGroupAdmin(self.kafka):
            pass

    def task(self, context: SinkTaskContext) -> TopicSinkTask:
        return TopicSinkTask(self, context)

    def topic_of(self, table: str) -> str:
        """One for all tables, or the prefix and the table's name. Raises RowsRefused for a table whose name no topic
        can have."""
        name = self.config[_TOPIC] or f"{self.config[_PREFIX] or ''}{table}"
        check_topic_name(name)
        return name

    def writer(self, connector: str, source_partition: SourcePartition, most_bytes: int) -> TransactionalWriter:
        """Return the one writer of a source partition. Once another is made for it, this one can write no more."""
        own = f"{TRANSACTIONAL_IDS}{self.config[_POSITIONS]}/{quote(connector, safe='')}/{source_partition}"
        return TransactionalWriter(self.kafka, own, most_bytes=most_bytes)

    def topics_ready_for_positions(self) -> TargetTopics:
        """The cluster's topics, that of positions among them."""
        topics = TargetTopics(self.kafka)
        topics.ready_for_positions(self.config[_POSITIONS], self.config[_REPLICATION])
        return topics

    def positions(
        self,
        connector: str,
        source_partitions: Sequence[SourcePartition],  # noqa: ARG002  # all that the topic has
    ) -> Mapping[SourcePartition, Position]:
        """Those of `connector`."""
        return self.positions_of(connector).read(_LOOK_S)

    def alter_positions(self, connector: str, positions: Mapping[SourcePartition, Position | None]) -> None:
        """One transaction for all. Rows between a position and one before it are written again; those that are skipped
        are not."""
        if not positions:
            return
        self.topics_ready_for_positions()
        own = self.positions_of(connector)
        writers = [self.writer(connector, each, 1_000_000) for each in positions]
        try:
            for writer in writers:
                writer.fence()
            writers[0].write([own.record(each, position) for each, position in positions.items()])
            own.read(LONG_S)  # from now on every reader sees them
        finally:
            for writer in writers:
                writer.close()

    def positions_of(self, connector: str) -> TopicPositions:
        """The positions of a connector in their topic."""
        return TopicPositions(self.kafka, self.config[_POSITIONS], connector)
