"""The history job: the changes of every share partition, out of the records that came since the last time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.stored_offsets import OffsetRuns, stored_offsets
from acktrail.config import TablesConfig
from acktrail.connect.activity import doing
from acktrail.errors import ConfigurationError
from acktrail.history.history_step import STEP_RESULTS, ApplyRanges, RecordRange
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.continuity import ensure_whole
from acktrail.tables.exported.record_files import (
    RECORDS,
    RecordFiles,
    UsedRecords,
    files_digest,
    new_records,
    replaced_version,
)
from acktrail.tables.past.history_tables import HistoryTables, SavedStates, drop_partitions
from acktrail.workers import OpenWorkers, Workers, run_in_turn

_PARTITIONS_AT_LEAST: Final = 8
"""State partitions in one step, if there are enough with new records: work for several workers."""

RECORDS_AT_ONCE: Final = 125_000
"""Records of one step, each of which is one commit: what driver and workers hold at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummary:
    """Counts of a run: new records, state partitions that have some, changes they made, and steps (commits)."""

    records: int
    changes: int
    state_partitions: int
    steps: int


def build_history(tables: TablesConfig, open_workers: OpenWorkers) -> HistorySummary:
    """Bring ``delivery_history`` up to the end of ``state_records``, reading only what is new.

    Stopped at any time it continues where its tables end. No workers are opened where nothing is new.

    Raises:
        ConfigurationError: nothing was exported, or the tables cannot be read or written.
        ForeignCluster: the history is another cluster's.
        ConcurrentCommit: the history is being built elsewhere.
    """
    stored = Tables(tables)
    ensure_whole(stored)
    records = stored.snapshot(RECORDS)
    if records is None:
        raise _nothing_exported(stored)
    run = _Run(stored, records)
    if not run.is_done:
        with open_workers(run.rows) as workers:
            while not run.is_done:
                doing(f"history: about {run.rows:,} records to go")
                run.step(workers)
    run.close()
    return HistorySummary(
        records=run.records, changes=run.changes, state_partitions=run.state_partitions, steps=run.steps
    )


class _Run:
    """One run, step by step. `_bounds`: by state partition, the offset before which this run applied all records."""

    def __init__(self, stored: Tables, records: TableSnapshot) -> None:
        self._stored = stored
        self._history = HistoryTables(stored, _cluster_id(stored, records))
        files = RecordFiles(stored, records)
        self._newest = UsedRecords(version=files.version, digest=files_digest(files.paths))
        self._saved = _usable(stored, self._newest, self._history.saved())
        self._paths = sorted(new_records(files, _used(self._saved)).paths)
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
        """About how many records are new."""
        return sum(self._left().values())

    def step(self, workers: Workers) -> None:
        """Apply a limited number of records: workers turn them into changes, then two commits follow."""
        ranges = self._next_ranges()
        work = ApplyRanges(config=self._stored.config, paths=self._paths, has_saved=bool(self._saved.positions))
        found = run_in_turn(workers, ranges, work, STEP_RESULTS)
        self._bounds |= {own.state_partition: own.end for own in ranges}
        self._commit(found)
        self.records += pc.sum(found["ranges"]["records"]).as_py()
        self.changes += found["changes"].num_rows
        self.steps += 1

    def close(self) -> None:
        """Note that all rows are used, where the newest version of the records brought none."""
        if self._saved.records_version != self._newest.version:
            self._save(self._all_used(self._saved))

    def _left(self) -> dict[int, int]:
        """About how many records are to be applied, by state partition."""
        return {number: int(new.end[-1]) - self._bounds[number] for number, new in self._new.items()}

    def _next_ranges(self) -> list[RecordRange]:
        """The next records of the state partitions in turn, an equal quota of each; the longest range first."""
        numbers = self._partitions_in_turn()
        quota = max(1, RECORDS_AT_ONCE // len(numbers))
        ranges = [
            RecordRange(
                state_partition=number,
                begin=self._saved.positions.get(number, 0),
                report_from=self._report_from[number],
                end=self._new[number].end_after(self._bounds[number], quota),
            )
            for number in numbers
        ]
        return sorted(ranges, key=lambda own: own.begin - own.end)

    def _partitions_in_turn(self) -> list[int]:
        """The state partitions with the most records left, until they fill a step. Few, so that ranges are long: the
        saved states of a state partition are read and written once for each of its ranges."""
        left = self._left()
        chosen: list[int] = []
        records = 0
        for number in sorted((number for number, count in left.items() if count > 0), key=lambda n: (-left[n], n)):
            if len(chosen) >= _PARTITIONS_AT_LEAST and records >= RECORDS_AT_ONCE:
                break
            chosen.append(number)
            records += left[number]
        return chosen

    def _commit(self, found: dict[str, pa.Table]) -> None:
        ends = dict(zip(*(found["ranges"][name].to_pylist() for name in ("state_partition", "end")), strict=True))
        self._history.add(found["changes"], self._report_from, ends)
        self._report_from |= {number: max(end, self._report_from[number]) for number, end in ends.items()}
        saved = replace(
            self._saved,
            rows=pa.concat_tables([drop_partitions(self._saved.rows, found["held"]), found["held"]]),
            positions={**self._saved.positions, **ends},
        )
        self._save(self._all_used(saved) if self.is_done else saved)

    def _all_used(self, saved: SavedStates) -> SavedStates:
        return replace(saved, records_version=self._newest.version, records_files=self._newest.digest)

    def _save(self, saved: SavedStates) -> None:
        self._saved = self._history.save(saved)


def _used(saved: SavedStates) -> UsedRecords:
    return UsedRecords(version=saved.records_version, digest=saved.records_files)


def _usable(stored: Tables, newest: UsedRecords, saved: SavedStates) -> SavedStates:
    """`saved`; nothing of it where the table has other records now than those it was made from."""
    used = _used(saved)
    if used == newest or (used.version <= newest.version and replaced_version(stored, used) is None):
        return saved
    return SavedStates(step=saved.step)


def _new_offsets(stored: Tables, paths: Sequence[str], positions: Mapping[int, int]) -> dict[int, OffsetRuns]:
    """The offsets at or after its position (0 where it has none) of each state partition that has any."""
    columns = ("state_partition", "offset")
    batches = (batch for path in paths for batch in stored.read_files(RECORDS, [path], columns=columns).to_batches())
    stored_runs = stored_offsets(batches, {}).runs
    new = {number: runs.above(positions.get(number, 0)) for number, runs in stored_runs.items()}
    return {number: runs for number, runs in new.items() if runs.total}


def _cluster_id(stored: Tables, records: TableSnapshot) -> str:
    """Whose records they are. Tables that do not say are asked for a row."""
    named = records.properties.get("cluster_id")
    if named:
        return named
    for batch in records.batches(columns=["cluster_id"]):
        if batch.num_rows:
            return str(batch["cluster_id"][0].as_py())
    raise _nothing_exported(stored)


def _nothing_exported(stored: Tables) -> ConfigurationError:
    return ConfigurationError(f"no records in the tables at {stored.root}", hint="run `acktrail export` first")
