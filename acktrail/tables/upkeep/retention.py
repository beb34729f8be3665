"""Rows that are older than what is kept, by age or by size. What is dropped of ``state_records`` is a gap in
``export_ranges`` with a reason of its own, so that counts add up and an unknown state says why.

A record whose time lies in the future, or that has none, is neither old nor young: it keeps no others, and goes with
those after it.

The gap is recorded first, the rows follow: after a crash in between, the next run drops what the gaps name. The newest
record of a state partition always stays: the exporter compares it with Kafka's log.

delta-rs's ``delete`` was tried (1.6.6, 60 files). It is as fast, and refuses where another writer came first. But what
stays of all files becomes one new file. Its rows are not in their order, it is as old as the commit, and its texts are
views, which Arrow cannot filter.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.branches import observation_tables
from acktrail.format.columns.binary_column import BoolArray, Int64Array, joined_rows
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.log_positions import DROPPED_BY_RETENTION, LOG_REPLACED
from acktrail.tables.commit_order import SKEW
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import DataFile, TableSnapshot
from acktrail.tables.records.continuity import LostOffsets, with_gaps
from acktrail.tables.records.export_ranges import RANGES_TABLE
from acktrail.tables.records.record_files import DROPPED_BEFORE, RECORDS, extremes, records_between
from acktrail.tables.upkeep.file_rewrite import Change, Rewrite, commit_rewrite, file_bins, rewrite, scanned

AGED_BY: Final = {
    RECORDS: "timestamp_ms",
    "delivery_history": "record_timestamp_ms",
    **dict.fromkeys(("group_observations", "offset_observations", *sorted(observation_tables())), "observed_at"),
}
"""Tables that the retention is about, and the column with the time of a row."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ADDRESS: Final = ("state_partition", "offset")
_WHAT: Final = "retention"
_NO_DAY: Final = "unknown"
_SKEW_MS: Final = SKEW // dt.timedelta(milliseconds=1)
_DAY: Final = dt.timedelta(days=1)
_SAME: Final = (
    *("cluster_id", "state_topic_id", "state_partition", "dialect", "source_file", "source_digest", "offset_shift"),
)
_OF_LAST: Final = frozenset({"run_id", "last_offset", "log_end_offset"})
"""Columns that a merged row has of its last part; others it has of the first."""
_SUMMED: Final = ("records_read", "records_decoded", "records_quarantined")
_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doomed:
    """Rows of a table that are not kept; all others are `kept`. `counts`: by file, and day of their time (UTC).
    `ends`: of state records, by state partition, the offset before which they go."""

    snapshot: TableSnapshot
    kept: pc.Expression
    ends: Mapping[int, int]
    counts: Mapping[DataFile, Counter[str]]


def fitting_from_ms(tables: Tables, keep_bytes: int, now_ms: int) -> int | None:
    """The start of the oldest day (UTC, ms since the epoch) that is kept where the tables of ``AGED_BY`` together may
    take `keep_bytes`: whole days go, the oldest first, and never the newest until `now_ms`. None: all of them fit. The
    rows of a day take their part of the rows of their file, in whole bytes, rounded down.

    100 bytes of Monday, 60 of Tuesday and 70 of today in 140: Monday goes, Tuesday stays.
    """
    sizes = Counter[str]()
    for name, column in AGED_BY.items():
        if (snapshot := tables.snapshot(name)) is None:
            continue
        for file in snapshot.files():
            rows = _by_day(scanned(snapshot, [file], [column]), column)
            sizes.update({day: file.size_bytes * count // rows.total() for day, count in rows.items()})
    last_day = str(np.datetime64(now_ms + _SKEW_MS, "ms").astype("datetime64[D]"))
    undated = sum(sizes.pop(day) for day in [*sizes] if day > last_day)  # a letter is greater: `_NO_DAY`, too
    left, days = sum(sizes.values()), sorted(sizes)
    oldest = list(days)
    while len(oldest) > 1 and undated + left > keep_bytes:
        left -= sizes[oldest.pop(0)]
    return None if oldest == days else int(np.datetime64(oldest[0], "ms").astype(np.int64))


def days_to_drop(tables: Tables, name: str, before_ms: int | None, now_ms: int) -> Counter[str]:
    """How many rows of a table ``drop_rows`` drops, by the day of their time (UTC); "unknown": they have none."""
    found = _doomed(tables, name, before_ms, now_ms)
    return sum(found.counts.values(), Counter()) if found else Counter()


def drop_rows(tables: Tables, name: str, before_ms: int | None, run_id: str, now_ms: int) -> Counter[str]:
    """Drop the rows of a table that are older (None: only what the gaps in ``export_ranges`` name); gives their number
    by day, as ``days_to_drop``. Each state partition is cut before its first record that is not older."""
    found = _doomed(tables, name, before_ms, now_ms)
    if found is None:
        return Counter()
    now = _EPOCH + dt.timedelta(milliseconds=now_ms)
    dropped = [LostOffsets(state_partition=n, first_offset=0, last_offset=end - 1) for n, end in found.ends.items()]
    if dropped and not _are_gaps(tables, found.ends):
        _record_gaps(
            tables,
            max(found.ends.values()),
            lambda rows: merged_ranges(with_gaps(tables, rows, dropped, DROPPED_BY_RETENTION, run_id), now),
        )
    return _drop(tables, found, before_ms)


def _doomed(tables: Tables, name: str, before_ms: int | None, now_ms: int) -> _Doomed | None:
    snapshot, column, ends = tables.snapshot(name), AGED_BY[name], dict[int, int]()
    if snapshot is None:
        return None
    if name == RECORDS:
        ends = _ends(tables, snapshot, before_ms, now_ms)
        if not ends:
            return None
        below = records_between({}, ends)
        kept, files = ~below, _files(snapshot, "offset", max(ends.values()))
    elif before_ms is not None:
        limit = _time_bound(name, before_ms)
        below, kept = pc.field(column) < limit, (pc.field(column) >= limit) | pc.field(column).is_null()
        files = _files(snapshot, column, limit.as_py())
    else:
        return None
    counts = {file: _by_day(scanned(snapshot, [file], [column], below), column) for file in files}
    return _Doomed(snapshot=snapshot, kept=kept, ends=ends, counts={file: own for file, own in counts.items() if own})


def _files(snapshot: TableSnapshot, column: str, limit: Any) -> list[DataFile]:
    """Those that may have a value below `limit`."""
    least = snapshot.statistics([f"min.{column}"])
    return [file for file in snapshot.files() if (at := least[file.path][f"min.{column}"]) is None or at < limit]


def _time_bound(name: str, at_ms: int) -> pa.Scalar:
    """A time, ms since the epoch, as a value of the table's column."""
    kind = TABLES[name].field(AGED_BY[name]).type
    return pa.scalar(at_ms if pa.types.is_integer(kind) else _EPOCH + dt.timedelta(milliseconds=at_ms), kind)


def _by_day(batches: Iterator[pa.RecordBatch], column: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for batch in batches:
        known = batch[column].drop_null()
        unit = known.type.unit if pa.types.is_timestamp(known.type) else "ms"
        times = known.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(f"datetime64[{unit}]")
        days, counts = np.unique(times.astype("datetime64[D]"), return_counts=True)
        found.update(dict(zip(days.astype(str).tolist(), counts.tolist(), strict=True)))
        found[_NO_DAY] += batch[column].null_count
    return +found


def recorded_ends(tables: Tables, ranges: TableSnapshot) -> dict[int, int]:
    """By state partition, the offset before which the retention dropped records. Files of ``export_ranges`` whose
    statistics rule such gaps out are not read."""
    paths = sorted(ranges.paths_with({"gap_reason": DROPPED_BY_RETENTION}))
    rows = tables.read_files(RANGES_TABLE, paths, columns=["state_partition", "gap_last", "gap_reason"])
    own = rows.filter(pc.equal(rows["gap_reason"], DROPPED_BY_RETENTION))
    return {number: last + 1 for number, last in extremes(own, "gap_last", "max").items()}


def _ends(tables: Tables, snapshot: TableSnapshot, before_ms: int | None, now_ms: int) -> dict[int, int]:
    """The offset before which the records of each state partition are dropped, where there is any."""
    ranges = tables.snapshot(RANGES_TABLE)
    if ranges is None:
        return {}
    recorded = recorded_ends(tables, ranges)
    return recorded if before_ms is None else _aged_ends(snapshot, ranges, before_ms, now_ms, recorded)


def _aged_ends(
    snapshot: TableSnapshot, ranges: TableSnapshot, before_ms: int, now_ms: int, recorded: Mapping[int, int]
) -> dict[int, int]:
    time = pc.field("timestamp_ms")
    is_young = (time >= before_ms) & (time <= now_ms + _SKEW_MS)
    older = _files(snapshot, "timestamp_ms", before_ms)
    last_old, first_young = dict[int, int](), dict[int, int]()
    for batch in scanned(snapshot, older, [*_ADDRESS, "timestamp_ms"]):
        _keep(last_old, batch.filter(time < before_ms), "max", max)
        _keep(first_young, batch.filter(is_young), "min", min)
    ends = {n: min(last + 1, first_young.get(n, last + 1)) for n, last in last_old.items()}
    known = frozenset(older)
    others = [file for file in snapshot.files() if file not in known]
    if ends:
        for batch in scanned(snapshot, others, _ADDRESS, records_between({}, ends) & is_young):
            _keep(ends, batch, "min", min)
    newest = ranges.read(columns=["state_partition", "last_offset"])
    for number, last in extremes(newest, "last_offset", "max").items():
        if number in ends and last is not None:
            ends[number] = min(ends[number], last)
    return {n: max(ends.get(n, 0), recorded.get(n, 0)) for n in sorted({*ends, *recorded})}


def _keep(known: dict[int, int], rows: pa.RecordBatch, how: str, better: Callable[[int, int], int]) -> None:
    """Put the least or greatest offset of each state partition into `known`."""
    for number, offset in extremes(pa.Table.from_batches([rows]), "offset", how).items():
        known[number] = better(known.get(number, offset), offset)


def _are_gaps(tables: Tables, ends: Mapping[int, int]) -> bool:
    """Whether the ranges name no record any more that is not kept."""
    below = records_between({}, ends, "first_offset")
    return not tables.read(RANGES_TABLE, columns=["state_partition"], where=below).num_rows


def _record_gaps(tables: Tables, limit: int, change: Change) -> None:
    """Make gaps in ``export_ranges`` of what is not kept below the offset `limit`, by `change`."""
    is_done = False
    with tables.rewritable(RANGES_TABLE):
        while not is_done:
            ranges = tables.snapshot(RANGES_TABLE)
            assert ranges is not None
            bounds = ranges.statistics(["min.first_offset", "min.gap_first"])
            files = [file for file in ranges.files() if _least(bounds[file.path]) < limit]
            done = rewrite(ranges, files, change)
            is_done = commit_rewrite(tables, RANGES_TABLE, done, what=_WHAT, changes_rows=True)


def _least(bounds: Mapping[str, Any]) -> int:
    """The least offset that a file of ranges may have."""
    return min((value for value in bounds.values() if value is not None), default=0)


def _drop(tables: Tables, found: _Doomed, before_ms: int | None) -> Counter[str]:
    """Commit a table without the rows that are not kept; gives the number of rows that went, by day."""
    name, dropped = found.snapshot.name, Counter[str]()
    if not found.counts:
        return dropped
    times = [] if before_ms is None else [before_ms]
    numbers = {DROPPED_BEFORE: max([found.snapshot.transaction_version(DROPPED_BEFORE) or 0, *times])}
    with tables.rewritable(name):
        for done in _rewrites(found):
            if commit_rewrite(tables, name, done, what=_WHAT, changes_rows=True, numbers=numbers):
                dropped += sum((found.counts[file] for file in done.removed), Counter())
    return dropped


def _rewrites(found: _Doomed) -> Iterator[Rewrite]:
    is_gone = {file: own.total() == file.rows for file, own in found.counts.items()}
    gone, mixed = ([file for file, each in is_gone.items() if each is wanted] for wanted in (True, False))
    for own in file_bins(gone):
        yield Rewrite(removed=own, rows_before=sum(file.rows or 0 for file in own))
    for files in file_bins(mixed) if found.ends else ((file,) for file in mixed):
        yield rewrite(found.snapshot, files, lambda rows: rows.filter(found.kept))


def merged_ranges(rows: pa.Table, now: dt.datetime) -> pa.Table:
    """`rows` with neighbours merged; ordered by state partition and offset."""
    if not rows.num_rows:
        return rows
    begin, end = (
        pc.coalesce(rows["gap_first"], rows["first_offset"]),
        pc.coalesce(rows["last_offset"], rows["gap_last"]),
    )
    keyed = rows.append_column("begin", begin).append_column("end", end)
    names = ("cluster_id", "state_topic_id", "state_partition", "begin", "end")
    ordered = keyed.sort_by([(name, "ascending") for name in names]).select(rows.column_names).combine_chunks()
    heads, tails = joined_rows(_joins(ordered, now), ordered.num_rows)
    first, last = ordered.take(pa.array(heads)), ordered.take(pa.array(tails))
    columns = {name: (last if name in _OF_LAST else first)[name] for name in rows.column_names}
    columns["gap_last"] = pc.if_else(pc.is_null(first["first_offset"]), last["gap_last"], first["gap_last"])
    for name in _SUMMED:
        columns[name] = pa.array(np.add.reduceat(_numbers(ordered, name, 0), heads))
    return pa.table(columns, schema=rows.schema)


def _joins(rows: pa.Table, now: dt.datetime) -> BoolArray:
    """Whether each row but the last becomes one with the row after it."""
    first, last = _numbers(rows, "first_offset"), _numbers(rows, "last_offset")
    gap_first, gap_last = _numbers(rows, "gap_first"), _numbers(rows, "gap_last")
    same = np.logical_and.reduce([_is_same(rows[name]) for name in _SAME])
    period = _periods(rows["exported_at"], now)
    in_period = (period[1:] == period[:-1]) & (period[1:] != _NONE)
    follows = (first[:-1] != _NONE) & (gap_first[1:] == _NONE) & (first[1:] == last[:-1] + 1)
    is_newest = np.append(~_is_same(rows["state_partition"])[1:], True)
    from_cluster = pc.is_null(rows["source_file"]).to_numpy()
    records = follows & in_period & ~is_newest & from_cluster[1:]
    adjoins = (first[:-1] == _NONE) & (first[1:] == _NONE) & (gap_first[1:] == gap_last[:-1] + 1)
    reason = pc.fill_null(rows["gap_reason"], "")
    dropped = pc.equal(reason, DROPPED_BY_RETENTION).to_numpy()
    is_break = pc.equal(reason, LOG_REPLACED).to_numpy()
    gaps = adjoins & _is_same(rows["gap_reason"]) & ~is_break[1:] & (in_period | dropped[1:])
    return np.asarray(same & (records | gaps))


def _numbers(rows: pa.Table, name: str, unknown: int = _NONE) -> Int64Array:
    return np.asarray(pc.fill_null(rows[name], unknown).cast(pa.int64()).to_numpy())


def _is_same(column: pa.ChunkedArray) -> BoolArray:
    """Whether each value but the last is that of the next row; a null is equal to a null."""
    codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
    return np.asarray(codes[1:] == codes[:-1])


def _periods(instants: pa.ChunkedArray, now: dt.datetime) -> Int64Array:
    """The day of each instant as a number; ``_NONE`` for those of the last 24 hours."""
    at = pc.fill_null(instants, now).to_numpy().astype("datetime64[us]")
    last = np.datetime64(now.astimezone(dt.UTC).replace(tzinfo=None), "us") - np.timedelta64(_DAY)
    return np.where(at > last, _NONE, at.astype("datetime64[D]").astype(np.int64))
