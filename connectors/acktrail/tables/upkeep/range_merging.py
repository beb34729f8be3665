"""Rows of ``export_ranges`` as few rows: neighbours become one.

Ranges of one state partition that follow each other without a gap are one range of the same records. Merged are those
of one day, so that a reader still knows at about which time records came. Kept apart are those of the last 24 hours,
ranges of files, the newest one of each state partition, and the breaks of a log.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.source_batches import DROPPED_BY_RETENTION, LOG_REPLACED

_DAY: Final = dt.timedelta(days=1)
_SAME: Final = (
    "cluster_id",
    "state_topic_id",
    "state_partition",
    "dialect",
    "source_file",
    "source_digest",
    "offset_shift",
)
_OF_LAST: Final = frozenset({"run_id", "last_offset", "log_end_offset"})
"""Columns that a merged row has of its last part; others it has of the first."""
_SUMMED: Final = ("records_read", "records_decoded", "records_quarantined")
_NONE: Final = -1
_Integers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


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
    joins = _joins(ordered, now)
    heads = np.flatnonzero(np.concatenate(([True], ~joins)))
    tails = np.append(heads[1:], ordered.num_rows) - 1
    first, last = ordered.take(pa.array(heads)), ordered.take(pa.array(tails))
    columns = {name: (last if name in _OF_LAST else first)[name] for name in rows.column_names}
    columns["gap_last"] = pc.if_else(pc.is_null(first["first_offset"]), last["gap_last"], first["gap_last"])
    for name in _SUMMED:
        columns[name] = pa.array(np.add.reduceat(_numbers(ordered, name, 0), heads))
    return pa.table(columns, schema=rows.schema)


def _joins(rows: pa.Table, now: dt.datetime) -> _Flags:
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


def _numbers(rows: pa.Table, name: str, unknown: int = _NONE) -> _Integers:
    return np.asarray(pc.fill_null(rows[name], unknown).cast(pa.int64()).to_numpy())


def _is_same(column: pa.ChunkedArray) -> _Flags:
    """Whether each value but the last is that of the next row; a null is equal to a null."""
    codes = column.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()
    return np.asarray(codes[1:] == codes[:-1])


def _periods(instants: pa.ChunkedArray, now: dt.datetime) -> _Integers:
    """The day of each instant as a number; ``_NONE`` for those of the last 24 hours."""
    at = pc.fill_null(instants, now).to_numpy().astype("datetime64[us]")
    last = np.datetime64(now.astimezone(dt.UTC).replace(tzinfo=None), "us") - np.timedelta64(_DAY)
    return np.where(at > last, _NONE, at.astype("datetime64[D]").astype(np.int64))
