"""The fences of expansions out of the log ends of their looks, all partitions of one at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.expansion.look_columns import FoundExpansion, LookColumns
from acktrail.columnar.schemas.schema_types import INT32, INT64
from acktrail.model.expansion.partition_ledger import FenceGap

MISSING: Final = -1
"""In place of an offset or an epoch: not known."""
LOG_VALUES: Final = ("log_end_offset", "log_start_offset", "leader_epoch", "ended_epoch", "epoch_end_offset")
LOG_ROWS: Final = pa.schema(
    [
        pa.field("look", INT64),
        pa.field("partition", INT32),
        *(pa.field(name, INT64) for name in LOG_VALUES),
    ]
)
"""One partition at one look, which is a number of ``LookColumns``."""
_FOLLOWED: Final = ("log_end_offset", "leader_epoch", "ended_epoch", "epoch_end_offset")
_GAPS: Final = np.array([None, *FenceGap], dtype=object)
_MORE_LOOKS: Final = (FenceGap.NOT_SEEN_BEFORE, FenceGap.NOT_SEEN_AFTER, FenceGap.LEADERS_CHANGED)
_NUMBER: Final = {gap: number for number, gap in enumerate(_GAPS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceColumns:
    """What each partition from before an expansion has; all of shape (old count,), MISSING where not known."""

    low: Int64Array
    high: Int64Array
    epoch_low: Int64Array
    epoch_high: Int64Array
    epoch_end: Int64Array
    log_start: Int64Array
    gaps: npt.NDArray[np.object_]

    @property
    def is_complete(self) -> bool:
        """No more looks could make another end known."""
        return not np.isin(self.gaps, _MORE_LOOKS).any()


class LogValues:
    """Rows of ``LOG_ROWS`` by look and partition. Of doubled rows one counts."""

    def __init__(self, rows: pa.Table) -> None:
        look, partition = (rows[name].to_numpy().astype(np.int64) for name in ("look", "partition"))
        order = np.lexsort((partition, look))
        self._look, self._partition = look[order], partition[order]
        self._values = {name: _filled(rows[name])[order] for name in LOG_VALUES}

    def matrix(self, name: str, looks: Int64Array, partitions: int) -> Int64Array:
        """A value by look and partition, MISSING where there is none; shape (looks, partitions)."""
        found = np.full((len(looks), partitions), MISSING, np.int64)
        for number, look in enumerate(looks.tolist()):
            begin, end = np.searchsorted(self._look, (look, look + 1))
            own = self._partition[begin:end]
            fits = (own >= 0) & (own < partitions)
            found[number, own[fits]] = self._values[name][begin:end][fits]
        return found

    def at(self, name: str, looks: Int64Array, partitions: Int64Array) -> Int64Array:
        """One value for each of `looks` and `partitions`; MISSING where there is none. Partitions are below 2**31."""
        if not len(self._look):
            return np.full(len(looks), MISSING, np.int64)
        keys, wanted = self._look << 31 | self._partition, looks << 31 | partitions
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[place] == wanted, self._values[name][place], MISSING)


def _filled(column: pa.ChunkedArray) -> Int64Array:
    return np.asarray(column.fill_null(MISSING).to_numpy(), np.int64)


def fences(looks: LookColumns, found: FoundExpansion, values: LogValues, newest: int) -> FenceColumns:
    """The fences of one expansion, as ``partition_ledger.read_ledger`` has them; leader epochs are those of the looks
    that gave the ends, and the log start that of the look `newest`."""
    count = found.old_count
    before = [values.matrix(name, found.before, count)[::-1] for name in _FOLLOWED]
    low, *epochs = _first(before, before[0] >= 0)
    logs = _Continuity(low, *epochs)
    columns = zip(*(values.matrix(name, found.after, count) for name in _FOLLOWED), strict=True)
    for is_settled, row in zip(looks.at[found.after] >= found.settles_at, columns, strict=True):
        logs.follow(*row, is_settled=bool(is_settled))
        if not logs.is_open.any():
            break
    without_high = FenceGap.NOT_SEEN_AFTER if found.is_settled else FenceGap.SETTLING
    gaps = np.select(
        [logs.is_lost, logs.is_doubtful, low < 0, logs.high < 0],
        [
            *(_NUMBER[FenceGap.TRUNCATED], _NUMBER[FenceGap.LEADERS_CHANGED]),
            *(_NUMBER[FenceGap.NOT_SEEN_BEFORE], _NUMBER[without_high]),
        ],
        0,
    )
    is_void = logs.is_lost | logs.is_doubtful
    return FenceColumns(
        low=np.where(is_void, MISSING, low),
        high=np.where(is_void, MISSING, logs.high),
        epoch_low=epochs[0],
        epoch_high=logs.epoch_high,
        epoch_end=logs.epoch_end,
        log_start=values.matrix("log_start_offset", np.array([newest]), count)[0],
        gaps=_GAPS[gaps],
    )


class _Continuity:
    """``partition_ledger.LogContinuity`` of all logs of an expansion, up to the high fence of each; all arrays of shape
    (old count,). `epoch_end`: where the records of the first look's epoch end, as the first look in another one says.
    """

    def __init__(self, low: Int64Array, leader: Int64Array, ended: Int64Array, ended_at: Int64Array) -> None:
        self._end, self._leader, self._first = np.maximum(low, 0), leader, leader
        self._ended, self._ended_at = ended, ended_at
        self.is_open = np.ones(len(low), np.bool_)
        self.is_lost, self.is_doubtful = np.zeros(len(low), np.bool_), np.zeros(len(low), np.bool_)
        self.high, self.epoch_high, self.epoch_end = (np.full(len(low), MISSING, np.int64) for _ in range(3))

    def follow(
        self, end: Int64Array, leader: Int64Array, ended: Int64Array, ended_at: Int64Array, *, is_settled: bool
    ) -> None:
        """The next look."""
        is_there = self.is_open & (end >= 0)
        has_moved = (self._leader >= 0) & (leader != self._leader)
        of_leader = has_moved & (ended_at >= 0) & (ended == self._leader)
        of_ended = has_moved & (ended_at >= 0) & (ended >= 0) & (ended == self._ended)
        kept = np.where(of_leader, ended_at, np.minimum(ended_at, np.maximum(self._ended_at, 0)))
        is_known = of_leader | of_ended
        is_first = is_there & is_known & (self._leader == self._first) & (self.epoch_end < 0)
        self.epoch_end = np.where(is_first, ended_at, self.epoch_end)
        self.is_lost |= is_there & ((end < self._end) | (is_known & (kept < self._end)))
        self.is_doubtful = np.where(is_there, has_moved & ~is_known & (self._end > 0), self.is_doubtful)
        is_same = is_there & ~self.is_doubtful & ~self.is_lost
        for name, column in (("_end", end), ("_leader", leader), ("_ended", ended), ("_ended_at", ended_at)):
            setattr(self, name, np.where(is_same, column, getattr(self, name)))
        is_high = is_same if is_settled else np.zeros_like(is_same)
        self.high, self.epoch_high = np.where(is_high, end, self.high), np.where(is_high, leader, self.epoch_high)
        self.is_open &= ~(is_high | self.is_lost)


def _first(columns: Sequence[Int64Array], mask: npt.NDArray[np.bool_]) -> list[Int64Array]:
    """Of each of `columns` (rows, n) what it has in the first row where `mask` is true; MISSING where it never is."""
    if not len(mask):
        return [np.full(mask.shape[1], MISSING, np.int64) for _ in columns]
    place, at, is_there = mask.argmax(axis=0), np.arange(mask.shape[1]), mask.any(axis=0)
    return [np.where(is_there, column[place, at], MISSING) for column in columns]
