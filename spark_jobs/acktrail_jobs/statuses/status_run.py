"""The statuses of a reconciliation: judged once, after its history is built, and written to four tables.

``queue_statuses`` is committed last and says how far everything is: the other tables have a number of the same run
before it. A run that was stopped in between is completed first, whichever run comes next, and no run is written twice:
each commit moves a number that grows with the commits of observations.

For example, where the queue was `ok` in run r1, and r2 finds that its first unfinished offset stays::

    ``status_changes``                           a row: `ok` -> `stuck`, why, and the state record that shows it
    ``queue_trends``, ``run_totals``             what r2 adds to an interval, and a row of r2
    ``queue_statuses``                           all rows as of r2, and the number of r2

A change of the delivery history (records acknowledged, released, archived) belongs to the first run whose observation
began after its state record: the log ends of the state topic before an export bound it, which does not depend on when
the history was built. Only files are read that came since a version of ``delivery_history`` whose changes were all
counted; what compactions wrote again differs from new changes by the offsets of the records. Where state partition 3
ended at 40 before the export of run r1, and at 50 before that of r2::

    change of record 3:41, 0 to 6 acknowledged   r2 acknowledged 7
    change of record 3:50, 7 to 9 acknowledged   of the run after r2
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.activity import doing
from acktrail.config import TablesConfig
from acktrail.format.columns.share_partition_keys import grouped
from acktrail.history.history_tables import CHANGES, TRENDS, add_parts, positions_at
from acktrail.history.no_record_offsets import changes_of_records, no_record_offsets
from acktrail.history.observed_run import Observation, read_observation
from acktrail.model.queue_status import COUNTED
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.replay.time_buckets import MOST, RATE_INPUTS, RATES, partial_rates, sum_rates
from acktrail.tables.acknowledged_losses import acknowledged_losses
from acktrail.tables.commit_order import number_at
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.records.export_ranges import read_ranges
from acktrail.tables.records.record_files import rows_between
from acktrail_jobs.frames import JobSession, collected_pieces
from acktrail_jobs.pieces import pieces_of
from acktrail_jobs.statuses.status_rows import PASSED, judge_run, read_run_rows, total_row

_INPUTS: Final = (*RATE_INPUTS, "state_partition", "record_offset")
_TEXTS: Final = ("group_id", "topic_id", "before_standing", "standing", "cause")
_EVER: Final = 1 << 62
"""An interval of ms with all times."""
_CHANGES_OF_A_PIECE: Final = 4_000_000
"""Changes of a piece of the counting, about: a change costs a fifth of a microsecond. Files of the same state
partitions are counted together, so that each share partition has few partial counts."""
_COUNTS: Final = pa.schema([RATES.field(name) for name in (*KEY_COLUMNS, *COUNTED, *PASSED)])
STATUSES: Final = "queue_statuses"
STEP: Final = "statuses/step"
"""The app id whose number is the newest run of a table (``Observation.run_number``)."""
_ENDS: Final = "statuses/history/"
_VERSION: Final = "statuses/history_version"
_TABLE: Final = "statuses/history_table"
_SEEN: Final = "statuses/history_seen"
_UNKNOWN: Final = -1
"""In place of a number: it is not known any more."""
_BEFORE_STATUSES: Final = ("status_changes", "run_totals", TRENDS)


def write_statuses(tables: TablesConfig, spark: JobSession, run_id: str) -> None:
    """Judge the share partitions of the reconciliation `run_id`, once; nothing where a newer run has its statuses.

    Raises:
        UnknownName, InputError: it observed nothing, or not to its end.
        ConfigurationError: the tables cannot be read or written.
        ConcurrentCommit: the statuses are being written elsewhere.
    """
    stored = Tables(tables)
    run = read_observation(stored, run_id)
    unfinished = _unfinished(stored)
    if unfinished is not None and unfinished.run_number < run.run_number:
        _write(stored, spark, unfinished)
    _write(stored, spark, run)


def _unfinished(tables: Tables) -> Observation | None:
    """The run that some of the tables have and ``queue_statuses`` has not."""
    done = tables.transaction_version(STATUSES, STEP) or 0
    number = max(tables.transaction_version(name, STEP) or 0 for name in _BEFORE_STATUSES)
    if number <= done:
        return None
    found = tables.rows("reconciliations", {"run_number": number}, columns=["run_id"])
    return read_observation(tables, found[0]["run_id"]) if found else None


def _write(tables: Tables, spark: JobSession, run: Observation) -> None:
    """Judge a run, and write it to the tables that do not have it."""
    snapshot = tables.create(STATUSES)
    done = snapshot.transaction_version(STEP)
    if done is not None and done >= run.run_number:
        return
    doing(f"judging the statuses of run {run.run_id}")
    bounds, exported = log_ends(run), read_ranges(tables).filter(run.exported_before)
    counts, counted = count_changes(spark, tables, bounds, counted_history(snapshot, bounds))
    rows = read_run_rows(tables, run.run_id)
    found = judge_run(run, rows, snapshot.read(), counts, acknowledged_losses(tables))
    totals = total_row(tables, run, exported, found.statuses, pc.sum(rows["archived_seen"]).as_py())
    moved = {STEP: run.run_number}
    for name, own in (("status_changes", found.changes), ("run_totals", totals)):
        number = tables.transaction_version(name, STEP)
        if number is None or number < run.run_number:
            tables.append(name, own, transactions=moved, expected={STEP: number})
    add_parts(tables, found.trends, run.run_number, STEP, number_at(run.observed_at))
    tables.replace(STATUSES, found.statuses, transactions={**moved, **counted_numbers(counted)}, expected={STEP: done})


def counted_numbers(counted: CountedHistory) -> dict[str, int]:
    """What was counted of the history, as numbers of app ids."""
    versions = {_TABLE: counted.table, _VERSION: counted.version, _SEEN: counted.seen}
    known = {name: _UNKNOWN if version is None else version for name, version in versions.items()}
    return {**known, **{f"{_ENDS}{number}": end for number, end in counted.ends.items()}}


def counted_history(statuses: TableSnapshot, state_partitions: Iterable[int]) -> CountedHistory:
    """What was counted of some state partitions before the statuses in ``queue_statuses``."""
    ends = {number: statuses.transaction_version(f"{_ENDS}{number}") or 0 for number in state_partitions}
    numbers = (statuses.transaction_version(name) for name in (_TABLE, _VERSION, _SEEN))
    table, version, seen = (None if number == _UNKNOWN else number for number in numbers)
    return CountedHistory(ends=ends, table=table, version=version, seen=seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedHistory:
    """What was counted: the changes of records before the `ends`, by state partition. `version`: of
    ``delivery_history``; all its changes were counted. `seen`: the newest version that was looked at. None: none.
    `table`: a number of that ``delivery_history``; one that was built again has another, and other versions."""

    ends: Mapping[int, int] = field(default_factory=dict)
    table: int | None = None
    version: int | None = None
    seen: int | None = None


def log_ends(observation: Observation) -> dict[int, int]:
    """Where each state partition ended when an observation began, in offsets of the tables."""
    logs = observation.state_logs.items()
    return {number: log.log_end_before for number, log in logs if log.log_end_before is not None}


def count_changes(
    spark: JobSession, tables: Tables, bounds: Mapping[int, int], before: CountedHistory
) -> tuple[pa.Table | None, CountedHistory]:
    """The counts of a run (key, ``COUNTED`` and ``PASSED``; None: there is no history), and what is counted after it.
    `bounds`: the ``log_ends`` of the run."""
    snapshot = tables.snapshot(CHANGES)
    if snapshot is None:
        return None, before
    table = zlib.crc32(snapshot.table_id.encode())
    if before.table != table:
        before = CountedHistory(ends=before.ends)
    built = positions_at(snapshot, bounds)
    ends = {number: max(before.ends.get(number, 0), min(end, built[number])) for number, end in bounds.items()}
    version = _counted_version(tables, snapshot, before, ends)
    after = CountedHistory(ends={**before.ends, **ends}, table=table, version=version, seen=snapshot.version)
    known = None if before.version is None else tables.paths_at(CHANGES, before.version)
    stored = snapshot.statistics(("num_records", "min.state_partition"))
    files = sorted((each["min.state_partition"] or 0, path, each["num_records"] or 0) for path, each in stored.items())
    new = [(path, rows) for _, path, rows in files if known is None or path not in known]
    counting = partial(_counted, tables.config, dict(before.ends), ends)
    what = f"read {sum(rows for _, rows in new):,} changes and count those since the run before"
    pieces = pieces_of(new, lambda file: file[1], _CHANGES_OF_A_PIECE)
    found = collected_pieces(spark, what, pieces, counting, _COUNTS)
    counts = grouped(found, KEY_COLUMNS, **dict.fromkeys((*COUNTED, *PASSED), "sum"))
    for name in (*COUNTED, *PASSED):
        small = pc.if_else(pc.less(counts[name], MOST), counts[name], pa.scalar(None, pa.int64()))
        counts = counts.set_column(counts.column_names.index(name), name, small)
    return counts, after


def _counted(
    config: TablesConfig, begins: Mapping[int, int], ends: Mapping[int, int], files: Sequence[tuple[str, int]]
) -> Iterator[pa.Table]:
    """The work on some files: the changes of records from `begins` to before `ends`."""
    yield sum_rates(_pieces(Tables(config), begins, ends, [path for path, _ in files])).select(_COUNTS.names)


def _pieces(
    tables: Tables, begins: Mapping[int, int], ends: Mapping[int, int], paths: Sequence[str]
) -> Iterator[pa.Table]:
    none = no_record_offsets(tables)
    for batch in tables.file_batches(CHANGES, paths, columns=_INPUTS, sparing=True, dictionaries=_TEXTS):
        own = pa.Table.from_batches([rows_between(batch, begins, ends, "record_offset")])
        yield partial_rates(changes_of_records(own, none), _EVER)


def _counted_version(
    tables: Tables, snapshot: TableSnapshot, before: CountedHistory, ends: Mapping[int, int]
) -> int | None:
    """The newest version known whose changes are all counted: this one, the one of the last run, or an earlier."""
    if covers(ends, snapshot):
        return snapshot.version
    if before.seen is not None and tables.paths_at(CHANGES, before.seen) is not None:
        seen = tables.snapshot(CHANGES, version=before.seen)
        if seen is not None and covers(ends, seen):
            return before.seen
    return before.version


def covers(ends: Mapping[int, int], snapshot: TableSnapshot) -> bool:
    """Whether all changes of a version are of records before `ends`."""
    return all(position <= ends[number] for number, position in positions_at(snapshot, ends).items())
