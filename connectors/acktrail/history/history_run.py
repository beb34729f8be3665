"""The history job: the changes of every share partition, out of the records that came since the last time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import or_
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.held_rows import HELD_COLUMNS
from acktrail.config import TablesConfig
from acktrail.connect.activity import doing
from acktrail.errors import ConfigurationError
from acktrail.history.history_step import GROWTH_COLUMNS, Stretch, exported_spans, grow
from acktrail.history.packed_changes import Collected, packed, unpacked
from acktrail.history.unread_offsets import new_offsets
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.continuity import ensure_whole
from acktrail.tables.exported.record_files import RECORDS, files_digest
from acktrail.tables.past.history_tables import HistoryTables, SavedStates, drop_partitions, saved_rows
from acktrail.workers.workers import OpenWorkers, Workers

__all__ = ["HistorySummary", "build_history"]

_PARTITIONS_AT_LEAST: Final = 8
"""State partitions in one step, where so many have new records: work for several workers."""

RECORDS_AT_ONCE: Final = 125_000
"""Records of one step, each of which is one commit: what driver and workers hold at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummary:
    """New records, on how many state partitions, the changes they made, and in how many commits."""

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
    records = stored.snapshot("state_records")
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
    """One run, step by step."""

    def __init__(self, stored: Tables, snapshot: TableSnapshot) -> None:
        self._stored = stored
        self._version = snapshot.version
        self._history = HistoryTables(stored, _cluster_id(stored, snapshot))
        self._files = files_digest(file.path for file in snapshot.files())
        self._holding = _usable(stored, snapshot.version, self._files, self._history.saved())
        self._paths = tuple(file.path for file in stored.files_since(snapshot, self._holding.records_version))
        self._new = new_offsets(_addresses(stored, self._paths), self._holding.positions)
        self._told = self._history.positions(self._new)
        self._bounds = {number: new.first for number, new in self._new.items()}
        self.state_partitions = len(self._new)
        self.records = self.changes = self.steps = 0

    @property
    def is_done(self) -> bool:
        """Every record is applied."""
        return all(self._bounds[number] >= new.end for number, new in self._new.items())

    @property
    def rows(self) -> int:
        """About how many records are new."""
        return sum(new.end - self._bounds[number] for number, new in self._new.items())

    def step(self, workers: Workers) -> None:
        """Apply a limited number of records: workers grow them to changes, then two commits follow."""
        stretches = self._stretches()
        count = min(len(stretches), workers.count)
        shares = [tuple(stretches[worker::count]) for worker in range(count)]
        work = _Work(config=self._stored.config, paths=self._paths, goes_on=bool(self._holding.positions))
        done = unpacked(workers.run(shares, work))
        self._bounds |= {stretch.state_partition: stretch.end for stretch in stretches}
        self._commit(done)
        self.records += done.records
        self.changes += done.changes.num_rows
        self.steps += 1

    def close(self) -> None:
        """Remember that all rows are used, where the newest version of the records brought none."""
        if self._holding.records_version != self._version:
            self._hold(replace(self._holding, records_version=self._version, records_files=self._files))

    def _stretches(self) -> list[Stretch]:
        """As many records of each state partition in turn as share the limit, the longest stretch first."""
        numbers = self._in_turn()
        quota = max(1, RECORDS_AT_ONCE // len(numbers))
        stretches = [
            Stretch(
                state_partition=number,
                begin=self._holding.positions.get(number, 0),
                told=self._told[number],
                end=self._new[number].end_of(self._bounds[number], quota),
            )
            for number in numbers
        ]
        return sorted(stretches, key=lambda stretch: stretch.begin - stretch.end)

    def _in_turn(self) -> list[int]:
        """The state partitions with the most records left, as many as fill a step, but some in any case: what is held
        of a state partition is read and written once for each of its stretches, so these should be long."""
        left = {number: new.end - self._bounds[number] for number, new in self._new.items()}
        chosen: list[int] = []
        records = 0
        for number in sorted((number for number, count in left.items() if count > 0), key=lambda n: (-left[n], n)):
            if len(chosen) >= _PARTITIONS_AT_LEAST and records >= RECORDS_AT_ONCE:
                break
            chosen.append(number)
            records += left[number]
        return chosen

    def _commit(self, done: Collected) -> None:
        self._history.add(done.changes, self._told, done.ends)
        self._told |= {number: max(end, self._told[number]) for number, end in done.ends.items()}
        self._hold(
            replace(
                self._holding,
                rows=pa.concat_tables([drop_partitions(self._holding.rows, done.held), done.held]),
                positions={**self._holding.positions, **done.ends},
                records_version=self._version if self.is_done else self._holding.records_version,
                records_files=self._files if self.is_done else self._holding.records_files,
            )
        )

    def _hold(self, holding: SavedStates) -> None:
        self._holding = self._history.save(holding)


def _usable(stored: Tables, version: int, files: str, holding: SavedStates) -> SavedStates:
    """`holding`; nothing of it where the table came back with other records since it was made, from an older copy that
    was restored. `files`: the digest of the files at `version`."""
    used: str | None = files
    if holding.records_version != version:
        paths = stored.paths_at(RECORDS, holding.records_version)
        used = None if paths is None else files_digest(paths)
    is_another = used is not None and holding.records_files not in (None, used)
    return SavedStates(step=holding.step) if is_another or holding.records_version > version else holding


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


def _addresses(stored: Tables, paths: Sequence[str]) -> Iterator[pa.Table]:
    """State partition and offset of the records in each file."""
    return (stored.read_files("state_records", [path], columns=["state_partition", "offset"]) for path in paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What a worker does with its stretches. `goes_on`: from what is held; else from nothing."""

    config: TablesConfig
    paths: Sequence[str]
    goes_on: bool

    def __call__(self, stretches: Sequence[Stretch]) -> Iterator[pa.RecordBatch]:
        """The parcels of `stretches`."""
        stored = Tables(self.config)
        held = self._held(stored, stretches)
        where = reduce(or_, (_within(stretch) for stretch in stretches))
        records = stored.read_files("state_records", self.paths, columns=GROWTH_COLUMNS, where=where)
        for stretch in stretches:
            is_own = pc.field("state_partition") == stretch.state_partition
            grown = grow(stretch, records.filter(is_own), held.filter(is_own), partial(exported_spans, stored))
            yield from packed(stretch.state_partition, grown)

    def _held(self, stored: Tables, stretches: Sequence[Stretch]) -> pa.Table:
        if not self.goes_on:
            return HELD_COLUMNS.empty_table()
        return saved_rows(stored, pc.field("state_partition").isin([stretch.state_partition for stretch in stretches]))


def _within(stretch: Stretch) -> pc.Expression:
    offset = pc.field("offset")
    is_own = pc.field("state_partition") == stretch.state_partition
    return is_own & (offset >= stretch.begin) & (offset < stretch.end)
