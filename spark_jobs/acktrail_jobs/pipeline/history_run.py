"""The history job: the changes of every share partition, out of the records that came since the last time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.stored_offsets import OffsetRuns, stored_offsets
from acktrail.config import TablesConfig
from acktrail.connect.activity import doing
from acktrail.errors import ConfigurationError
from acktrail.executors import Executors, OpenExecutors, balanced_shares
from acktrail.tables.cluster_check import cluster_of
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.continuity import ensure_whole
from acktrail.tables.exported.record_files import RECORDS, RecordFiles, later_records
from acktrail.tables.past.history_tables import HistoryTables, drop_partitions
from acktrail.tables.saved_states import HISTORY, all_used, files_to_read, source_of
from acktrail_jobs.pipeline.history_step import HISTORY_STEP, RecordRange, apply_ranges

_PARTITIONS_AT_LEAST: Final = 12
"""State partitions in one step, if there are enough with new records: work for several executors."""
RECORDS_AT_ONCE: Final = 125_000
"""Records of one step, each of which is one commit: what driver and executors hold at a time."""


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
        raise ConfigurationError(f"no records in the tables at {stored.root}", hint="run `acktrail export` first")
    run = _Run(stored, records, cluster_id)
    if not run.is_done:
        with open_executors("") as executors:
            while not run.is_done:
                doing(f"history: {run.rows:,} records to go")
                run.step(executors)
    run.close()
    return HistorySummary(**{name: getattr(run, name) for name in HistorySummary.__slots__})


class _Run:
    """One run, step by step. `_bounds`: by state partition, the offset before which this run applied all records."""

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
        self._saved, self._rows = replace(saved, source=source), saved.rows(stored)
        self._paths = files.oldest_first(new.paths)
        self._new = _new_offsets(stored, self._paths, self._saved.positions)
        self._report_from = self._history.positions(self._new)
        self._bounds = {number: int(new.first[0]) for number, new in self._new.items()}
        self.state_partitions = len(self._new)
        self.records = self.changes = self.steps = 0

    @property
    def is_done(self) -> bool:
        """Every record is applied."""
        return not any(count > 0 for count in self._left().values())

    @property
    def rows(self) -> int:
        """How many records are to be applied."""
        return sum(self._left().values())

    def step(self, executors: Executors) -> None:
        """Apply a limited number of records: executors turn them into changes, then two commits follow."""
        ranges = self._next_ranges()
        work = partial(apply_ranges, self._stored.config, self._cluster_id, self._paths, self._saved)
        shares = balanced_shares(ranges, lambda own: own.end - own.begin, executors.count)
        found = executors.run(HISTORY_STEP, shares, work)
        self._bounds |= {own.state_partition: own.end for own in ranges}
        ends = dict(zip(*(found["ranges"][name].to_pylist() for name in ("state_partition", "end")), strict=True))
        self._history.add(found["changes"], found["files"], self._report_from, ends)
        self._report_from |= {number: max(end, self._report_from[number]) for number, end in ends.items()}
        self._rows = pa.concat_tables([drop_partitions(self._rows, found["held"]), found["held"]])
        self._save({**self._saved.positions, **ends})
        self.records += pc.sum(found["ranges"]["records"]).as_py()
        self.changes += found["changes"].num_rows + (pc.sum(found["files"]["rows"]).as_py() or 0)
        self.steps += 1

    def close(self) -> None:
        """Note that all rows are used, where the newest version of the records brought none."""
        if self._saved.used.version != self._newest.version:
            self._save(self._saved.positions)

    def _left(self) -> dict[int, int]:
        """How many records are to be applied, by state partition."""
        return {number: new.count(self._bounds[number], int(new.end[-1])) for number, new in self._new.items()}

    def _next_ranges(self) -> list[RecordRange]:
        """The next records of neighbouring state partitions, from the one with the most left on, an equal quota of
        each. Neighbours lie in the same row groups; few of them, so that ranges are long: saved states are read and
        written once for each range, and compacted records of a state partition have row groups of their own."""
        left = {number: count for number, count in sorted(self._left().items()) if count > 0}
        numbers, chosen = list(left), list[int]()
        first = numbers.index(max(numbers, key=left.__getitem__))
        for number in (*numbers[first:], *numbers[:first]):
            if len(chosen) >= _PARTITIONS_AT_LEAST and sum(left[n] for n in chosen) >= RECORDS_AT_ONCE:
                break
            chosen.append(number)
        quota = max(1, RECORDS_AT_ONCE // len(chosen))
        return [
            RecordRange(
                state_partition=number,
                begin=self._saved.positions.get(number, 0),
                report_from=self._report_from[number],
                end=self._new[number].end_after(self._bounds[number], quota),
            )
            for number in sorted(chosen)
        ]

    def _save(self, positions: Mapping[int, int]) -> None:
        used = self._newest if self.is_done else self._saved.used
        self._saved = self._history.save(replace(self._saved, positions=positions, used=used), self._rows)


def _new_offsets(stored: Tables, paths: Sequence[str], positions: Mapping[int, int]) -> dict[int, OffsetRuns]:
    """The offsets at or after its position (0 where it has none) of each state partition that has any."""
    columns = ("state_partition", "offset")
    batches = stored.file_batches(RECORDS, paths, columns=columns, sparing=True, groups=later_records(positions))
    stored_runs = stored_offsets(batches, {}).runs
    new = {number: runs.above(positions.get(number, 0)) for number, runs in stored_runs.items()}
    return {number: runs for number, runs in new.items() if runs.total}
