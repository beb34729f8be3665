"""The history job: the changes of every share partition, out of the records that came since the last time.

For example::

    ``held_states``: 3:0 to 3:39 are applied     the records from 3:40 on are new
    state records 3:40 to 3:49                   a step or more: executors turn them into changes
    changes, states after 3:49                   committed, the changes first: stopped in between, the next run goes
                                                 through these records again and adds no change twice
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.connect.activity import doing
from acktrail.errors import ConfigurationError
from acktrail.executors import Executors, InProcess, OpenExecutors
from acktrail.reconcile.past.history_tables import CHANGES, HistoryTables, change_positions
from acktrail.reconcile.past.saved_states import HISTORY, all_used, files_to_read, source_of
from acktrail.tables.cluster_check import cluster_of
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.continuity import ensure_whole
from acktrail.tables.exported.record_files import RECORDS, RecordFiles
from acktrail_jobs.pipeline.history_step import HISTORY_STEP, PlannedStep, StepRecords, apply_share, planned_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummary:
    """Counts of a run: new records, state partitions that have some, changes they made, and steps (commits)."""

    records: int
    changes: int
    state_partitions: int
    steps: int


def build_history(tables: TablesConfig, open_executors: OpenExecutors) -> HistorySummary:
    """Bring ``delivery_history`` up to the end of ``state_records``, reading only what is new.

    Stopped at any time it continues where its tables end. No executors are opened where nothing is new.

    Raises:
        ConfigurationError: nothing was exported, or the tables cannot be read or written.
        ForeignCluster: the history is another cluster's.
        ConcurrentCommit: the history is being built elsewhere.
    """
    stored = Tables(tables)
    ensure_whole(stored)
    records = stored.snapshot(RECORDS)
    cluster_id = None if records is None else cluster_of(records)
    if records is None or cluster_id is None:
        raise ConfigurationError(f"no records in the tables at {stored.root}", hint="run `acktrail run export` first")
    run = _Run(stored, records, cluster_id)
    if run.planned:
        with open_executors("") as executors:
            while run.planned:
                doing(f"history: {run.rows:,} records to go")
                run.step(executors)
    run.close()
    return HistorySummary(**{name: getattr(run, name) for name in HistorySummary.__slots__})


class _Run:
    """One run, step by step; `planned`: those to come."""

    def __init__(self, stored: Tables, records: TableSnapshot, cluster_id: str) -> None:
        self._stored, self._cluster_id = stored, cluster_id
        self._history = HistoryTables(stored, cluster_id)
        files = RecordFiles(stored, records)
        self._newest, source = all_used(files), source_of(records, HISTORY)
        saved = self._history.saved()
        new = files_to_read(saved, records, files)
        if new.changed is not None:
            if self._history.has_begun or saved.step is not None:
                doing(f"history: starts again from the first record: {new.changed}", stays=True)
            saved = saved.without(new.changed)
        self._saved = replace(saved, source=source)
        self.planned = planned_steps(stored, files.oldest_first(new.paths), self._saved.positions)
        numbers = {number for step in self.planned for number in step.ends}
        self._report_from = change_positions(stored, numbers)
        self.state_partitions = len(numbers)
        self.records = self.changes = self.steps = 0

    @property
    def rows(self) -> int:
        """How many records are to be applied."""
        return sum(step.rows for step in self.planned)

    def step(self, executors: Executors) -> None:
        """Apply the records of a step: executors turn them into changes, then two commits follow."""
        step = self.planned.pop(0)
        found = self._applied(executors, step)
        own = found["files"].filter(pc.equal(found["files"]["table"], CHANGES))
        self._history.add(found["changes"], own, self._report_from, step.ends)
        self._report_from |= {number: max(end, self._report_from[number]) for number, end in step.ends.items()}
        self._save(found, step)
        self.records += step.rows
        self.changes += found["changes"].num_rows + (pc.sum(own["rows"]).as_py() or 0)
        self.steps += 1

    def close(self) -> None:
        """Note that all rows are used, where the newest version of the records brought none."""
        if self._saved.used.version != self._newest.version:
            self._save(self._applied(InProcess(), PlannedStep()), PlannedStep())

    def _applied(self, executors: Executors, step: PlannedStep) -> dict[str, pa.Table]:
        """Results of ``HISTORY_STEP``: of all state partitions, as all states are written again."""
        positions = self._saved.positions
        new = StepRecords(step=step, begins=positions, report_from=self._report_from)
        work = partial(apply_share, self._stored.config, self._cluster_id, new, self._saved)
        return executors.run(HISTORY_STEP, step.shares(positions, executors.count), work)

    def _save(self, found: Mapping[str, pa.Table], step: PlannedStep) -> None:
        used = self._saved.used if self.planned else self._newest
        counts = dict(zip(*(column.to_pylist() for column in found["held"].columns), strict=True))
        saved = replace(self._saved, positions={**self._saved.positions, **step.ends}, used=used)
        self._saved = self._history.save(saved, found["files"], counts)
