"""The fences of expansions out of the log ends of their looks, all partitions of one at once."""

from __future__ import annotations

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
LOG_VALUES: Final = ("log_end_offset", "log_start_offset", "leader_epoch")
LOG_ROWS: Final = pa.schema(
    [
        pa.field("look", INT64),
        pa.field("partition", INT32),
        *(pa.field(name, INT64) for name in LOG_VALUES),
    ]
)
"""One partition at one look, which is a number of ``LookColumns``."""
_GAPS: Final = np.array([None, *FenceGap], dtype=object)
_NUMBER: Final = {gap: number for number, gap in enumerate(_GAPS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceColumns:
    """What each partition from before an expansion has; all of shape (old count,), MISSING where not known."""

    low: Int64Array
    high: Int64Array
    epoch_low: Int64Array
    epoch_high: Int64Array
    log_start: Int64Array
    gaps: npt.NDArray[np.object_]

    @property
    def is_complete(self) -> bool:
        """No more looks could make another end known."""
        return not np.isin(self.gaps, (FenceGap.NOT_SEEN_BEFORE, FenceGap.NOT_SEEN_AFTER)).any()


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
    ends = values.matrix("log_end_offset", found.before, count)[::-1]
    epochs = values.matrix("leader_epoch", found.before, count)[::-1]
    low, epoch_low = _first(ends, epochs, ends >= 0)
    later = values.matrix("log_end_offset", found.after, count)
    is_settled = (looks.at[found.after] >= found.settles_at)[:, None]
    is_high = (later >= 0) & is_settled
    high, epoch_high = _first(later, values.matrix("leader_epoch", found.after, count), is_high)
    until = np.where(is_high.any(axis=0), is_high.argmax(axis=0), len(later) - 1)
    fell = (later >= 0) & (later < low) & (np.arange(len(later))[:, None] <= until)
    is_truncated = fell.any(axis=0)
    without_high = FenceGap.NOT_SEEN_AFTER if found.is_settled else FenceGap.SETTLING
    gaps = np.select(
        [is_truncated, low < 0, high < 0],
        [_NUMBER[FenceGap.TRUNCATED], _NUMBER[FenceGap.NOT_SEEN_BEFORE], _NUMBER[without_high]],
        0,
    )
    return FenceColumns(
        low=np.where(is_truncated, MISSING, low),
        high=np.where(is_truncated, MISSING, high),
        epoch_low=epoch_low,
        epoch_high=epoch_high,
        log_start=values.matrix("log_start_offset", np.array([newest]), count)[0],
        gaps=_GAPS[gaps],
    )


def _first(ends: Int64Array, epochs: Int64Array, mask: npt.NDArray[np.bool_]) -> tuple[Int64Array, Int64Array]:
    """The first end and epoch of each column where `mask` is true; MISSING where it never is."""
    if not len(ends):
        nothing = np.full(ends.shape[1], MISSING, np.int64)
        return nothing, nothing
    place, columns, is_there = mask.argmax(axis=0), np.arange(ends.shape[1]), mask.any(axis=0)
    return np.where(is_there, ends[place, columns], MISSING), np.where(is_there, epochs[place, columns], MISSING)
