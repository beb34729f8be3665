"""What every source with positions promises: restarts that lose and double nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from acktrail.connect.source_batches import Position, SourceBatch, SourcePartition
from acktrail.connect.testing.memory_sink import MemorySink, MemoryTables
from acktrail.connect.testing.random_runs import RandomRun, for_random_runs
from acktrail.connect.testing.source_life_suite import SourceLifeSuite

Positions = Mapping[SourcePartition, Position]


class SourceSuite(SourceLifeSuite):
    """Set also ``write``. `rows` is how many rows a test writes at first: enough for several batches. `patience_s` is
    how long rows may take to come, `quiet_polls` how many polls without rows show that there are no more, `examples`
    how many random sequences are tried."""

    rows: ClassVar[int] = 12
    patience_s: ClassVar[float] = 30.0
    poll_s: ClassVar[float] = 0.05
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
        """A position stands after the rows of its batch: who begins there gets what follows, no more and no less."""
        self.write(self.rows)
        batches = self._read({}, self.rows)
        for count in range(len(batches) + 1):
            before = batches[:count]
            rest = self._read(_positions(before), self.rows - len(self._rows(before)))
            assert sorted([*self._rows(before), *self._rows(rest)]) == sorted(self._rows(batches)), (
                f"a restart after batch {count} of {len(batches)} did not give the rest"
            )

    def test_positions_survive_json(self) -> None:
        """A position is stored as JSON, and is accepted when a person sets it."""
        self.write(self.rows)
        connector = self.connector()
        connector.start()
        for batch in self._read({}, self.rows):
            assert batch.position is not None, "rows without a position are read again after every restart"
            assert json.loads(json.dumps(batch.position)) == batch.position, f"{batch.position!r} is no JSON"
            connector.check_position(batch.source_partition, batch.position)
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

        def check(runs: list[RandomRun]) -> None:
            self.teardown_method()
            self.setup_method()
            tables, written = MemoryTables(), 0
            for run in runs:
                self.write(run.grown)
                written += run.grown
                self._run(tables, run)
            committed = self._committed(tables)
            rest = self._rows(self._read(tables.positions, written - len(committed)))
            assert len({*committed, *rest}) == len(committed) + len(rest) == written

        for_random_runs(check, examples=self.examples)

    def _run(self, tables: MemoryTables, run: RandomRun) -> None:
        sink = MemorySink(tables)
        with self.running(sink.position) as tasks:
            for number in range(run.polls):
                for task in tasks:
                    for batch in task.poll(self.poll_s):
                        sink.put(batch)
                    if number + 1 == run.flushed:
                        commit = sink.flush()
                        if commit.positions and not run.is_killed:
                            task.commit(commit.positions)

    def _committed(self, tables: MemoryTables) -> list[str]:
        return [
            self.identity(name, row)
            for name, parts in tables.rows.items()
            for rows in parts
            for row in rows.to_pylist()
        ]

    def _rows(self, batches: Sequence[SourceBatch]) -> list[str]:
        return [
            self.identity(name, row)
            for batch in batches
            for name, rows in batch.rows.items()
            for row in rows.to_pylist()
        ]

    def _read(self, positions: Positions, wanted: int, *, tasks: int = 1) -> list[SourceBatch]:
        """Batches from `positions` on until `wanted` rows have come and no more follow."""
        stored = json.loads(json.dumps(dict(positions)))
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
