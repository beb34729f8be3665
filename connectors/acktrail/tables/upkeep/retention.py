"""Rows that are not kept: by age or by size. What is dropped of ``state_records`` is a gap in ``export_ranges`` with a
reason of its own, so that counts add up and an unknown state says why.

The gap is recorded first, the rows follow: after a crash in between, the next run drops what the gaps name. The newest
record of a state partition always stays: the exporter compares it with Kafka's log.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.connect.source_batches import DROPPED_BY_RETENTION
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.tables.exported.continuity import RANGES_TABLE
from acktrail.tables.exported.record_files import DROPPED_BEFORE, RECORDS
from acktrail.tables.upkeep.compaction_plan import MOST_FILES, SORTED_ROWS, TableFile
from acktrail.tables.upkeep.file_rewrite import Change, Rewrite, rewrite, scanned, table_files
from acktrail.tables.upkeep.range_merging import DroppedRecords, merged_ranges, with_dropped
from acktrail.tables.upkeep.rewrite_commit import commit_rewrite, rows_may_change

AGED_BY: Final = {
    RECORDS: "timestamp_ms",
    "delivery_history": "record_timestamp_ms",
    "group_observations": "observed_at",
    "offset_observations": "observed_at",
    "partition_observations": "observed_at",
    "group_positions": "observed_at",
}
"""Tables that the retention is about, and the column with the time of a row."""
_ADDRESS: Final = ("state_partition", "offset")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MS: Final = dt.timedelta(milliseconds=1)
_WHAT: Final = "retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much is kept: rows of the last `keep_ms`, and the newest of at most `keep_bytes` (compressed, of the tables
    of ``AGED_BY`` together). None: all."""

    keep_ms: int | None = None
    keep_bytes: int | None = None


def dropped_before(tables: Tables, retention: Retention, now_ms: int) -> int | None:
    """The time, ms since the epoch, before which rows are not kept; None: all are. Reads logs alone."""
    found = [] if retention.keep_ms is None else [now_ms - retention.keep_ms]
    if retention.keep_bytes is not None:
        newest = sorted(((each[1], each[2]) for name in AGED_BY for each in _file_times(tables, name)), reverse=True)
        left = retention.keep_bytes
        for last_ms, size in newest:
            left -= size
            if left < 0:
                found.append(last_ms + 1)
                break
    return max(found, default=None)


def old_rows(tables: Tables, name: str, before_ms: int) -> int:
    """About how many rows of a table are older, by its log alone: those of files with no later row."""
    return sum(rows for rows, last_ms, _ in _file_times(tables, name) if last_ms < before_ms)


def drop_rows(tables: Tables, name: str, before_ms: int) -> int:
    """Drop the rows of a table (not ``state_records``) that are older; gives their number."""
    snapshot = tables.snapshot(name)
    if snapshot is None:
        return 0
    column = AGED_BY[name]
    bounds = snapshot.statistics([f"min.{column}", f"max.{column}"])
    least, greatest = (
        {path: _as_ms(each[f"{side}.{column}"]) for path, each in bounds.items()} for side in ("min", "max")
    )
    files = [file for file in table_files(snapshot) if (least[file.path] or 0) < before_ms]
    gone = [file for file in files if _is_below(greatest[file.path], before_ms) and file.rows is not None]
    limit = pa.scalar(_bound(name, before_ms), TABLES[name].field(column).type)

    def change(rows: pa.Table) -> pa.Table:
        return rows.filter(pc.fill_null(pc.greater_equal(rows[column], limit), fill_value=True))

    known = {file.path for file in gone}
    mixed = [(file,) for file in files if file.path not in known]
    return _drop(tables, snapshot, gone, mixed, change, before_ms)


def drop_records(tables: Tables, before_ms: int | None, run_id: str, now: dt.datetime) -> int:
    """Drop the state records that are older (None: only what the gaps in ``export_ranges`` name); gives their number.
    Each state partition is cut before its first record that is not older."""
    snapshot = tables.snapshot(RECORDS)
    ranges = tables.snapshot(RANGES_TABLE)
    if snapshot is None or ranges is None:
        return 0
    recorded = recorded_ends(tables, ranges)
    ends = recorded if before_ms is None else _ends(snapshot, ranges, before_ms, recorded)
    if not ends:
        return 0
    below = reduce(or_, (_is_number(n) & (pc.field("offset") < end) for n, end in ends.items()))
    files = table_files(snapshot)
    counts = {file.path: _count(scanned(snapshot, [file], _ADDRESS, below)) for file in files}
    concerned = [file for file in files if counts[file.path]]
    dropped = _dropped(snapshot, ranges, concerned, ends)
    if dropped:
        _record_gaps(tables, dropped, lambda rows: merged_ranges(with_dropped(rows, dropped, run_id), now))
    gone = [file for file in concerned if counts[file.path] == file.rows]
    mixed = list(_few_rows([file for file in concerned if counts[file.path] != file.rows]))
    stays = ~below
    return _drop(tables, snapshot, gone, mixed, lambda rows: rows.filter(stays), before_ms)


def recorded_ends(tables: Tables, ranges: TableSnapshot) -> dict[int, int]:
    """By state partition, the offset before which the retention dropped records. Files of ``export_ranges`` whose
    statistics rule such gaps out are not read."""
    bounds = ranges.statistics(["min.gap_reason", "max.gap_reason", "null_count.gap_reason", "num_records"])
    paths = [path for path, each in bounds.items() if _may_name(each)]
    if not paths:
        return {}
    rows = tables.read_files(RANGES_TABLE, sorted(paths), columns=["state_partition", "gap_last", "gap_reason"])
    own = rows.filter(pc.equal(rows["gap_reason"], DROPPED_BY_RETENTION))
    summed = own.group_by("state_partition", use_threads=False).aggregate([("gap_last", "max")])
    return {row["state_partition"]: row["gap_last_max"] + 1 for row in summed.to_pylist()}


def _may_name(bounds: Mapping[str, Any]) -> bool:
    least, greatest = bounds["min.gap_reason"], bounds["max.gap_reason"]
    if least is None and greatest is None:
        return bounds["null_count.gap_reason"] is None or bounds["null_count.gap_reason"] != bounds["num_records"]
    return (least is None or least <= DROPPED_BY_RETENTION) and (greatest is None or greatest >= DROPPED_BY_RETENTION)


def _ends(
    snapshot: TableSnapshot, ranges: TableSnapshot, before_ms: int, recorded: Mapping[int, int]
) -> dict[int, int]:
    """The offset before which the records of each state partition are dropped, where there is any."""
    bounds = snapshot.statistics(["min.timestamp_ms"])
    files = table_files(snapshot)
    older = [file for file in files if (bounds[file.path]["min.timestamp_ms"] or 0) < before_ms]
    last_old, first_young = dict[int, int](), dict[int, int]()
    for batch in scanned(snapshot, older, [*_ADDRESS, "timestamp_ms"]):
        is_old = pc.fill_null(pc.less(batch["timestamp_ms"], before_ms), fill_value=False)
        _keep(last_old, batch.filter(is_old), "max", max)
        _keep(first_young, batch.filter(pc.invert(is_old)), "min", min)
    ends = {n: min(last + 1, first_young.get(n, last + 1)) for n, last in last_old.items()}
    known = {file.path for file in older}
    others = [file for file in files if file.path not in known]
    if ends:
        earlier = reduce(or_, (_is_number(n) & (pc.field("offset") < end) for n, end in ends.items()))
        for batch in scanned(snapshot, others, _ADDRESS, earlier):
            _keep(ends, batch, "min", min)
    newest = ranges.read(columns=["state_partition", "last_offset"]).group_by("state_partition", use_threads=False)
    for row in newest.aggregate([("last_offset", "max")]).to_pylist():
        number, last = row["state_partition"], row["last_offset_max"]
        if number in ends and last is not None:
            ends[number] = min(ends[number], last)
    return {n: max(ends.get(n, 0), recorded.get(n, 0)) for n in sorted({*ends, *recorded})}


def _keep(known: dict[int, int], rows: pa.RecordBatch, how: str, better: Callable[[int, int], int]) -> None:
    """Put the least or greatest offset of each state partition into `known`."""
    grouped = pa.Table.from_batches([rows.select(_ADDRESS)]).group_by("state_partition", use_threads=False)
    for row in grouped.aggregate([("offset", how)]).to_pylist():
        number, offset = row["state_partition"], row[f"offset_{how}"]
        known[number] = better(known.get(number, offset), offset)


def _dropped(
    snapshot: TableSnapshot, ranges: TableSnapshot, files: Sequence[TableFile], ends: Mapping[int, int]
) -> dict[int, DroppedRecords]:
    """What `ranges` still name of the records before `ends`, which lie in `files`; nothing where all are gaps."""
    where = reduce(or_, (_is_number(n) & (pc.field("first_offset") < end) for n, end in ends.items()))
    rows = ranges.read(columns=["state_partition", "first_offset", "last_offset"], where=where).to_pylist()
    cut = {r["state_partition"]: r["first_offset"] for r in rows if r["last_offset"] >= ends[r["state_partition"]]}
    counts = _straddling(snapshot, files, {n: (first, ends[n]) for n, first in cut.items()})
    if not rows:
        return {}
    return {n: DroppedRecords(end=end, straddling=counts.get(n, (0, 0))) for n, end in ends.items()}


def _record_gaps(tables: Tables, dropped: Mapping[int, DroppedRecords], change: Change) -> None:
    """Make gaps in ``export_ranges`` of what is `dropped`, by `change`."""
    limit, is_done = max(each.end for each in dropped.values()), False
    with rows_may_change(tables, RANGES_TABLE):
        while not is_done:
            ranges = tables.snapshot(RANGES_TABLE)
            assert ranges is not None
            bounds = ranges.statistics(["min.first_offset", "min.gap_first"])
            files = [file for file in table_files(ranges) if _least(bounds[file.path]) < limit]
            done = rewrite(ranges, files, change, is_one_piece=True)
            is_done = commit_rewrite(tables, RANGES_TABLE, done, what=_WHAT, changes_rows=True)


def _least(bounds: Mapping[str, Any]) -> int:
    """The least offset that a file of ranges may have."""
    return min((value for value in bounds.values() if value is not None), default=0)


def _straddling(
    snapshot: TableSnapshot, files: Sequence[TableFile], spans: Mapping[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """How many records, and how many undecoded ones, lie in the span of each state partition (end exclusive)."""
    if not spans:
        return {}
    offset = pc.field("offset")
    inside = (_is_number(n) & (offset >= first) & (offset < end) for n, (first, end) in spans.items())
    counts: dict[int, tuple[int, int]] = {}
    for batch in scanned(snapshot, files, ["state_partition", "offset", "decode_status"], reduce(or_, inside)):
        flagged = pa.table(
            {
                "state_partition": batch["state_partition"],
                "undecoded": pc.not_equal(batch["decode_status"], "decoded").cast(pa.int64()),
            }
        )
        summed = flagged.group_by("state_partition", use_threads=False)
        for row in summed.aggregate([("undecoded", "sum"), ("undecoded", "count")]).to_pylist():
            before = counts.get(row["state_partition"], (0, 0))
            found = (before[0] + row["undecoded_count"], before[1] + row["undecoded_sum"])
            counts[row["state_partition"]] = found
    return counts


def _drop(
    tables: Tables,
    snapshot: TableSnapshot,
    gone: Sequence[TableFile],
    mixed: Sequence[tuple[TableFile, ...]],
    change: Change,
    before_ms: int | None,
) -> int:
    """Commit a table without the files `gone`, and with `mixed` changed; gives the number of rows that went."""
    if not gone and not mixed:
        return 0
    name, dropped = snapshot.name, 0
    times = [] if before_ms is None else [before_ms]
    numbers = {DROPPED_BEFORE: max([snapshot.transaction_version(DROPPED_BEFORE) or 0, *times])}
    with rows_may_change(tables, name):
        for done in _rewrites(snapshot, gone, mixed, change):
            if commit_rewrite(tables, name, done, what=_WHAT, changes_rows=True, numbers=numbers):
                dropped += done.rows_before - done.rows
    return dropped


def _rewrites(
    snapshot: TableSnapshot, gone: Sequence[TableFile], mixed: Sequence[tuple[TableFile, ...]], change: Change
) -> Iterator[Rewrite]:
    for begin in range(0, len(gone), MOST_FILES):
        own = tuple(gone[begin : begin + MOST_FILES])
        yield Rewrite(removed=own, rows_before=sum(file.rows or 0 for file in own))
    for files in mixed:
        yield rewrite(snapshot, files, change)


def _few_rows(files: Sequence[TableFile]) -> Iterator[tuple[TableFile, ...]]:
    """`files` in groups that fit into memory."""
    own: list[TableFile] = []
    for file in files:
        if own and sum(each.rows or 0 for each in own) + (file.rows or 0) > SORTED_ROWS:
            yield tuple(own)
            own = []
        own.append(file)
    if own:
        yield tuple(own)


def _file_times(tables: Tables, name: str) -> Iterator[tuple[int, int, int]]:
    """Rows, time of the newest row (ms) and bytes of each file; files without a time are left out."""
    snapshot = tables.snapshot(name)
    if snapshot is None:
        return
    column = f"max.{AGED_BY[name]}"
    bounds = snapshot.statistics([column])
    for file in table_files(snapshot):
        last = _as_ms(bounds[file.path][column])
        if last is not None:
            yield file.rows or 0, last, file.size_bytes


def _as_ms(value: Any) -> int | None:
    if isinstance(value, dt.datetime):
        return (value - _EPOCH) // _MS
    return None if value is None else int(value)


def _is_below(value: int | None, limit: int) -> bool:
    return value is not None and value < limit


def _bound(name: str, before_ms: int) -> Any:
    return before_ms if pa.types.is_integer(TABLES[name].field(AGED_BY[name]).type) else _EPOCH + before_ms * _MS


def _is_number(number: int) -> pc.Expression:
    return pc.field("state_partition") == number


def _count(batches: Iterator[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)
