"""A suite is worth what it finds: each of these connectors breaks one promise, and a test of the suite says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from threading import Event
from typing import Any

import pytest
from plugins import test_suites as own
from samples.memory_source import MemorySink, MemoryTask

from acktrail.connect.config_def import ConfigDef, ConfigKey, ConfigType
from acktrail.connect.source_batches import Commit, Position, SourceBatch, SourcePartition
from acktrail.errors import ConcurrentCommit
from acktrail_plugins import testing


class _PositionBefore(MemoryTask):
    """Its position is that of the last row, not the next one."""

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        return [replace(batch, position=batch.position - 1) for batch in super().poll(timeout_s)]  # type: ignore[operator]  # a number


class _Forgets(MemoryTask):
    """Leaves rows out after a restart."""

    def start(self, context: Any) -> None:
        def later(part: SourcePartition) -> Position | None:
            found = context.position(part)
            return None if found is None else found + 1

        super().start(replace(context, position=later))


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


@pytest.mark.parametrize(
    ("task", "test"),
    [
        (_PositionBefore, "a_restart_at_every_position_gives_exactly_the_rest"),
        (_PositionBefore, "restarts_lose_and_double_nothing"),
        (_Forgets, "a_restart_at_every_position_gives_exactly_the_rest"),
        (_Unequal, "a_restart_at_every_position_gives_exactly_the_rest"),
        (_NeedsStart, "stop_needs_no_start_and_may_come_twice"),
    ],
)
def test_a_source_that_breaks_a_promise_is_found(task: type[MemoryTask], test: str) -> None:
    """The test that names the promise goes red."""

    class Connector(own._MemoryLogs):
        def task(self, config: Any) -> MemoryTask:
            return task([self.logs[number] for number in config["logs"]], batch_rows=3, is_continuous=True)

    class Suite(own.TestMemorySource):
        connector_class = Connector
        patience_s = 0.2

    _is_red(Suite(), test)


class _Placed(own._LookTask):
    """Its observations have a position."""

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        return [replace(batch, position=1) for batch in super().poll(timeout_s)]


class _SameRuns(own._LookTask):
    """Counts its runs from one at every start."""

    def start(self, context: Any) -> None:
        super().start(context)
        self.runs = count(1)

    def run_id(self) -> str:
        return f"run-{next(self.runs)}"


class _Twice(own._LookTask):
    """Gives everything twice."""

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        return [*super().poll(timeout_s)] * 2


class _Deaf(own._LookTask):
    """Its waits end by themselves alone."""

    def wait(self, timeout_s: float) -> None:
        Event().wait(timeout_s)

    def poll(self, timeout_s: float) -> Sequence[SourceBatch]:
        found = super().poll(timeout_s)
        self.begins_at += 0.4
        return found


@pytest.mark.parametrize(
    ("task", "test"),
    [
        (_Placed, "each_run_is_seen_once_and_has_no_position"),
        (_SameRuns, "each_run_is_seen_once_and_has_no_position"),
        (_Twice, "each_run_is_seen_once_and_has_no_position"),
        (_Deaf, "a_wait_ends_when_it_is_told_to"),
    ],
)
def test_a_source_of_observations_that_breaks_a_promise_is_found(task: type[own._LookTask], test: str) -> None:
    """The test that names the promise goes red."""

    class Connector(own.MemoryLooks):
        def task(self, config: Any) -> own._LookTask:
            return task()

    class Suite(own.TestMemoryLooks):
        connector_class = Connector
        patience_s = 0.3 if task is _Deaf else 5.0

    _is_red(Suite(), test)


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
    ("sink", "test"),
    [
        (_Impatient, "what_was_put_is_nowhere_before_the_flush"),
        (_Blind, "a_second_writer_lands_nothing"),
        (_Apart, "flush_commits_rows_and_positions"),
        (_Apart, "restarts_lose_and_double_nothing"),
        (_Restless, "idle_leaves_no_trace"),
    ],
)
def test_a_sink_that_breaks_a_promise_is_found(sink: type[MemorySink], test: str) -> None:
    """The test that names the promise goes red."""

    class Connector(own._MemorySinks):
        def task(self, context: Any) -> MemorySink:
            return sink(self.tables)

    class Suite(own.TestMemorySink):
        connector_class = Connector

    _is_red(Suite(), test)


def test_a_configuration_that_tells_secrets_is_found() -> None:
    """So are keys without documentation."""
    keys = [ConfigKey(name="api.token", type=ConfigType.STRING, default="", documentation="")]

    class Plugin:
        description = "Nothing."
        config_def = ConfigDef(keys)

        def __init__(self, config: Mapping[str, Any]) -> None:
            """Nothing."""

    class Suite(testing.ConnectorSuite):
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
