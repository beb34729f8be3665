"""Behaviour suites for sinks and transforms; ``source_testing`` has those for sources. Subclass one of the classes in a
test module, and pytest collects its tests.

    class TestSqliteSink(SinkSuite):
        connector_class = SqliteSink

        def config(self): return {"file": str(self.folder / "rows.db")}
        def numbers(self, source_partition): ...

What every promise means stands in ``acktrail_connect.contract``. pytest is not imported.
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import pyarrow as pa

from acktrail.errors import ConcurrentCommit
from acktrail.model.log_positions import Position, SourcePartition
from acktrail_connect.config_def import ConfigDef, ConfigKey, ConfigType, reference
from acktrail_connect.contract import Configured, SinkTask, SinkTaskContext
from acktrail_connect.source_batches import SourceBatch

_SECRET: Final = re.compile(r"password|secret|token|credential|private_key|access_key")
_A, _B = SourcePartition("suite/a"), SourcePartition("suite/b")


class RandomRun(NamedTuple):
    """One run of a task: the origin grows by `grown` rows, `polls` batches are read, those before `flushed` of them are
    committed; the source hears of that unless `is_killed`. Then the process is gone."""

    grown: int
    polls: int
    flushed: int
    is_killed: bool


def random_runs(examples: int) -> Iterator[list[RandomRun]]:
    """Several sequences of runs, the same ones every time."""
    chance = random.Random(20_260_101)  # noqa: S311  # not for secrets

    def drawn() -> RandomRun:
        return RandomRun(chance.randint(0, 6), chance.randint(0, 4), chance.randint(0, 4), chance.random() < 0.5)

    for _ in range(examples):
        yield [drawn() for _ in range(chance.randint(1, 5))]


class ConnectorSuite:
    """What is asked of every plug-in. Subclass it as ``Test...``; set `connector_class` and ``config``. `folder` is a
    new folder for each test."""

    connector_class: ClassVar[type[Configured]]
    folder: Path

    def config(self) -> Mapping[str, str]:
        """The plug-in's own keys, as texts: the least that it needs."""
        return {}

    def prepare(self) -> None:
        """Make what a test needs, for example an empty origin in `folder`."""

    def clean_up(self) -> None:
        """Remove what ``prepare`` made outside `folder`."""

    def setup_method(self) -> None:
        """pytest calls it before each test."""
        self.folder = Path(tempfile.mkdtemp(prefix="acktrail-suite-"))
        self.prepare()

    def teardown_method(self) -> None:
        """pytest calls it after each test."""
        try:
            self.clean_up()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def begin_again(self) -> None:
        """Within a test: as before another one."""
        self.teardown_method()
        self.setup_method()

    def connector(self) -> Any:
        """A new object of the plug-in, configured."""
        return self.connector_class(self.definition.parse(self.config()))

    @property
    def definition(self) -> ConfigDef:
        return self.connector_class.config_def

    def test_every_key_is_documented(self) -> None:
        """Each key says in a sentence what it means, and the reference shows it."""
        assert self.connector_class.description.endswith("."), "the plug-in has no description: one sentence"
        text = reference(self.definition)
        for key in self.definition.keys.values():
            assert key.documentation.strip().endswith("."), f"{key.name} has no documentation: a sentence"
            assert f"`{key.name}`" in text, f"{key.name} is not in the reference"

    def test_the_least_configuration_is_enough(self) -> None:
        """Defaults are values of their types, and with the keys that must be given nothing else is needed."""
        required = {key.name for key in self.definition.keys.values() if key.is_required}
        assert required <= self.config().keys(), f"config() lacks {required - self.config().keys()}"
        assert set(self.definition.keys) <= set(self.definition.parse(self.config()))
        self.connector()

    def test_an_unknown_key_is_refused(self) -> None:
        """A misspelt key is an error that names the nearest one, not a default."""
        for name in self.definition.keys:
            wrong = f"x{name}"
            if not wrong.startswith(tuple(self.definition.open_prefixes)):
                found = {each.name: each for each in self.definition.validate({**self.config(), wrong: "1"})}
                assert name in str(found[wrong].errors), f"{wrong} was taken, or the error does not name {name}"

    def test_secrets_are_passwords(self) -> None:
        """A key whose name says that it is a secret has the type PASSWORD: it is shown nowhere."""
        shown = [key.name for key in self.definition.keys.values() if _is_shown_secret(key)]
        assert not shown, f"{shown} must have the type PASSWORD"


def _is_shown_secret(key: ConfigKey) -> bool:
    is_file = key.name.endswith((".file", ".location", ".path"))
    return bool(_SECRET.search(key.name)) and key.type is not ConfigType.PASSWORD and not is_file


class TransformSuite(ConnectorSuite):
    """What every transform promises. Set also ``tables``."""

    def tables(self) -> Mapping[str, pa.Table]:
        """Rows that the transform changes, and others, by table."""
        raise NotImplementedError

    def test_the_same_rows_give_the_same_result(self) -> None:
        """Applied by two objects, whole and row by row: after a restart batches are cut elsewhere. What was given stays
        as it was."""
        for table, rows in self.tables().items():
            before = rows.to_pylist()
            name, whole = self.connector().apply(table, rows)
            assert rows.to_pylist() == before, "the rows that were given are changed"
            one = self.connector()
            singles = [one.apply(table, rows.slice(number, 1)) for number in range(rows.num_rows)]
            assert {each for each, _ in singles} <= {name}, "the table depends on how batches are cut"
            assert [row for _, part in singles for row in part.to_pylist()] == whole.to_pylist()

    def test_columns_keep_their_types(self) -> None:
        """A column that is left has the type that it had; empty batches pass."""
        for table, rows in self.tables().items():
            for part in (rows, rows.slice(0, 0)):
                _, changed = self.connector().apply(table, part)
                for name in {*changed.column_names} & {*rows.column_names}:
                    assert changed.schema.field(name).type == rows.schema.field(name).type, f"{name} has another type"


class SinkSuite(ConnectorSuite):
    """What every sink promises: rows and positions land together or not at all, for one writer at a time. Set also
    ``numbers``. Rows have a number that counts from 0 in each source partition; a sink with rows of its own sets
    ``partitions``, ``position_after`` and ``batch`` too."""

    table: ClassVar[str] = "suite_rows"
    connector_name: ClassVar[str] = "suite"
    reads_logs: ClassVar[bool] = False
    cluster_id: ClassVar[str | None] = None
    examples: ClassVar[int] = 15

    def numbers(self, source_partition: SourcePartition) -> list[int]:
        """The numbers that are committed, read from the storage as any reader would."""
        raise NotImplementedError

    def commits(self) -> int | None:
        """How many commits the storage has; None: it has no such number."""
        return None

    def partitions(self) -> Sequence[SourcePartition]:
        """Two source partitions."""
        return (_A, _B)

    def position_after(self, number: int) -> Position:
        """The position after the row `number` - 1."""
        return {"line": number}

    def batch(self, source_partition: SourcePartition, first: int, end: int) -> SourceBatch:
        """The rows `first` to before `end`; none: a batch that stands where the one before ended."""
        numbers = pa.array(range(first, end), pa.int64())
        rows = pa.table({"part": pa.repeat(str(source_partition), len(numbers)), "number": numbers})
        return SourceBatch(
            source_partition=source_partition, rows={self.table: rows}, position=self.position_after(end)
        )

    def task(self, run_id: str = "run") -> SinkTask:
        """One more task onto the same storage."""
        connector = self.connector()
        connector.start()
        context = SinkTaskContext(
            connector=self.connector_name, run_id=run_id, cluster_id=self.cluster_id, reads_logs=self.reads_logs
        )
        task: SinkTask = connector.task(context)
        task.start()
        return task

    def put(self, task: SinkTask, source_partition: SourcePartition, first: int, end: int) -> None:
        """Put a batch as a worker does, which asks for the position before."""
        task.position(source_partition)
        task.put(self.batch(source_partition, first, end))

    def test_what_was_put_is_nowhere_before_the_flush(self) -> None:
        """Connector and task can be stopped at any time: what was put and not flushed is dropped."""
        self.connector().stop()
        task, part = self.task(), self.partitions()[0]
        assert task.position(part) is None
        task.put(self.batch(part, 0, 3))
        assert task.pending_rows == 3
        assert self.task("other").position(part) is None
        task.stop()
        task.stop()
        assert self.numbers(part) == []
        assert self.task().position(part) is None

    def test_flush_commits_rows_and_positions(self) -> None:
        """After a flush the rows of all source partitions are there, and every new task knows where they continue."""
        task, (one, two) = self.task(), self.partitions()
        for part, first, end in ((one, 0, 2), (two, 0, 1), (one, 2, 3)):
            self.put(task, part, first, end)
        expected = {one: self.position_after(3), two: self.position_after(1)}
        assert task.flush().positions == expected
        assert task.pending_rows == 0
        assert (self.numbers(one), self.numbers(two)) == ([0, 1, 2], [0])
        for each, position in expected.items():
            assert task.position(each) == self.task("next").position(each) == position
        assert self.connector().positions(self.connector_name, [one, two]) == expected

    def test_idle_leaves_no_trace(self) -> None:
        """A flush of nothing, and of a batch that moves nothing, is no commit."""
        task, part = self.task(), self.partitions()[0]
        self.put(task, part, 0, 2)
        task.flush()
        before = self.commits()
        for again in (task, self.task("next")):
            self.put(again, part, 2, 2)
            commit = again.flush()
            assert not commit.positions, f"an idle batch was committed: {commit}"
            assert not any(commit.rows.values()), f"an idle batch was committed: {commit}"
        assert self.commits() == before
        assert self.numbers(part) == [0, 1]

    def test_a_second_writer_lands_nothing(self) -> None:
        """Two tasks at one position: the second flush raises ConcurrentCommit, leaves nothing pending, and the task
        continues at the position that landed."""
        first, second, part = self.task(), self.task("second"), self.partitions()[0]
        for task in (first, second):
            assert task.position(part) is None
            task.put(self.batch(part, 0, 2))
        first.flush()
        try:
            second.flush()
        except ConcurrentCommit:
            pass
        else:
            raise AssertionError("two writers committed the same rows")
        assert self.numbers(part) == [0, 1]
        assert second.pending_rows == 0
        again = self.task("again")
        assert second.position(part) == again.position(part) == self.position_after(2)
        again.put(self.batch(part, 2, 4))
        again.flush()
        assert self.numbers(part) == [0, 1, 2, 3]

    def test_restarts_lose_and_double_nothing(self) -> None:
        """Runs of any length, each ended after some flushes: every row once, in the end."""
        for runs in random_runs(self.examples):
            self.begin_again()
            part, end = self.partitions()[0], 0
            for number, run in enumerate([*runs, RandomRun(1, 1, 1, is_killed=False)]):
                end = self._run(f"run-{number}", part, end, run)
            assert self.numbers(part) == list(range(end)), f"{self.numbers(part)} of {end}"

    def _run(self, run_id: str, part: SourcePartition, committed: int, run: RandomRun) -> int:
        """One task that begins where the storage says; gives how many rows are committed then."""
        task = self.task(run_id)
        assert task.position(part) == (self.position_after(committed) if committed else None)
        end = committed
        for number in range(run.polls):
            task.put(self.batch(part, end, end + run.grown))
            end += run.grown
            if number < run.flushed and end > committed:
                task.flush()
                committed = end
        if not run.is_killed:
            task.stop()
        return committed
