"""What a source promises that looks at its origin on a schedule: rows without a position, under runs of their own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Event
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.contract import SourceTask
from acktrail.connect.source_batches import SourceBatch, SourcePartition
from acktrail.connect.testing.source_life_suite import SourceLifeSuite

_RUN: Final = "run_id"
_PHASE: Final = "phase"
_NEVER_S: Final = 3_600.0


class ObservationSuite(SourceLifeSuite):
    """Configure the shortest schedule there is. `looks` is how many runs a test waits for, `patience_s` for how long,
    `poll_s` what a poll may take. `listings` are tables that a batch has as a whole, and that a sink renews each
    time."""

    looks: ClassVar[int] = 2
    patience_s: ClassVar[float] = 30.0
    poll_s: ClassVar[float] = 0.05
    listings: ClassVar[frozenset[str]] = frozenset()

    def found_partitions(self) -> set[SourcePartition]:
        with self.running() as tasks:
            return {batch.source_partition for batch in self._seen(tasks, 1)}

    def test_observations_have_a_run_and_no_position(self) -> None:
        """A sink keeps each batch once by its run, so that all its rows have the same one, and no position moves."""
        with self.running() as tasks:
            for batch in self._seen(tasks, self.looks):
                assert batch.position is None, f"{batch.position!r} says that rows follow it: these do not"
                assert batch.span is None, "observations are no part of a log"
                runs = _runs([batch])
                assert len(runs) == 1, f"a batch has rows of the runs {sorted(runs)}"
                assert runs != {""}, "rows lack a run_id: a sink would keep them again after every restart"

    def test_each_run_is_seen_once(self) -> None:
        """No run gives rows of one table and phase twice, and none comes again after a restart."""
        lives = []
        for _ in range(2):
            with self.running() as tasks:
                lives.append(self._seen(tasks, self.looks))
        before, after = (_runs(batches) for batches in lives)
        assert not before & after, f"after a restart the run {sorted(before & after)} came again: a sink drops its rows"
        keys = [key for batches in lives for batch in batches for key in _keys(batch)]
        keys = [key for key in keys if key[0] not in self.listings]
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
        for run in _values(rows, _RUN)
        for phase in _values(rows, _PHASE)
    ]


def _values(rows: pa.Table, name: str) -> list[str | None]:
    if not rows.num_rows:
        return []
    return pc.unique(rows[name]).to_pylist() if name in rows.column_names else [None]
