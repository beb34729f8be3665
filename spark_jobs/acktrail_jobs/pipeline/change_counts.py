"""What the delivery history has of a run: records acknowledged, released and archived since the run before.

A change belongs to the first run whose observation began after its state record: the log ends of the state topic
before an export bound it, which does not depend on when the history was built. Only files are read that came since a
version of ``delivery_history`` whose changes were all counted; what compactions wrote again differs from new changes by
the offsets of the records.

For example, where state partition 3 ended at 40 before the export of run r1, and at 50 before that of r2::

    change of record 3:41, 0 to 6 acknowledged   r2 acknowledged 7
    change of record 3:50, 7 to 9 acknowledged   of the run after r2
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.config import TablesConfig
from acktrail.executors import Executors, JobStep, Results, balanced_shares
from acktrail.model.queues.queue_reasons import COUNTED
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.reconcile.observed_run import read_observation
from acktrail.replay.queue_windows import MOST
from acktrail.replay.rate_counts import RATE_INPUTS, RATES, partial_rates, sum_rates
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.record_files import bounds_of
from acktrail.tables.past.history_tables import CHANGES, positions_at

_INPUTS: Final = (*RATE_INPUTS, "state_partition", "record_offset")
_TEXTS: Final = ("group_id", "topic_id", "before_standing", "standing", "cause")
_EVER: Final = 1 << 62
"""An interval of ms with all times."""
_COUNTS: Final = pa.schema([RATES.field(name) for name in (*KEY_COLUMNS, *COUNTED)])
_COUNT: Final = JobStep(name="count the changes since the run before", kinds={"counts": _COUNTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedHistory:
    """What was counted: the changes of records before the `ends`, by state partition. `version`: of
    ``delivery_history``; all its changes were counted. `seen`: the newest version that was looked at. None: none.
    `table`: a number of that ``delivery_history``; one that was built again has another, and other versions."""

    ends: Mapping[int, int] = field(default_factory=dict)
    table: int | None = None
    version: int | None = None
    seen: int | None = None


def log_ends(tables: Tables, run_id: str) -> dict[int, int]:
    """Where each state partition ended when the observation `run_id` began, in offsets of the tables."""
    logs = read_observation(tables, run_id).state_logs
    return {number: log.log_end_before for number, log in logs.items() if log.log_end_before is not None}


def count_changes(
    executors: Executors, tables: Tables, bounds: Mapping[int, int], before: CountedHistory
) -> tuple[pa.Table, CountedHistory] | None:
    """The counts of a run (key and ``COUNTED``), and what is counted after it; None: there is no history. `bounds`:
    the ``log_ends`` of the run."""
    snapshot = tables.snapshot(CHANGES)
    if snapshot is None:
        return None
    table = zlib.crc32(snapshot.table_id.encode())
    if before.table != table:
        before = CountedHistory(ends=before.ends)
    built = positions_at(snapshot, bounds)
    ends = {number: max(before.ends.get(number, 0), min(end, built[number])) for number, end in bounds.items()}
    version = _counted_version(tables, snapshot, before, ends)
    after = CountedHistory(ends={**before.ends, **ends}, table=table, version=version, seen=snapshot.version)
    known = None if before.version is None else tables.paths_at(CHANGES, before.version)
    files = [file for file in snapshot.files() if known is None or file.path not in known]
    shares = balanced_shares(files, lambda file: file.size_bytes, executors.count)
    work = partial(_counted, tables.config, dict(before.ends), ends)
    found = executors.run(_COUNT, [[file.path for file in share] for share in shares], work)["counts"]
    sums = found.group_by(list(KEY_COLUMNS), use_threads=False).aggregate([(name, "sum") for name in COUNTED])
    counts = sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])
    for name in COUNTED:
        small = pc.if_else(pc.less(counts[name], MOST), counts[name], pa.scalar(None, pa.int64()))
        counts = counts.set_column(counts.column_names.index(name), name, small)
    return counts.select(_COUNTS.names), after


def _counted(config: TablesConfig, begins: Mapping[int, int], ends: Mapping[int, int], paths: Sequence[str]) -> Results:
    """The work on some files: the changes of records from `begins` to before `ends`."""
    yield "counts", sum_rates(_pieces(Tables(config), begins, ends, paths)).select(_COUNTS.names)


def _pieces(
    tables: Tables, begins: Mapping[int, int], ends: Mapping[int, int], paths: Sequence[str]
) -> Iterator[pa.Table]:
    for batch in tables.file_batches(CHANGES, paths, columns=_INPUTS, dictionaries=_TEXTS):
        offsets = batch["record_offset"].to_numpy()
        is_own = (offsets >= bounds_of(batch, begins, 0)) & (offsets < bounds_of(batch, ends, 0))
        yield partial_rates(pa.Table.from_batches([batch]).filter(pa.array(is_own)), _EVER)


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
