"""What the delivery history has of a run: records acknowledged, released and archived since the run before.

A change belongs to the first run whose observation began after its state record: the log ends of the state topic
before an export bound it, which does not depend on when the history was built. Only files are read that came since a
version of ``delivery_history`` whose changes were all counted; what compactions wrote again differs from new changes by
the offsets of the records.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.queue_windows import MOST
from acktrail.columnar.rate_counts import RATE_INPUTS, RATES, partial_rates, sum_rates
from acktrail.config import TablesConfig
from acktrail.executors import Executors, JobStep, Results, balanced_shares
from acktrail.model.queues.queue_window import COUNTED
from acktrail.model.share_partition import KEY_COLUMNS, STATE_TOPIC
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.stored_log import offset_shifts
from acktrail.tables.past.history_tables import CHANGES, positions_at

_TIME: Final = "record_timestamp_ms"
RUN_NUMBER: Final = "interval_start_ms"
"""Counting by time becomes counting by run: the number of the run stands in place of a time."""
_INPUTS: Final = (*RATE_INPUTS, "state_partition", "record_offset")
_COUNT: Final = JobStep(name="count the changes since the run before", kinds={"counts": RATES})


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedHistory:
    """What was counted: the changes of records before the `ends`, by state partition. `version`: of
    ``delivery_history``; all its changes were counted. `seen`: the newest version that was looked at. None: none.
    `table`: the ``table_number`` of that ``delivery_history``; one that was built again has other versions."""

    ends: Mapping[int, int] = field(default_factory=dict)
    table: int | None = None
    version: int | None = None
    seen: int | None = None


def log_ends(tables: Tables, run_id: str) -> dict[int, int]:
    """Where each state partition ended when the observation `run_id` began, in offsets of the tables."""
    own = (pc.field("run_id") == run_id) & (pc.field("topic") == STATE_TOPIC) & pc.field("group_id").is_null()
    columns = ["partition", "log_end_offset", "observed_at"]
    rows = tables.read("offset_observations", columns=columns, where=own & (pc.field("phase") == "before")).to_pylist()
    known = {row["partition"]: row["log_end_offset"] for row in rows if row["log_end_offset"] is not None}
    if not known:
        return {}
    until = max(row["observed_at"] for row in rows)
    shifts = offset_shifts(tables, known, pc.field("exported_at") <= until)
    return {partition: end + shifts.get(partition, 0) for partition, end in known.items()}


def count_changes(
    executors: Executors, tables: Tables, bounds: Mapping[int, int], before: CountedHistory
) -> tuple[pa.Table, CountedHistory] | None:
    """The counts of a run (key and ``COUNTED``), and what is counted after it; None: there is no history. `bounds`:
    the ``log_ends`` of the run."""
    snapshot = tables.snapshot(CHANGES)
    if snapshot is None:
        return None
    table = table_number(snapshot)
    if before.table != table:
        before = CountedHistory(ends=before.ends)
    built = positions_at(snapshot, bounds)
    ends = {number: max(before.ends.get(number, 0), min(end, built[number])) for number, end in bounds.items()}
    version = _counted_version(tables, snapshot, before, ends)
    after = CountedHistory(ends={**before.ends, **ends}, table=table, version=version, seen=snapshot.version)
    known = None if before.version is None else tables.paths_at(CHANGES, before.version)
    spans = {number: np.array([before.ends.get(number, 0), end]) for number, end in ends.items()}
    counts = counts_by_run(executors, tables, snapshot, spans, known=known or frozenset())
    return counts.select([*KEY_COLUMNS, *COUNTED]), after


def table_number(snapshot: TableSnapshot) -> int:
    """A number that a table created again in its place does not have."""
    return zlib.crc32(snapshot.table_id.encode())


def counts_by_run(
    executors: Executors,
    tables: Tables,
    snapshot: TableSnapshot,
    spans: Mapping[int, Int64Array],
    *,
    known: frozenset[str] = frozenset(),
) -> pa.Table:
    """Rows of ``RATES`` with the number of a run in place of a time. `spans`: by state partition, ascending offsets:
    run n has the changes of records from its n-th to before the next. `known`: files that are not read."""
    files = [file for file in snapshot.files() if file.path not in known]
    shares = balanced_shares(files, lambda file: file.size_bytes, max(1, executors.count))
    work = partial(_counted, tables.config, dict(spans))
    found = executors.run(_COUNT, [[file.path for file in share] for share in shares], work)["counts"]
    sums = found.group_by([*KEY_COLUMNS, RUN_NUMBER], use_threads=False).aggregate([(name, "sum") for name in COUNTED])
    counts = sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])
    for name in COUNTED:
        is_small = pc.less(counts[name], MOST)
        small = pc.if_else(is_small, counts[name], pa.scalar(None, pa.int64()))
        counts = counts.set_column(counts.column_names.index(name), name, small)
    return counts


def _counted(config: TablesConfig, spans: Mapping[int, Int64Array], paths: Sequence[str]) -> Results:
    """The work on some files."""
    yield "counts", sum_rates(_pieces(Tables(config), spans, paths))


def _pieces(tables: Tables, spans: Mapping[int, Int64Array], paths: Sequence[str]) -> Iterator[pa.Table]:
    least = min((int(own[0]) for own in spans.values()), default=0)
    where = pc.field("record_offset") >= least
    for batch in tables.file_batches(CHANGES, paths, columns=_INPUTS, where=where):
        runs = _runs(batch, spans)
        rows = pa.Table.from_batches([batch])
        numbered = rows.set_column(
            rows.column_names.index("record_timestamp_ms"), "record_timestamp_ms", pa.array(runs)
        )
        yield partial_rates(numbered.select(RATE_INPUTS).filter(pa.array(runs >= 0)), 1)


def _runs(batch: pa.RecordBatch, spans: Mapping[int, Int64Array]) -> Int64Array:
    """The number of the run that each change belongs to; -1: to none of them."""
    places, offsets = batch.column("state_partition").to_numpy(), batch.column("record_offset").to_numpy()
    runs = np.full(len(places), -1)
    for number in np.unique(places).tolist():
        own, span = places == number, spans.get(number)
        if span is not None:
            found = np.searchsorted(span, offsets[own], side="right") - 1
            runs[own] = np.where(found < len(span) - 1, found, -1)
    return runs


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
