"""The history job: the changes of every share partition, out of the records that came since the last time.

For example::

    ``held_states``: 3:0 to 3:39 are applied     the records from 3:40 on are new
    state records 3:40 to 3:49                   a step or more: executors turn them into changes
    changes, states after 3:49                   committed, the changes first: stopped in between, the next run goes
                                                 through these records again and adds no change twice

A step takes some records, file after file, so that each is read once for all state partitions. With two exports of a
million records each, 3:0 to 3:39 in the file of the first, 3:40 to 3:49 in the other one: one step of both files, which
ends before 3:50. A file of a third export would be a step of its own. An executor works on the records of its state
partitions; of the first two of a share partition::

    3:40 snapshot, start offset 0                offsets from 0 on: `unrecorded`
    3:41 update, 0 to 6 acknowledged, count 1    offsets 0 to 6: `unrecorded` -> `recorded`, state 2, count 1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.activity import doing
from acktrail.config import TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.format.columns.binary_column import Int64Array
from acktrail.format.columns.record_columns import HELD_COLUMNS, RECORD_COLUMNS
from acktrail.format.columns.schemas.table_schemas import DELIVERY_HISTORY
from acktrail.history import history_tables
from acktrail.history.record_changes import record_changes
from acktrail.history.saved_states import HISTORY, SavedStates, all_used, files_to_read, source_of, with_cluster
from acktrail.replay.stored_offsets import OffsetRuns, stored_offsets
from acktrail.tables.cluster_check import cluster_of
from acktrail.tables.delta.delta_log_writer import WRITTEN_FILES, write_data_file
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.records.continuity import ensure_whole
from acktrail.tables.records.record_files import (
    RECORDS,
    RecordFiles,
    bounds_of,
    later_records,
    record_tables,
    records_between,
    rows_between,
)
from acktrail_jobs.frames import JobSession, collected_pieces, frame_of, in_process, list_columns, one_row, rows_in
from acktrail_jobs.pieces import pieces_of_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORDS_OF_A_STEP: Final = 2_000_000
"""Records of one step, each of which is two commits, if one file does not have more: what a run that is stopped does
again."""
_AT_ONCE: Final = 250_000
"""The same where records are not in order: executors hold all that a step has."""
HISTORY_INPUTS: Final = ("state_partition", "timestamp_ms", *RECORD_COLUMNS)
"""The columns of ``state_records`` that the history needs."""
_LOG_ORDER: Final = [("state_partition", "ascending"), ("offset", "ascending")]
_COUNTS: Final = pa.schema([("state_partition", pa.int32()), ("share_partitions", pa.int64())])
_BUILT: Final = list_columns(changes=DELIVERY_HISTORY, files=WRITTEN_FILES, held=_COUNTS)
"""What an executor leaves of some state partitions: changes, files, and how many states each has."""
_ROWS_OF_A_FILE: Final = 16_384
"""Changes that an executor writes itself. Fewer go to the driver, which puts them beside those of the runs before."""
RECORDS_AT_ONCE: Final = 65_536
"""Records that an executor applies at once."""
CommitSpans = Callable[[int, int], Sequence[tuple[int, int]]]
"""First and last offset of each commit of the exporter with records of a state partition, from an offset on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummary:
    """Counts of a run: new records, state partitions that have some, changes they made, and steps (commits)."""

    records: int
    changes: int
    state_partitions: int
    steps: int


def build_history(tables: TablesConfig, spark: JobSession) -> HistorySummary:
    """Bring ``delivery_history`` up to the end of ``state_records``, reading only what is new.

    Stopped at any time it continues where its tables end. Executors get no work where nothing is new.

    Raises:
        ConfigurationError: nothing was exported, or the tables cannot be read or written.
        ForeignCluster: the history is another cluster's.
        ConcurrentCommit: the history is being built elsewhere.
    """
    stored = Tables(tables)
    ensure_whole(stored)
    records = _records(stored)
    run = _Run(stored, records, cluster_of(records) or "")
    while run.planned:
        doing(f"history: {run.rows:,} records to go")
        run.step(spark)
    run.close()
    return HistorySummary(**{name: getattr(run, name) for name in HistorySummary.__slots__})


class _Run:
    """One run, step by step; `planned`: those to come."""

    def __init__(self, stored: Tables, records: TableSnapshot, cluster_id: str) -> None:
        self._stored, self._cluster_id = stored, cluster_id
        self._history = history_tables.HistoryTables(stored, cluster_id)
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
        self._report_from = history_tables.change_positions(stored, numbers)
        self.state_partitions = len(numbers)
        self.records = self.changes = self.steps = 0

    @property
    def rows(self) -> int:
        """How many records are to be applied."""
        return sum(step.rows.total() for step in self.planned)

    def step(self, spark: JobSession) -> None:
        """Apply the records of a step: executors turn them into changes, then two commits follow."""
        step = self.planned.pop(0)
        found = self._applied(spark, step)
        changes = rows_in(found, "changes")
        own = rows_in(found, "files").filter(pc.field("table") == history_tables.CHANGES)
        self._history.add(changes, own, self._report_from, step.ends)
        self._report_from |= {number: max(end, self._report_from[number]) for number, end in step.ends.items()}
        self._save(found, step)
        self.records += step.rows.total()
        self.changes += changes.num_rows + (pc.sum(own["rows"]).as_py() or 0)
        self.steps += 1

    def close(self) -> None:
        """Note that all rows are used, where the newest version of the records brought none."""
        if self._saved.used.version != self._newest.version:
            self._save(self._applied(in_process(), PlannedStep()), PlannedStep())

    def _applied(self, spark: JobSession, step: PlannedStep) -> pa.Table:
        """Rows of ``_BUILT``: of all state partitions, as all states are written again."""
        positions = self._saved.positions
        new = StepRecords(step=step, begins=positions, report_from=self._report_from)
        built = partial(build_piece, self._stored.config, self._cluster_id, new, self._saved)
        numbers, saved = sorted({**positions, **step.ends}), self._saved.share_partitions
        pieces = pieces_of_records(numbers, step.rows.__getitem__, files=len(step.paths), share_partitions=saved)
        return collected_pieces(spark, f"build the history of {step.rows.total():,} records", pieces, built, _BUILT)

    def _save(self, found: pa.Table, step: PlannedStep) -> None:
        used = self._saved.used if self.planned else self._newest
        counts = dict(zip(*(column.to_pylist() for column in rows_in(found, "held").columns), strict=True))
        saved = replace(self._saved, positions={**self._saved.positions, **step.ends}, used=used)
        self._saved = self._history.save(saved, rows_in(found, "files"), counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecords:
    """The records of a `step`, from `begins` on: offsets by state partition. The history has the changes of those
    before `report_from`: they are applied to the states, and their changes are left out."""

    step: PlannedStep
    begins: Mapping[int, int]
    report_from: Mapping[int, int]

    def pieces(self, tables: Tables, numbers: Sequence[int]) -> Iterator[pa.Table]:
        """Rows of ``HISTORY_INPUTS`` of some state partitions, by state partition and offset, piece by piece: all of
        them at once where they are not in order."""
        ends = {number: self.step.ends[number] for number in numbers if number in self.step.ends}
        if not ends:
            return
        groups = records_between(self.begins, ends)
        batches = tables.file_batches(RECORDS, self.step.paths, columns=HISTORY_INPUTS, sparing=True, groups=groups)
        own = (rows_between(batch, self.begins, ends) for batch in batches)
        for piece in record_tables(own, RECORDS_AT_ONCE if self.step.in_order else None):
            yield piece.sort_by(_LOG_ORDER)


def all_changes(spark: JobSession, stored: Tables) -> DataFrame:
    """Rows of ``DELIVERY_HISTORY``: what all state records make, from the first one on. Raises ConfigurationError
    (nothing was exported)."""
    records = _records(stored)
    files = RecordFiles(stored, records)
    steps = planned_steps(stored, files.oldest_first(files.paths), {})
    rows = sum((step.rows for step in steps), Counter[int]())
    pieces = pieces_of_records(sorted(rows), rows.__getitem__, files=len(files.paths), share_partitions=0)
    making = partial(_changes_of_piece, stored.config, cluster_of(records) or "", steps)
    return frame_of(spark, pieces, making, DELIVERY_HISTORY)


def _changes_of_piece(
    config: TablesConfig, cluster_id: str, steps: Sequence[PlannedStep], numbers: Sequence[int]
) -> Iterator[pa.Table]:
    tables, held = Tables(config), HELD_COLUMNS.empty_table()
    ends: dict[int, int] = {}
    for step in steps:
        for records in StepRecords(step=step, begins=dict(ends), report_from={}).pieces(tables, numbers):
            made, held, reached = apply_records(records, held, ends, {}, partial(commit_spans, tables))
            ends |= reached
            yield history_tables.history_rows(made, cluster_id).cast(DELIVERY_HISTORY)


def _records(stored: Tables) -> TableSnapshot:
    records = stored.snapshot(RECORDS)
    if records is None or cluster_of(records) is None:
        raise ConfigurationError(f"no records in the tables at {stored.root}", hint="run `acktrail run export` first")
    return records


def build_piece(
    config: TablesConfig, cluster_id: str, new: StepRecords, saved: SavedStates, numbers: Sequence[int]
) -> Iterator[pa.Table]:
    """A row of ``_BUILT`` of some state partitions: from the states `saved`, which are written again
    with what the records of the step make of them."""
    tables = Tables(config)
    held, ends = saved.rows(tables, numbers), new.begins
    changes, files = [history_tables.HISTORY_ROWS.empty_table()], []
    for records in new.pieces(tables, numbers):
        made, held, reached = apply_records(records, held, ends, new.report_from, partial(commit_spans, tables))
        ends = {**ends, **reached}
        changes.append(history_tables.history_rows(made, cluster_id))
        if sum(rows.num_rows for rows in changes) >= history_tables.FULL_ROWS:
            files.append(_history_file(tables, changes))
            del changes[1:]
    if sum(rows.num_rows for rows in changes) >= _ROWS_OF_A_FILE:
        files.append(_history_file(tables, changes))
        del changes[1:]
    files.append(write_data_file(tables.place(HISTORY.name), with_cluster(held, HISTORY, cluster_id)))
    counts = pc.value_counts(held["state_partition"])
    yield one_row(
        _BUILT,
        changes=pa.concat_tables(changes),
        files=pa.concat_tables(files),
        held=pa.table([counts.field(name) for name in ("values", "counts")], schema=_COUNTS),
    )


def _history_file(tables: Tables, changes: Sequence[pa.Table]) -> pa.Table:
    pieces = [rows for rows in changes if rows.num_rows]
    rows = pieces[0] if len(pieces) == 1 else history_tables.in_lookup_order(pa.concat_tables(pieces))
    return write_data_file(tables.place(history_tables.CHANGES), rows.drop_columns(["chunk"]))


def apply_records(
    records: pa.Table, held: pa.Table, begins: Mapping[int, int], report_from: Mapping[int, int], spans: CommitSpans
) -> tuple[pa.Table, pa.Table, dict[int, int]]:
    """Rows of ``CHANGE_COLUMNS`` as of ``record_changes``; the states after them, rows of ``HELD_COLUMNS``; and by
    state partition the offset after the last record.

    Applies `records` (rows of ``HISTORY_INPUTS``, by state partition and offset) to the states `held` of their state
    partitions, which are those before `begins`. `spans` is asked only where offsets are missing. Those that one commit
    of the exporter spans are not in Kafka either; any others were not exported."""
    numbers, offsets = records["state_partition"].to_numpy(), records["offset"].to_numpy()
    last = np.flatnonzero(np.diff(numbers, append=-1))
    missing = _missing(numbers, offsets, begins, spans)
    changes, states = record_changes(held, records, missing, report_from)
    return changes, states, dict(zip(numbers[last].tolist(), (offsets[last] + 1).tolist(), strict=True))


def commit_spans(tables: Tables, state_partition: int, begin: int) -> list[tuple[int, int]]:
    """``CommitSpans`` out of ``export_ranges``."""
    where = (pc.field("state_partition") == state_partition) & (pc.field("last_offset") >= begin)
    rows = tables.read("export_ranges", columns=["first_offset", "last_offset"], where=where).to_pylist()
    return [(row["first_offset"], row["last_offset"]) for row in rows]


def _missing(numbers: Int64Array, offsets: Int64Array, begins: Mapping[int, int], spans: CommitSpans) -> Int64Array:
    """The first missing offset before each record; -1: none. What is missing before the first export is no gap."""
    heads = np.flatnonzero(np.diff(numbers, prepend=-1))
    expected = np.append(0, offsets[:-1] + 1)[: len(offsets)]
    expected[heads] = [begins.get(number, 0) for number in numbers[heads].tolist()]
    is_hole = offsets != expected
    is_hole[heads] &= expected[heads] > 0
    known: dict[int, Sequence[tuple[int, int]]] = {}
    missing = np.full(len(offsets), -1)
    for row in np.flatnonzero(is_hole).tolist():
        number, first, end = int(numbers[row]), int(expected[row]), int(offsets[row])
        if number not in known:
            known[number] = spans(number, begins.get(number, 0))
        if not any(low < first and end <= high for low, high in known[number]):
            missing[row] = first
    return missing


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """The files `paths` have the records of a step, which end before `ends`. `rows`: their number by state partition.
    `in_order`: those of a state partition come in the order of its log, file after file."""

    paths: tuple[str, ...] = ()
    ends: Mapping[int, int] = field(default_factory=dict)
    rows: Counter[int] = field(default_factory=Counter)
    in_order: bool = True


def planned_steps(tables: Tables, paths: Sequence[str], positions: Mapping[int, int]) -> list[PlannedStep]:
    """The steps that take all records in the files `paths`, oldest first, at or after the `positions` (by state
    partition; 0 for one that has none). Where a file has records from before those of an earlier one, each step takes
    some records of each state partition out of all files."""
    files = [(path, stored_offsets(_new(tables, path, positions), {})) for path in paths]
    reached: dict[int, int] = {}
    in_order = True
    for _, found in files:
        in_order &= found.in_order and all(runs.first[0] >= reached.get(n, 0) for n, runs in found.runs.items())
        reached |= found.ends()
    if not in_order:
        return list(_in_parts(tuple(paths), [found.runs for _, found in files]))
    steps: list[PlannedStep] = []
    for path, found in files:
        rows = Counter({number: runs.total for number, runs in found.runs.items()})
        is_full = not steps or (steps[-1].rows + rows).total() > RECORDS_OF_A_STEP
        last = PlannedStep() if is_full else steps.pop()
        steps.append(PlannedStep(paths=(*last.paths, path), ends={**last.ends, **found.ends()}, rows=last.rows + rows))
    return [step for step in steps if step.rows.total()]


def _new(tables: Tables, path: str, positions: Mapping[int, int]) -> Iterator[pa.RecordBatch]:
    columns, groups = ("state_partition", "offset"), later_records(positions)
    for batch in tables.file_batches(RECORDS, [path], columns=columns, sparing=True, groups=groups):
        yield batch.filter(pa.array(batch["offset"].to_numpy() >= bounds_of(batch, positions)))


def _in_parts(paths: tuple[str, ...], files: Sequence[Mapping[int, OffsetRuns]]) -> Iterator[PlannedStep]:
    """Steps over all files, with an equal quota of each state partition."""
    numbers = sorted({number for runs in files for number in runs})
    left = {n: OffsetRuns.union([runs[n] for runs in files if n in runs]) for n in numbers}
    while left:
        quota = max(1, _AT_ONCE // len(left))
        ends = {number: runs.end_after(0, quota) for number, runs in left.items()}
        rows = Counter({number: min(quota, runs.total) for number, runs in left.items()})
        yield PlannedStep(paths=paths, ends=ends, rows=rows, in_order=False)
        left = {n: rest for n, runs in left.items() if (rest := runs.above(ends[n])).total}
