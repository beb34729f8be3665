"""The time before which rows are not kept, by age or by size.

By size the oldest rows go, of all tables together, until the rest fits, and no more. The size of a row is that of its
file divided by the file's rows, and rows of one millisecond go together. Times are read where the log does not
have them, and counted in intervals that get smaller around the cut, in memory that does not follow the tables.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from acktrail.branches import looks
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import DataFile, TableSnapshot
from acktrail.tables.exported.record_files import RECORDS
from acktrail.tables.upkeep.file_rewrite import scanned

AGED_BY: Final = {
    RECORDS: "timestamp_ms",
    "delivery_history": "record_timestamp_ms",
    "group_observations": "observed_at",
    "offset_observations": "observed_at",
    **dict.fromkeys(sorted(looks()), "observed_at"),
}
"""Tables that the retention is about, and the column with the time of a row."""
_NEVER: Final = np.iinfo(np.int64).max
_INTERVALS: Final = 1 << 16
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MS: Final = dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much is kept: rows of the last `keep_ms`, and the newest of at most `keep_bytes` (compressed, of the tables
    of ``AGED_BY`` together). None: all."""

    keep_ms: int | None = None
    keep_bytes: int | None = None


def dropped_before(tables: Tables, retention: Retention, now_ms: int) -> int | None:
    """The time, ms since the epoch, before which rows are not kept; None: all are. By size the rows of the newest time
    stay in any case."""
    found = [] if retention.keep_ms is None else [now_ms - retention.keep_ms]
    if retention.keep_bytes is not None:
        files = [each for name in AGED_BY for each in _aged_files(tables, name)]
        surplus = sum(each.file.size_bytes for each in files) - retention.keep_bytes
        aged = [each for each in files if each.rows]
        if surplus > 0 and aged:
            found.append(_size_cut(aged, sum(each.aged_bytes for each in aged) - surplus))
    return max(found, default=None)


def time_bound(name: str, at_ms: int) -> pa.Scalar:
    """A time, ms since the epoch, as a value of the table's column."""
    kind = TABLES[name].field(AGED_BY[name]).type
    return pa.scalar(at_ms if pa.types.is_integer(kind) else _EPOCH + at_ms * _MS, kind)


def times_ms(times: pa.Array) -> NDArray[np.int64]:
    """Those that are known, ms since the epoch."""
    known = times.drop_null()
    microseconds = 1_000 if pa.types.is_timestamp(known.type) else 1
    return np.asarray(known.cast(pa.int64()).to_numpy(zero_copy_only=False)) // microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _AgedFile:
    """A file and its `rows` that have a time, from `least` to `greatest` ms; each row takes `row_bytes`."""

    snapshot: TableSnapshot
    file: DataFile
    rows: int
    row_bytes: float
    least: int
    greatest: int

    @property
    def aged_bytes(self) -> float:
        return self.rows * self.row_bytes

    def times(self) -> Iterator[NDArray[np.int64]]:
        return _times(self.snapshot, self.file)


def _aged_files(tables: Tables, name: str) -> Iterator[_AgedFile]:
    snapshot, column = tables.snapshot(name), AGED_BY[name]
    if snapshot is None:
        return
    bounds = snapshot.statistics([f"{side}.{column}" for side in ("min", "max", "null_count")])
    for file in snapshot.files():
        least, greatest, nulls = bounds[file.path].values()
        total, rows = file.rows, (file.rows or 0) - (nulls or 0)
        if total is None or nulls is None or (rows and (least is None or greatest is None)):
            total = sum(batch.num_rows for batch in scanned(snapshot, [file], [column]))
            times = np.concatenate([*_times(snapshot, file), np.empty(0, np.int64)])
            rows, least, greatest = len(times), times.min(initial=_NEVER), times.max(initial=0)
        yield _AgedFile(
            snapshot=snapshot,
            file=file,
            rows=rows,
            row_bytes=file.size_bytes / max(total, 1),
            least=_as_ms(least),
            greatest=_as_ms(greatest),
        )


def _times(snapshot: TableSnapshot, file: DataFile) -> Iterator[NDArray[np.int64]]:
    column = AGED_BY[snapshot.name]
    return (times_ms(batch[column]) for batch in scanned(snapshot, [file], [column]))


def _size_cut(files: Sequence[_AgedFile], room: float) -> int:
    """The least time from which on rows take no more than `room` bytes; at most the newest time."""
    newest = max(each.greatest for each in files)
    begin, end = min(each.least for each in files), newest + 1
    while True:
        width = -(-(end - begin) // _INTERVALS)
        sizes = _sizes(files, begin, end, width)
        newer = np.rint(np.cumsum(sizes[::-1]))  # bytes of the newest interval, the newest two ...
        fit = int(np.searchsorted(newer, room, side="right"))
        end = begin + (len(sizes) - fit) * width
        if width == 1 or fit == len(sizes):
            return min(end, newest)
        begin, room = end - width, room - (newer[fit - 1] if fit else 0)


def _sizes(files: Sequence[_AgedFile], begin: int, end: int, width: int) -> NDArray[np.float64]:
    """The bytes of rows in each interval of `width` ms from `begin` to `end`. Files within one are not read."""
    sizes = np.zeros(-(-(end - begin) // width))
    for each in files:
        if each.greatest < begin or each.least >= end:
            continue
        first, last = (each.least - begin) // width, (each.greatest - begin) // width
        if first == last:
            sizes[first] += each.aged_bytes
            continue
        for times in each.times():
            own = (times[(times >= begin) & (times < end)] - begin) // width
            sizes += np.bincount(own, minlength=len(sizes)) * each.row_bytes
    return sizes


def _as_ms(value: Any) -> int:
    return (value - _EPOCH) // _MS if isinstance(value, dt.datetime) else int(value or 0)
