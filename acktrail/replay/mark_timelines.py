"""Ranges of offsets that records mark one after the other: which marks each record changes, for many runs at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from acktrail.format.columns.binary_column import BoolArray, Int64Array, ascending, joined_rows, starts_of, strides
from acktrail.format.columns.record_columns import ArrayColumns
from acktrail.model.offset_changes import LAST_OFFSET

_MARK_BITS: Final = 26
_MARK_MASK: Final = (1 << _MARK_BITS) - 1
_ROW_SHIFT: Final = _MARK_BITS + 1
_NO_MARK: Final = -(1 << 25)
"""Marks are above this and below its opposite."""
_RANGES_AT_ONCE: Final = 1 << 14
"""Ranges in one go, except where one run has more: their arrays stay in the processor's cache."""
_MOST_ROWS: Final = 1 << 12
_LEAST_ROWS: Final = 1 << 5
_CUTS_OF_A_RANGE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedRanges(ArrayColumns):
    """Offsets `first` to `last`, both inclusive and none negative, that record `row` of a run gives `mark`: arrays of
    shape (n,).

    The greatest mark of an offset counts. One that `replaces` counts instead of all that came before it.
    """

    run: Int64Array
    row: Int64Array
    first: Int64Array
    last: Int64Array
    mark: Int64Array
    replaces: BoolArray

    @classmethod
    def of(cls, row: Int64Array, first: Any, last: Any, mark: Any, *, replaces: bool = False) -> Self:
        """Ranges of `row`, each a run of its own; the others are numbers or arrays."""
        first, last, mark = (np.broadcast_to(np.asarray(each, np.int64), row.shape) for each in (first, last, mark))
        return cls(run=row, row=row, first=first, last=last, mark=mark, replaces=np.full(len(row), replaces))


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkChanges(ArrayColumns):
    """Offsets `first` to `last` whose mark record `row` changes from `before` to `after`: arrays of shape (n,)."""

    row: Int64Array
    first: Int64Array
    last: Int64Array
    before: Int64Array
    after: Int64Array

    def joined(self) -> Self:
        """Touching neighbours with the same row and marks made one."""
        is_same = self.first[1:] == self.last[:-1] + 1
        for name in ("row", "before", "after"):
            is_same &= getattr(self, name)[1:] == getattr(self, name)[:-1]
        heads, tails = joined_rows(is_same, len(self.row))
        return replace(self.take(heads), last=self.last[tails])


_CHANGES: Final = tuple(MarkChanges.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timelines:
    """`changes` in no order, except that those of a row ascend and may touch; `begins` and `ends`: all offsets of each
    run after its first and after its last row, ascending, neighbours with different marks."""

    changes: MarkChanges
    begins: MarkedRanges
    ends: MarkedRanges

    @classmethod
    def concat(cls, pieces: Sequence[Timelines]) -> Self:
        """The pieces end to end."""
        changes = MarkChanges.concat([piece.changes for piece in pieces])
        begins, ends = (MarkedRanges.concat([getattr(piece, name) for piece in pieces]) for name in ("begins", "ends"))
        return cls(changes=changes, begins=begins, ends=ends)


def timelines(ranges: MarkedRanges) -> Timelines:
    """What happens in each run.

    Args:
        ranges: ascending by run, then row; the rows of a run are near each other. Those of a run's first row cover
            every offset from 0 to 2**63 - 1.

    The offsets of a run are cut at both ends of all its ranges, and every slice goes through the ranges that cover it
    in the order of their rows. Their marks so far are one running maximum over all slices of all runs. Where wide
    ranges are cut into too many slices a run is divided: some of its rows first, the others from what these leave.

    Cost: O(n log n) for n ranges that are cut into few slices each; at most 16 or so for each range, unless single rows
    cover more.

    Row 0 marks all offsets with 0; row 1 those from 5 to 9 with 3, row 2 from 8 to 20 with 2, which raises 10 to 20:

    >>> marked = MarkedRanges.of(np.arange(3), [0, 5, 8], [LAST_OFFSET, 9, 20], [0, 3, 2])
    >>> found = timelines(replace(marked, run=np.zeros(3, np.int64))).changes
    >>> found.row.tolist(), found.first.tolist(), found.last.tolist(), found.before.tolist(), found.after.tolist()
    ([1, 1, 2], [5, 8, 10], [7, 9, 20], [0, 0, 0], [3, 3, 2])
    """
    none = ranges.take(slice(0, 0))
    nothing = Timelines(changes=MarkChanges(**dict.fromkeys(_CHANGES, none.row)), begins=none, ends=none)
    starts = starts_of(ranges.run)
    begins = starts[starts_of(starts // _RANGES_AT_ONCE)].tolist()
    pieces = zip(begins, [*begins[1:], len(ranges.run)], strict=False)
    parts = (part for begin, end in pieces for part in _parts(ranges.take(slice(begin, end))))
    return Timelines.concat([nothing, *parts])


def _parts(ranges: MarkedRanges) -> Iterator[Timelines]:
    """The timelines of runs, some rows of each at a time."""
    at, size = starts_of(ranges.run), _MOST_ROWS
    runs, ends, carried = ranges.run[at], np.append(at[1:], len(ranges.run)), ranges.take(slice(0, 0))
    begins = None
    while len(active := np.flatnonzero(at < ends)):
        low = at[active]
        high = np.minimum(np.searchsorted(ranges.row, ranges.row[low] + size), ends[active])
        own = ranges
        if (high - low).sum() < len(ranges.run):
            own = MarkedRanges.concat([carried, ranges.take(strides(low, high - low, 1))])
            own = own.take(ascending(own.run))
        slices, begin, lengths = _cut(own)
        if lengths.sum() > _CUTS_OF_A_RANGE * len(own.run) and size > _LEAST_ROWS:
            size = max(size // 4, _LEAST_ROWS)
            continue
        done = _timelines(own, slices, begin, lengths)
        is_open = np.isin(done.ends.run, runs[active[high < ends[active]]])
        carried = done.ends.take(np.flatnonzero(is_open))
        begins = done.begins if begins is None else carried.take(slice(0, 0))
        yield Timelines(changes=done.changes, begins=begins, ends=done.ends.take(np.flatnonzero(~is_open)))
        at[active], size = high, min(2 * size, _MOST_ROWS)


def _cut(ranges: MarkedRanges) -> tuple[MarkedRanges, Int64Array, Int64Array]:
    """The slices between all ends of the ranges of each run; and for each range the first one, and how many, it
    covers."""
    is_last = ranges.last == LAST_OFFSET  # ends where the next run begins
    points = np.concatenate([ranges.first, np.where(is_last, 0, ranges.last + 1)])
    starts = starts_of(ranges.run)
    runs = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(is_last)))
    runs = np.concatenate([runs, runs + is_last])
    # In a run only 0 is far from the other points: without the distance to it there are fewer digits to sort by.
    least = np.where(ranges.first > 0, ranges.first, np.maximum(ranges.last, 1))
    near = points - np.append(np.minimum.reduceat(least, starts), 0)[runs]
    order = ascending(np.where(points == 0, 0, near + 1))
    order = order[ascending(runs[order])]
    runs, points = runs[order], points[order]
    is_edge = np.append(True, (runs[1:] != runs[:-1]) | (points[1:] != points[:-1]))
    edge = np.empty(len(order), np.int64)
    edge[order] = np.cumsum(is_edge) - 1
    begin, end = edge.reshape(2, -1)
    edges = np.flatnonzero(is_edge)
    first, of_run = points[edges], ranges.run[starts[runs[edges[:-1]]]]
    slices = MarkedRanges.of(of_run, first[:-1], np.where(first[1:] == 0, LAST_OFFSET, first[1:] - 1), 0)
    return slices, begin, end - begin


def _timelines(own: MarkedRanges, of: MarkedRanges, begin: Int64Array, lengths: Int64Array) -> Timelines:
    packed = own.row << _ROW_SHIFT | own.replaces.astype(np.int64) << _MARK_BITS | (own.mark - _NO_MARK)
    slices = strides(begin, lengths, 1)
    order = ascending(slices)
    slices, packed = slices[order], np.repeat(packed, lengths)[order]
    is_first = np.append(True, slices[1:] != slices[:-1])
    part = np.cumsum(is_first | (packed & 1 << _MARK_BITS != 0))
    marks = np.maximum.accumulate(part << _MARK_BITS | packed & _MARK_MASK)
    row = packed >> _ROW_SHIFT
    newest = np.flatnonzero(np.append(is_first[1:] | (row[1:] != row[:-1]), True))
    slices, row, marks = slices[newest], row[newest], (marks[newest] & _MARK_MASK) + _NO_MARK
    first = starts_of(slices)
    is_raised = np.append(False, marks[1:] != marks[:-1])
    is_raised[first] = False
    changed = np.flatnonzero(is_raised)
    at = slices[changed]
    columns = (row[changed], of.first[at], of.last[at], marks[changed - 1], marks[changed])
    return Timelines(
        changes=MarkChanges(**dict(zip(_CHANGES, columns, strict=True))),
        begins=_joined(of, row[first], marks[first]),
        ends=_joined(of, row[first], marks[np.append(first[1:], len(marks)) - 1]),
    )


def _joined(slices: MarkedRanges, row: Int64Array, mark: Int64Array) -> MarkedRanges:
    """Slices with these marks, neighbours with one mark made one."""
    run = slices.run
    heads, tails = joined_rows((run[1:] == run[:-1]) & (mark[1:] == mark[:-1]), len(mark))
    return replace(slices.take(heads), row=row[heads], last=slices.last[tails], mark=mark[heads])
