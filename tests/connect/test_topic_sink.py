"""Rows of any source land in topics exactly once, as JSON that has the same values: who reads committed records
gets the rows, each once. The rights that this takes: what `doctor` finds, and what an error names."""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import Mock

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from deltalake import write_deltalake
from drivers.rights import GROUP, doctor, run_by_kafkas_tool
from hypothesis import given
from hypothesis import strategies as st
from servers.guarded_broker import GuardedBroker
from servers.workload import Workload, until

from acktrail.config import KafkaConfig
from acktrail.errors import ConcurrentCommit, ConfigurationError, InvalidConfiguration, OutcomeUnknown, RowsRefused
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.model.log_positions import LogSpan, SourcePartition
from acktrail_connect import POSITIONS_TOPIC
from acktrail_connect.contract import SinkTaskContext
from acktrail_connect.sinks import topic_sink
from acktrail_connect.sinks.target_topics import HeldUp
from acktrail_connect.sinks.topic_sink import KafkaTopicSink, TopicSinkTask, json_rows
from acktrail_connect.sinks.transactional_writer import TransactionalWriter
from acktrail_connect.source_batches import SourceBatch, all_dead
from acktrail_connect.testing import SinkSuite
from acktrail_connect.worker.connector_run import ConfigStore
from acktrail_connect.worker.worker import Worker

__all__ = ["doctor"]

PART = SourcePartition("delta/t")


def committed(kafka: KafkaConfig, topic: str, *, isolation: str = "read_committed") -> list[Any]:
    """Every record of a topic that a consumer gets, once its log is read to the end; none where there is no topic."""
    properties = {**to_librdkafka(kafka), "group.id": "test", "enable.partition.eof": True, "log_level": 2}
    properties |= {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 20, "enable.auto.commit": False}
    found: list[Any] = []
    with (
        Consumer({**properties, "isolation.level": isolation}) as reader,
        Consumer({**properties, "isolation.level": "read_uncommitted"}) as other,
    ):
        known = other.list_topics(topic, timeout=30).topics[topic].partitions
        ends = {each: other.get_watermark_offsets(TopicPartition(topic, each), timeout=30)[1] for each in known}
        reader.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in ends])

        def is_read() -> bool:
            for message in reader.consume(1_000, 0.02):
                if message.error() is None:
                    found.append(message)
                elif message.offset() >= ends.get(message.partition(), message.offset() + 1):
                    del ends[message.partition()]  # of one partition it is said more than once
            return not ends

        until(is_read, timeout_s=30, what=f"the end of {topic}")
    return found


def values(kafka: KafkaConfig, topic: str) -> list[Any]:
    return [json.loads(message.value()) for message in committed(kafka, topic)]


def keys(kafka: KafkaConfig, prefix: str, **more: str) -> dict[str, str]:
    own = {f"kafka.{name}": value for name, value in kafka.properties.items()}
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic.prefix": f"{prefix}-",
        "positions.topic": f"{prefix}-positions",
        "topics.partitions": "1",
        **own,
        **more,
    }


class TestKafkaTopicSink(SinkSuite):
    """Everything that is asked of a sink."""

    connector_class = KafkaTopicSink
    examples = 2
    kafka: ClassVar[KafkaConfig]
    workload: ClassVar[Workload]

    @pytest.fixture(autouse=True, scope="class")
    @staticmethod
    def _broker(broker: Any, workload: Workload) -> None:
        own = TestKafkaTopicSink
        own.kafka, own.workload = KafkaConfig(bootstrap_servers=broker.bootstrap_servers), workload

    def prepare(self) -> None:
        self.prefix = f"sink-{uuid.uuid4().hex}"

    def config(self) -> Mapping[str, str]:
        return keys(self.kafka, self.prefix)

    def numbers(self, source_partition: SourcePartition) -> list[int]:
        rows = values(self.kafka, f"{self.prefix}-{self.table}")
        return sorted(row["number"] for row in rows if row["part"] == source_partition)

    def commits(self) -> int:
        return len(committed(self.kafka, f"{self.prefix}-positions"))


@pytest.fixture
def prefix() -> str:
    return f"sink-{uuid.uuid4().hex}"


@pytest.fixture
def opened(kafka: KafkaConfig, prefix: str) -> Iterator[Callable[..., TopicSinkTask]]:
    """Makes tasks onto the same topics; all are stopped in the end."""
    tasks: list[TopicSinkTask] = []

    def one(**more: str) -> TopicSinkTask:
        config = KafkaTopicSink.config_def.parse(keys(kafka, prefix, **more))
        context = SinkTaskContext(connector="c", run_id="run", dead_letter_table="dead")
        tasks.append(KafkaTopicSink(config).task(context))
        return tasks[-1]

    yield one
    for task in tasks:
        task.stop()


def batch(first: int, end: int, **more: Any) -> SourceBatch:
    rows = pa.table({"n": pa.array(range(first, end), pa.int64())})
    return SourceBatch(source_partition=PART, rows={"t": rows}, position={"line": end}, **more)


class _Died(BaseException):
    """The process is gone."""


@pytest.mark.few(3)
@pytest.mark.parametrize("step", ["fence", "produce", "flush", "committed", "answered"])
def test_a_death_at_every_step_loses_and_doubles_nothing(
    kafka: KafkaConfig,
    prefix: str,
    opened: Callable[..., TopicSinkTask],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    """A task commits, the next one dies at one step of its transaction, without an abort: the one after it continues at
    what landed, and every row is there once. What the dead one left open is not waited for."""
    monkeypatch.setattr(topic_sink, "_SHORT_S", 1.0)
    monkeypatch.setattr(TransactionalWriter, "close", lambda _: None)  # the dead close nothing
    task = opened()
    task.put(batch(0, 2))
    task.flush()

    dying = opened()
    assert dying.position(PART) == {"line": 2}
    dying.put(batch(2, 5))
    with monkeypatch.context() as broken:
        die_at(step, broken)
        with pytest.raises(_Died):
            dying.flush()

    task = opened()
    position = task.position(PART)
    assert position == ({"line": 5} if step in {"committed", "answered"} else {"line": 2})
    task.put(batch(position["line"], 7))
    task.flush()
    assert [row["n"] for row in values(kafka, f"{prefix}-t")] == list(range(7))
    if step == "flush":
        assert len(committed(kafka, f"{prefix}-t", isolation="read_uncommitted")) > 7


_CALLS = {
    "fence": "init_transactions",
    "produce": "produce",
    "flush": "flush",
    "committed": "commit_transaction",
}


def die_at(step: str, broken: pytest.MonkeyPatch) -> None:
    """Let the next transaction end at a step: behind one of its producer's calls, or behind all."""

    def dies_behind(call: Callable[..., Any]) -> Callable[..., None]:
        def dying(*arguments: Any, **named: Any) -> None:
            call(*arguments, **named)
            raise _Died

        return dying

    made = TransactionalWriter.__init__

    def make(self: TransactionalWriter, *arguments: Any, **named: Any) -> None:
        made(self, *arguments, **named)
        own = self._producer
        self._producer = Mock(wraps=own)
        if step in _CALLS:
            setattr(self._producer, _CALLS[step], dies_behind(getattr(own, _CALLS[step])))

    broken.setattr(TransactionalWriter, "__init__", make)
    broken.setattr(TransactionalWriter, "write", dies_behind(TransactionalWriter.write))


def test_an_unknown_outcome_is_looked_up(
    kafka: KafkaConfig, prefix: str, opened: Callable[..., TopicSinkTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit whose answer never came is OutcomeUnknown, whether it landed or not; the task then continues at what
    landed."""
    from confluent_kafka import KafkaError, KafkaException

    monkeypatch.setattr(topic_sink, "_SHORT_S", 1.0)
    for number, lands in enumerate((True, False)):
        task = opened()
        position = task.position(PART)
        begin = position["line"] if position else 0
        task.put(batch(begin, begin + 2))
        own = TransactionalWriter._until_done

        def lost(self: TransactionalWriter, call: Any, what: str, own: Any = own, lands: bool = lands) -> None:
            if call.__name__ != "commit_transaction":
                return own(self, call, what)
            if lands:
                own(self, call, what)

            def times_out(_: float) -> None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

            return own(self, times_out, what)

        with monkeypatch.context() as broken:
            broken.setattr(TransactionalWriter, "_until_done", lost)
            with pytest.raises(OutcomeUnknown):
                task.flush()
        assert task.position(PART) == {"line": 2}, number
    assert [row["n"] for row in values(kafka, f"{prefix}-t")] == [0, 1]


def test_a_transaction_of_another_connector_hides_no_position(
    kafka: KafkaConfig, prefix: str, opened: Callable[..., TopicSinkTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind an open transaction in the topic of positions lies a committed position: it is waited for, not missed."""
    opened().start()
    other = Producer({**to_librdkafka(kafka), "transactional.id": f"{prefix}-other", "log_level": 2})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(f"{prefix}-positions", b"{}", b'["other",{"partition":"p"}]')
    assert other.flush(30) == 0
    config = KafkaTopicSink(KafkaTopicSink.config_def.parse(keys(kafka, prefix)))
    with monkeypatch.context() as hasty:
        hasty.setattr(topic_sink, "_SHORT_S", 0.5)
        hasty.setattr(topic_sink, "LONG_S", 0.5)
        with pytest.raises(HeldUp):
            opened().position(PART)
    other.commit_transaction(30)
    assert opened().position(PART) is None
    config.alter_positions("c", {PART: {"line": 9}})
    assert opened().position(PART) == {"line": 9}


def test_rows_that_kafka_does_not_take_are_dead_letters(
    kafka: KafkaConfig, prefix: str, opened: Callable[..., TopicSinkTask]
) -> None:
    """A row that is too large is refused in put, and its dead letter, cut to fit, says so; keys, headers and gaps are
    records too; names of topics are checked."""
    sink = opened(**{"key.columns": "n"})
    large = pa.table({"n": [1, 2], "text": ["x", "é" * 600_000]})
    refused = SourceBatch(source_partition=PART, rows={"t": large}, position={"line": 2})
    with pytest.raises(RowsRefused, match="row 1 of t is a record of 1200"):
        sink.put(refused)
    sink.put(all_dead(refused, "too large", "dead"))
    ends = {"log_start_offset": 9, "log_end_offset": 9}
    gap = LogSpan(topic_id=None, partition=0, **ends, gap_first=4, gap_last=8, gap_reason="pruned")
    sink.put(batch(2, 3, span=gap))
    assert sink.pending_rows == 4
    commit = sink.flush()
    assert commit.rows == {"dead": 2, "t": 1, "export_gaps": 1}

    (record,) = committed(kafka, f"{prefix}-t")
    assert (record.key(), record.value(), record.headers()) == (b'{"n":2}', b'{"n":2}', [("table", b"t")])
    dead = values(kafka, f"{prefix}-dead")
    assert [(row["row"], row["position"], row["reason"]) for row in dead] == [
        (0, '{"line": 2}', "too large"),
        (1, '{"line": 2}', "too large (content is cut)"),
    ]
    (gap_row,) = values(kafka, f"{prefix}-export_gaps")
    assert gap_row == {"source_partition": PART, "gap_first": 4, "gap_last": 8, "gap_reason": "pruned"}

    for table, rows in (("a b", {"n": [1]}), ("x" * 250, {"n": [1]}), ("t", {"m": [1]})):
        with pytest.raises(RowsRefused):
            sink.put(SourceBatch(source_partition=PART, rows={table: pa.table(rows)}, position={"line": 3}))
    with pytest.raises(RowsRefused, match="twice"):
        sink.put(SourceBatch(source_partition=PART, rows={}, position=None))
    assert sink.pending_rows == 0


def test_positions_stand_as_connect_has_them(
    kafka: KafkaConfig, prefix: str, workload: Workload, opened: Callable[..., TopicSinkTask]
) -> None:
    """Key and value of a position are those of Connect's own topic; a person moves and removes positions, all or none;
    a topic that would lose them is refused."""
    task = opened()
    task.put(batch(0, 1))
    task.flush()
    (record,) = committed(kafka, f"{prefix}-positions")
    assert (record.key(), record.value()) == (b'["c",{"partition":"delta/t"}]', b'{"line":1}')

    sink = KafkaTopicSink(KafkaTopicSink.config_def.parse(keys(kafka, prefix)))
    sink.alter_positions("c", {PART: None, SourcePartition("number"): 7})
    assert sink.positions("c", []) == {"number": 7}
    assert sink.positions("d", []) == {}
    task.put(batch(1, 2))
    with pytest.raises(ConcurrentCommit):
        task.flush()

    workload.create_topic(f"{prefix}-deleting")
    with pytest.raises(ConfigurationError, match=r"cleanup\.policy=delete"):
        opened(**{"positions.topic": f"{prefix}-deleting"}).start()


def test_what_cannot_be_is_refused_before_the_start(kafka: KafkaConfig, opened: Callable[..., TopicSinkTask]) -> None:
    """One topic or a prefix, names that Kafka takes; a missing topic is an error unless it is to be made."""
    definition = KafkaTopicSink.config_def
    own = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    for wrong in (
        {},
        {"topic": "a", "topic.prefix": "b"},
        {"topic": "a b"},
        {"topic.prefix": "/"},
        {"topic": "p", "positions.topic": "p"},
        {"topic": "a", "topics.partitions": "0"},
    ):
        with pytest.raises(InvalidConfiguration):
            KafkaTopicSink(definition.parse({**own, **wrong}))
    name = f"missing-{uuid.uuid4().hex}"
    task = KafkaTopicSink(definition.parse({**own, "topic": name, "positions.topic": f"{name}-p"})).task(
        SinkTaskContext(connector="c", run_id="run")
    )
    with pytest.raises(ConfigurationError, match=f"there is no topic {name}"):
        task.put(batch(0, 1))
    task.stop()


def test_rows_of_a_table_are_followed_into_a_topic(kafka: KafkaConfig, prefix: str, tmp_path: Path) -> None:
    """A worker carries what is appended to a table into a topic, over restarts of the worker: each row once, in
    order."""
    config = {
        "connector.class": "DeltaTableSource",
        "tables": str(tmp_path),
        "table": "findings",
        "batch.rows": "3",
        "interval.ms": "10",
        "sink.class": "KafkaTopicSink",
        "flush.interval.ms": "50",
        **{f"sink.{key}": value for key, value in keys(kafka, prefix).items()},
    }
    for run in range(2):
        worker = Worker(ConfigStore())
        try:
            worker.create("findings", config)
            for part in range(2):
                numbers = list(range(20 * run + 10 * part, 20 * run + 10 * part + 10))
                write_deltalake(str(tmp_path / "findings"), pa.table({"n": numbers}), mode="append")
            task = until(lambda w=worker: w.runs()["findings"].tasks(), what="a task")[0]
            until(lambda t=task: sum(t.summary.rows.values()) >= 20, timeout_s=60, what="the rows of the table")
        finally:
            worker.stop()
    assert [row["n"] for row in values(kafka, f"{prefix}-findings")] == list(range(40))


@pytest.mark.full
def test_the_rights_of_the_connectors_are_found_and_granted(
    guarded: GuardedBroker, guarded_workload: Workload, doctor: Callable[..., Any], tmp_path: Path
) -> None:
    """For a user without rights all that can be known is missing; after doctor's commands, run by Kafka's own tool,
    nothing is, and a topic sink of that user writes a row. Of transactional ids nothing is known in advance."""
    purposes, topics = ("metadata", "dead-letters", "ledger", "topic-sink"), ("rows-of-the-sink", POSITIONS_TOPIC)
    for topic, configs in zip(topics, ({}, {"cleanup.policy": "compact"}), strict=True):
        guarded_workload.create_topic(topic, **configs)
    code, checks = doctor("sinker", *purposes, groups=[GROUP], topics=topics[:1])
    statuses = {check["what"]: check["status"] for check in checks}
    ids = "ACL for topic-sink: WRITE on every transactional-id that begins with acktrail/"
    assert (code, statuses.pop(ids)) == (3, "note")
    assert set(statuses.values()) == {"missing"}
    run_by_kafkas_tool(guarded, tmp_path, list(dict.fromkeys(check["command"] for check in checks)))

    def left() -> set[str]:
        return {
            check["what"]
            for check in doctor("sinker", *purposes, groups=[GROUP], topics=topics[:1])[1]
            if check["status"] != "ok"
        }

    until(lambda: left() == {ids}, what="every ACL")
    kafka, source = guarded.config("sinker"), SourcePartition("p")
    keys = {f"kafka.{name}": value for name, value in kafka.properties.items()}
    own = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **keys, "topic": topics[0]}
    task = KafkaTopicSink(KafkaTopicSink.config_def.parse(own)).task(SinkTaskContext(connector="c", run_id="run"))
    try:
        assert task.position(source) is None
        task.put(SourceBatch(source_partition=source, rows={"t": pa.table({"n": [1]})}, position=1))
        task.flush()
        assert task.position(source) == 1
    finally:
        task.stop()


UTC = dt.UTC
DAY = dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.timestamp("us", tz="UTC"), DAY, "2026-01-02T03:04:05.678901Z"),
        (pa.timestamp("ms", tz="Europe/Berlin"), DAY.replace(microsecond=1_000), "2026-01-02T03:04:05.001000Z"),
        (pa.timestamp("us"), DAY.replace(tzinfo=None), "2026-01-02T03:04:05.678901"),
        (pa.date32(), dt.date(2026, 1, 2), "2026-01-02"),
        (pa.binary(), b"\x00\xff", base64.b64encode(b"\x00\xff").decode()),
        (pa.binary_view(), b"\x00", "AA=="),
        (pa.binary(2), b"ab", "YWI="),
        (pa.int64(), 2**62 + 1, 2**62 + 1),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.decimal128(38, 2), Decimal("12345678901234567890.12"), "12345678901234567890.12"),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float32(), float("-inf"), "-Infinity"),
        (pa.float64(), 1.5, 1.5),
        (pa.bool_(), True, True),
        (pa.string(), "ü\u2028😀\x00", "ü\u2028😀\x00"),
        (pa.list_(pa.binary()), [b"a", None], ["YQ==", None]),
        (pa.large_list(pa.int32()), [], []),
        (pa.list_(pa.int8(), 2), [1, 2], [1, 2]),
        (pa.struct([("at", pa.timestamp("s", tz="UTC"))]), {"at": DAY}, {"at": "2026-01-02T03:04:05Z"}),
        (pa.map_(pa.string(), pa.timestamp("s", tz="UTC")), [("k", DAY)], {"k": "2026-01-02T03:04:05Z"}),
        (pa.dictionary(pa.int32(), pa.string()), "x", "x"),
    ],
)
def test_each_type_has_its_json(kind: pa.DataType, value: Any, expected: Any) -> None:
    """A value, and a null before and behind it, in a table and in a slice of one; what is written is strict JSON."""
    column = pa.array([None, value, None, value], kind)
    for rows in (pa.table({"c": column}), pa.table({"c": pa.array([None], kind)}), pa.table({"c": column.slice(1)})):
        found = [row["c"] for row in json_rows(rows)]
        assert found == [None if each is None else expected for each in rows["c"].to_pylist()]
        assert json.loads(json.dumps(found, allow_nan=False)) == found


@given(st.lists(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**62), 2**62)))))
def test_nested_lists_keep_their_shape(values: list[Any]) -> None:
    """Lists in lists, with nulls and empty ones anywhere, in several chunks."""
    kind = pa.list_(pa.list_(pa.int64()))
    column = pa.chunked_array([pa.array(values, kind), pa.array([None, []], kind)])
    assert [row["c"] for row in json_rows(pa.table({"c": column}))] == [*values, None, []]
