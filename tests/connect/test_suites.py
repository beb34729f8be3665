"""acktrail's own connectors keep the promises that any connector's suite asks for, those of the trunk among them.

A suite is worth what it finds: connectors that break one promise each make the test that names it red.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from threading import Event
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from samples.memory_plugins import WORLD, MemorySinkConnector, MemorySource, MemoryWorld
from samples.memory_source import MemoryLog, MemorySink, MemoryTask

from acktrail.errors import ConcurrentCommit
from acktrail.model.log_positions import Position, SourcePartition
from acktrail.times import new_run_id
from acktrail_connect.config_def import ConfigDef, ConfigKey, ConfigType
from acktrail_connect.contract import Config, SinkTaskContext, SourceConnector, SourceTask, SourceTaskContext
from acktrail_connect.sinks.delta_sink_connector import DeltaSinkConnector
from acktrail_connect.source_batches import Commit, SourceBatch
from acktrail_connect.source_testing import ObservationSuite, SourceSuite
from acktrail_connect.sources.log_sources import ShareGroupStateSource
from acktrail_connect.testing import ConnectorSuite, SinkSuite, TransformSuite
from acktrail_connect.transforms import Filter, Mask, Route


class _InMemory(ConnectorSuite):
    """A world for each test."""

    def prepare(self) -> None:
        WORLD.append(MemoryWorld())
        WORLD[-1].answers.set()

    def clean_up(self) -> None:
        WORLD.pop()


class _MemoryLogs(MemorySource):
    """Without the keys that are to break a promise."""

    config_def = ConfigDef([MemorySource.config_def.keys["memory.word"]])
    part: ClassVar[type[MemoryTask]] = MemoryTask

    def task(self, config: Config) -> Any:
        own = [log for log in WORLD[-1].logs if log.partition in config["partitions"]]
        return self.part(own, batch_rows=3, is_continuous=True)


class TestMemorySource(_InMemory, SourceSuite):
    """The suite's own example of a source: logs with gaps of none."""

    connector_class = _MemoryLogs
    poll_s = 0.0

    def write(self, count: int) -> None:
        for _ in range(count):
            min(WORLD[-1].logs, key=lambda log: log.end_offset).end_offset += 1


class _LookTask(SourceTask):
    """One row every 20 ms."""

    def start(self, context: SourceTaskContext) -> None:
        self.context, self.begins_at = context, 0.0

    def run_id(self) -> str:
        return new_run_id()

    def wait(self, timeout_s: float) -> None:
        self.context.stop.wait(timeout_s)

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        left = self.begins_at - time.monotonic()
        if left > 0:
            self.wait(min(left, timeout_s))
            return ()
        self.begins_at = time.monotonic() + 0.02
        rows = pa.table({"run_id": [self.run_id()], "n": [1]})
        return [SourceBatch(source_partition=SourcePartition("looks"), rows={"looks": rows})]

    def stop(self) -> None:
        """Nothing is open."""


class MemoryLooks(SourceConnector):
    """Looks at nothing."""

    description = "Looks at nothing."
    config_def: ClassVar[ConfigDef] = ConfigDef()

    def task_configs(self, most: int) -> Sequence[Config]:
        return [{}]

    part: ClassVar[type[_LookTask]] = _LookTask

    def task(self, config: Config) -> SourceTask:
        return self.part()


class TestMemoryLooks(ObservationSuite):
    """The suite's own example of a source that observes."""

    connector_class = MemoryLooks


class _MemorySinks(MemorySinkConnector):
    part: ClassVar[type[MemorySink]] = MemorySink

    def task(self, context: SinkTaskContext) -> MemorySink:
        return self.part(WORLD[-1].tables)


class TestMemorySink(_InMemory, SinkSuite):
    """The sink that tests of sources use."""

    connector_class = _MemorySinks

    def numbers(self, source_partition: SourcePartition) -> list[int]:
        parts = WORLD[-1].tables.rows.get(self.table, [])
        rows = (row for part in parts for row in part.to_pylist())
        return sorted(row["number"] for row in rows if row["part"] == source_partition)

    def commits(self) -> int:
        return len(WORLD[-1].tables.commits)


class _Asked(MemorySink):
    """Relies on it that a worker asks for the position first."""

    def put(self, batch: SourceBatch) -> None:
        assert batch.source_partition in self._committed
        super().put(batch)


class _AskedSinks(_MemorySinks):
    part = _Asked


class TestSinkThatIsAsked(TestMemorySink):
    """The suite asks as a worker does."""

    connector_class = _AskedSinks


class _OfLogs(SinkSuite):
    """State records: positions are offsets."""

    reads_logs = True
    cluster_id = "memory"
    table = "state_records"

    def partitions(self) -> Sequence[SourcePartition]:
        return [MemoryTask([MemoryLog(partition=number)]).source_partition for number in range(2)]

    def position_after(self, number: int) -> Position:
        return number

    def batch(self, source_partition: SourcePartition, first: int, end: int) -> SourceBatch:
        log = MemoryLog(partition=int(source_partition.rsplit("/", 1)[1]), end_offset=end)
        return log.batch(source_partition, first, end)


class TestDeltaSinkOfAnyRows(SinkSuite):
    """Rows of a stranger in Delta tables."""

    connector_class = DeltaSinkConnector
    examples = 5

    def config(self) -> Mapping[str, str]:
        return {"tables": str(self.folder / "files")}

    @property
    def delta(self) -> DeltaTable:
        return DeltaTable(str(self.folder / "files" / self.table))

    def numbers(self, source_partition: SourcePartition) -> list[int]:
        is_made = (self.folder / "files" / self.table).exists()
        rows = self.delta.to_pyarrow_table() if is_made else self.batch(source_partition, 0, 0).rows[self.table]
        if self.reads_logs:
            own = pc.equal(rows["state_partition"], int(source_partition.rsplit("/", 1)[1]))
        else:
            own = pc.equal(rows["part"], str(source_partition))
        return sorted(rows.filter(own)["offset" if self.reads_logs else "number"].to_pylist())

    def commits(self) -> int:
        return int(self.delta.version())


class TestDeltaSinkOfLogs(_OfLogs, TestDeltaSinkOfAnyRows):
    """State records in Delta tables."""


class TestStateSourceConfiguration(ConnectorSuite):
    """Its behaviour is tested against real brokers elsewhere."""

    connector_class = ShareGroupStateSource

    def config(self) -> Mapping[str, str]:
        return {"kafka.bootstrap.servers": "localhost:1"}


class TestFilter(TransformSuite):
    """Rows of some groups."""

    connector_class: ClassVar[type[Any]] = Filter
    keys: ClassVar[Mapping[str, str]] = {"groups": "pay*", "topics.exclude": "test*"}

    def config(self) -> Mapping[str, str]:
        return self.keys

    def tables(self) -> Mapping[str, pa.Table]:
        groups = ["payments", "orders", None, "payroll", "payments"]
        rows = pa.table({"group_id": groups, "topic": ["t", "test-1", "t", None, "test-2"], "n": range(5)})
        return {"state_records": rows, "topics": rows.drop_columns(["topic"])}


class TestMask(TestFilter):
    """Hidden texts."""

    connector_class = Mask
    keys: ClassVar[Mapping[str, str]] = {"columns": "group_id", "with": "hash", "key": "k"}


class TestRoute(TestFilter):
    """Renamed tables."""

    connector_class = Route
    keys: ClassVar[Mapping[str, str]] = {"regex": "state_(.*)", "replacement": r"raw_\1"}


class _PositionBefore(MemoryTask):
    """Its position is that of the last row, not the next one."""

    ahead = -1

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        found = super().poll(timeout_s)
        return [replace(batch, position=batch.position + self.ahead) for batch in found]  # type: ignore[operator]  # a number


class _Forgets(_PositionBefore):
    """Leaves rows out after a restart."""

    ahead = 1


class _Unequal(MemoryTask):
    """Its positions are no JSON."""

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        return [replace(batch, position={"at": (1, 2)}) for batch in super().poll(timeout_s)]


class _NeedsStart(MemoryTask):
    """Cannot be stopped before it was started."""

    def start(self, context: Any) -> None:
        self.open = True
        super().start(context)

    def stop(self) -> None:
        assert self.open


class _Placed(_LookTask):
    """Its observations have a position."""

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        return [replace(batch, position=1) for batch in super().poll(timeout_s)]


class _SameRuns(_LookTask):
    """Counts its runs from one at every start."""

    def start(self, context: Any) -> None:
        super().start(context)
        self.runs = count(1)

    def run_id(self) -> str:
        return f"run-{next(self.runs)}"


class _Twice(_LookTask):
    """Gives everything twice."""

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        return [*super().poll(timeout_s)] * 2


class _Deaf(_LookTask):
    """Its waits end by themselves alone."""

    def wait(self, timeout_s: float) -> None:
        Event().wait(timeout_s)

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        found = super().poll(timeout_s)
        self.begins_at += 0.4
        return found


class _Impatient(MemorySink):
    """Commits what is put."""

    def put(self, batch: SourceBatch) -> None:
        super().put(batch)
        super().flush()


class _Blind(MemorySink):
    """Does not see another writer."""

    def flush(self) -> Commit:
        self._committed = dict(self._tables.positions)  # type: ignore[arg-type]  # what is there counts as its own
        for batch in self._pending:
            self._committed.setdefault(batch.source_partition, None)
        return super().flush()


class _Apart(MemorySink):
    """Forgets positions."""

    def flush(self) -> Commit:
        commit = super().flush()
        self._tables.positions.clear()
        return commit


class _Restless(MemorySink):
    """Commits batches that move nothing."""

    def put(self, batch: SourceBatch) -> None:
        self.position(batch.source_partition)
        self._pending.append(batch)


@pytest.mark.parametrize(
    ("suite", "broken", "test"),
    [
        (TestMemorySource, _PositionBefore, "a_restart_at_every_position_gives_exactly_the_rest"),
        (TestMemorySource, _PositionBefore, "restarts_lose_and_double_nothing"),
        (TestMemorySource, _Forgets, "a_restart_at_every_position_gives_exactly_the_rest"),
        (TestMemorySource, _Unequal, "a_restart_at_every_position_gives_exactly_the_rest"),
        (TestMemorySource, _NeedsStart, "stop_needs_no_start_and_may_come_twice"),
        (TestMemoryLooks, _Placed, "each_run_is_seen_once_and_has_no_position"),
        (TestMemoryLooks, _SameRuns, "each_run_is_seen_once_and_has_no_position"),
        (TestMemoryLooks, _Twice, "each_run_is_seen_once_and_has_no_position"),
        (TestMemoryLooks, _Deaf, "a_wait_ends_when_it_is_told_to"),
        (TestMemorySink, _Impatient, "what_was_put_is_nowhere_before_the_flush"),
        (TestMemorySink, _Blind, "a_second_writer_lands_nothing"),
        (TestMemorySink, _Apart, "flush_commits_rows_and_positions"),
        (TestMemorySink, _Apart, "restarts_lose_and_double_nothing"),
        (TestMemorySink, _Restless, "idle_leaves_no_trace"),
    ],
)
def test_a_connector_that_breaks_a_promise_is_found(suite: Any, broken: Any, test: str) -> None:
    """The test that names the promise goes red."""

    class Connector(suite.connector_class):
        part = broken

    class Suite(suite):
        connector_class = Connector
        patience_s = 0.2 if suite is TestMemorySource else 0.3 if broken is _Deaf else 5.0

    _is_red(Suite(), test)


def test_a_configuration_that_tells_secrets_is_found() -> None:
    """So are keys without documentation."""
    keys = [ConfigKey(name="api.token", type=ConfigType.STRING, default="", documentation="")]

    class Plugin:
        description = "Nothing."
        config_def = ConfigDef(keys)

        def __init__(self, config: Mapping[str, Any]) -> None:
            """Nothing."""

    class Suite(ConnectorSuite):
        connector_class = Plugin

    _is_red(Suite(), "secrets_are_passwords")
    _is_red(Suite(), "every_key_is_documented")


def _is_red(suite: Any, test: str) -> None:
    suite.setup_method()
    try:
        with pytest.raises((AssertionError, AttributeError, ConcurrentCommit)):
            getattr(suite, f"test_{test}")()
    finally:
        suite.teardown_method()
