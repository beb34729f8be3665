"""Behaviour suites for sources, as those of ``acktrail_connect.testing`` for sinks and transforms."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.log_positions import Position, SourcePartition
from acktrail.text_parsing import parse_json
from acktrail_connect.contract import SourceConnector, SourceTask, SourceTaskContext
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.testing import ConnectorSuite, RandomRun, random_runs

_NEVER_S: Final = 3_600.0
Positions = Mapping[SourcePartition, Position]


class SourceLifeSuite(ConnectorSuite):
    """The part that ``SourceSuite`` and ``ObservationSuite`` have in common. `patience_s` is how long rows may take to
    come, `poll_s` what a poll may take."""

    patience_s: ClassVar[float] = 30.0
    poll_s: ClassVar[float] = 0.05

    def prepare_rows(self) -> None:
        """Let there be something to read."""

    def found_partitions(self) -> set[SourcePartition]:
        """The source partitions of what is there to read."""
        raise NotImplementedError

    def test_stop_needs_no_start_and_may_come_twice(self) -> None:
        """Connector and task can be stopped at any time."""
        connector = self.connector()
        connector.stop()
        connector.start()
        for config in connector.task_configs(1):
            task = connector.task(config)
            task.stop()
            task.stop()
        connector.stop()
        connector.stop()

    def test_tasks_are_no_more_than_asked_for(self) -> None:
        """At least one part of the work, no more than wanted, each of JSON. What REST shows of a source partition leads
        back to it, today and for another object of the connector."""
        self.prepare_rows()
        connector, other = self.connector(), self.connector()
        connector.start()
        for most in (1, 2, 7):
            configs = connector.task_configs(most)
            assert 1 <= len(configs) <= most, f"{len(configs)} tasks, wanted were 1 to {most}"
            assert parse_json(json.dumps(list(configs))) == list(configs), "a task's configuration is not JSON"
            assert not [config for config in configs if None in config.values()], "a task's configuration has null"
        for each in self.found_partitions() | {*connector.source_partitions()}:
            fields = parse_json(json.dumps(dict(connector.fields_of(each))))
            assert connector.source_partition(fields) == each, f"{fields} does not lead back to {each}"
            assert dict(other.fields_of(each)) == fields, "another object gives other fields"
        connector.stop()

    @contextmanager
    def running(
        self, position: Any = lambda _: None, most: int = 1, *, stop: Event | None = None
    ) -> Iterator[list[SourceTask]]:
        """Started tasks, which are stopped at the end. `position` and `stop` are the context's."""
        connector: SourceConnector = self.connector()
        tasks: list[SourceTask] = []
        try:
            connector.start()
            for config in connector.task_configs(most):
                tasks.append(connector.task(config))
                tasks[-1].start(SourceTaskContext(position=position, stop=stop or Event()))
            yield tasks
        finally:
            for task in tasks:
                task.stop()
            connector.stop()


class SourceSuite(SourceLifeSuite):
    """What a source with positions promises: restarts that lose and double nothing. Set also ``write``. `rows` is how
    many rows a test writes at first: enough for several batches; `quiet_polls` how many polls without rows show that
    there are no more, `examples` how many random sequences are tried."""

    rows: ClassVar[int] = 12
    quiet_polls: ClassVar[int] = 3
    examples: ClassVar[int] = 15

    def write(self, count: int) -> None:
        """Let the origin grow by `count` rows, each different from all others."""
        raise NotImplementedError

    def prepare_rows(self) -> None:
        self.write(self.rows)

    def found_partitions(self) -> set[SourcePartition]:
        return {batch.source_partition for batch in self._read({}, self.rows)}

    def identity(self, table: str, row: Mapping[str, Any]) -> str:
        """What makes a row the same when it is read again: by default all of it."""
        return f"{table} {json.dumps(row, sort_keys=True, default=repr)}"

    def test_everything_is_read_once(self) -> None:
        """From no position, by one task or several, every row comes once, in tables of one source partition each."""
        self.write(self.rows)
        for most in (1, 3):
            batches = self._read({}, self.rows, tasks=most)
            assert len({*self._rows(batches)}) == len(self._rows(batches)) == self.rows
            for each in {batch.source_partition for batch in batches}:
                tables = {name for batch in batches if batch.source_partition == each for name in batch.rows}
                assert len(tables) <= 1, f"{each} gives rows for {sorted(tables)}: it has one position"

    def test_a_restart_at_every_position_gives_exactly_the_rest(self) -> None:
        """A position stands after the rows of its batch: who begins there gets what follows, no more and no less. It is
        stored as JSON, and is accepted when a person sets it."""
        self.write(self.rows)
        batches, connector = self._read({}, self.rows), self.connector()
        connector.start()
        for count, batch in enumerate(batches, 1):
            assert batch.position is not None, "rows without a position are read again after every restart"
            assert parse_json(json.dumps(batch.position)) == batch.position, f"{batch.position!r} is no JSON"
            connector.check_position(batch.source_partition, batch.position)
            before = batches[:count]
            rest = self._read(_positions(before), self.rows - len(self._rows(before)))
            assert sorted([*self._rows(before), *self._rows(rest)]) == sorted(self._rows(batches)), (
                f"a restart after batch {count} of {len(batches)} did not give the rest"
            )
        connector.stop()

    def test_an_idle_source_gives_no_rows(self) -> None:
        """At its end a source gives nothing; what is written then comes without what came before."""
        self.write(self.rows)
        batches = self._read({}, self.rows)
        assert not self._rows(self._read(_positions(batches), 0))
        self.write(1)
        assert len(self._rows(self._read(_positions(batches), 1))) == 1

    def test_restarts_lose_and_double_nothing(self) -> None:
        """Runs of any length over an origin that grows, each killed at some moment: every row once, in the end."""
        for runs in random_runs(self.examples):
            self.begin_again()
            positions: dict[SourcePartition, Position] = {}
            committed: list[str] = []
            for run in runs:
                self.write(run.grown)
                committed += self._run(positions, run)
            written = sum(run.grown for run in runs)
            rest = self._rows(self._read(positions, written - len(committed)))
            assert len({*committed, *rest}) == len(committed) + len(rest) == written

    def _run(self, positions: dict[SourcePartition, Position], run: RandomRun) -> list[str]:
        """Moves `positions` in one commit, or in none; gives the rows of it."""
        with self.running(dict(positions).get) as (task,):
            polled = [task.poll(self.poll_s) for _ in range(run.polls)]
            batches = [batch for each in polled[: run.flushed] for batch in each] if run.flushed <= run.polls else []
            positions |= _positions(batches)
            if batches and not run.is_killed:
                task.commit(_positions(batches))
        return self._rows(batches)

    def _rows(self, batches: Sequence[SourceBatch]) -> list[str]:
        tables = [(name, rows) for batch in batches for name, rows in batch.rows.items()]
        return [self.identity(name, row) for name, rows in tables for row in rows.to_pylist()]

    def _read(self, positions: Positions, wanted: int, *, tasks: int = 1) -> list[SourceBatch]:
        """Batches from `positions` on until `wanted` rows have come and no more follow."""
        stored = parse_json(json.dumps(dict(positions)))
        found: list[SourceBatch] = []
        quiet, deadline = 0, time.monotonic() + self.patience_s
        with self.running(stored.get, tasks) as running:
            while quiet < self.quiet_polls or len(self._rows(found)) < wanted:
                assert time.monotonic() < deadline, f"{len(self._rows(found))} of {wanted} rows came in time"
                came = [batch for task in running for batch in task.poll(self.poll_s)]
                quiet = 0 if self._rows(came) else quiet + 1
                found += came
        return found


def _positions(batches: Sequence[SourceBatch]) -> dict[SourcePartition, Position]:
    return {batch.source_partition: batch.position for batch in batches if batch.position is not None}


class ObservationSuite(SourceLifeSuite):
    """What a source on a schedule promises: rows under runs of their own. Configure the shortest schedule there is.
    `looks` is how many runs a test waits for. `listings` are tables that a batch has as a whole, and that a sink renews
    each time."""

    looks: ClassVar[int] = 2
    listings: ClassVar[frozenset[str]] = frozenset()

    def found_partitions(self) -> set[SourcePartition]:
        with self.running() as tasks:
            return {batch.source_partition for batch in self._seen(tasks, 1)}

    def test_each_run_is_seen_once_and_has_no_position(self) -> None:
        """A sink keeps each batch once by its run, so all its rows have the same one, and no position moves. No run
        gives rows of one table and phase twice, and none comes again after a restart."""
        lives = []
        for _ in range(2):
            with self.running() as tasks:
                lives.append(self._seen(tasks, self.looks))
        for batch in (batch for batches in lives for batch in batches):
            assert batch.position is None, f"{batch.position!r} says that rows follow it: these do not"
            assert batch.span is None, "observations are no part of a log"
            runs = _runs([batch])
            assert len(runs) == 1, f"a batch has rows of the runs {sorted(runs)}"
            assert runs != {""}, "rows lack a run_id: a sink would keep them again after every restart"
        before, after = (_runs(batches) for batches in lives)
        assert not before & after, f"after a restart the run {sorted(before & after)} came again: a sink drops its rows"
        keys = [key for batches in lives for batch in batches for key in _keys(batch) if key[0] not in self.listings]
        assert len(keys) == len({*keys}), f"more than one batch of {sorted({k for k in keys if keys.count(k) > 1})}"

    def test_a_wait_ends_when_it_is_told_to(self) -> None:
        """A task whose time has not come can be stopped at once, however long a poll may take."""
        stop = Event()
        with self.running(stop=stop) as tasks:
            self._seen(tasks, 1)
            stop.set()
            began = time.monotonic()
            for task in tasks:
                task.poll(_NEVER_S)
            assert time.monotonic() - began < self.patience_s, "a poll waited although the worker wants an end"

    def _seen(self, tasks: Sequence[SourceTask], looks: int) -> list[SourceBatch]:
        """Batches until there are `looks` runs."""
        found: list[SourceBatch] = []
        deadline = time.monotonic() + self.patience_s
        while len(_runs(found)) < looks:
            assert time.monotonic() < deadline, f"{len(_runs(found))} of {looks} looks came in time"
            found += [batch for task in tasks for batch in task.poll(self.poll_s)]
        return found


def _runs(batches: Sequence[SourceBatch]) -> set[str]:
    """The runs of all rows; empty text: rows that name none."""
    return {run for batch in batches for _, run, _ in _keys(batch)}


def _keys(batch: SourceBatch) -> list[tuple[str, str, str]]:
    """Table, run and phase of the batch's rows."""
    return [
        (name, run or "", phase or "")
        for name, rows in batch.rows.items()
        for run in _values(rows, "run_id")
        for phase in _values(rows, "phase")
    ]


def _values(rows: pa.Table, name: str) -> list[str | None]:
    if not rows.num_rows:
        return []
    return pc.unique(rows[name]).to_pylist() if name in rows.column_names else [None]
