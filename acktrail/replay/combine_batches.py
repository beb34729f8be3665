"""Overlapping state batches of many share partitions combined at once (Kafka: ``PersisterStateBatchCombiner``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from acktrail.format.columns.binary_column import BoolArray, Int64Array, ascending, joined_rows, starts_of
from acktrail.format.columns.record_columns import (
    BatchColumns,
    ClippedBatches,
    NumberColumn,
    RecordColumns,
    state_and_count,
)
from acktrail.model.batches import StateBatch, combine_state_batches

_Combined = tuple[Int64Array, BatchColumns]
"""Segments in ascending order, and the batches of each one's state."""
_Priorities = npt.NDArray[np.int32]
_Intervals = tuple[Int64Array, Int64Array, _Priorities]
"""First points, last points (inclusive), priorities."""
_UNCOVERED: Final = np.iinfo(np.int32).min
LOWEST: Final = np.iinfo(np.int64).min
"""Stands for no start offset: nothing is below it."""
_NO_SEGMENT: Final = -1
_HIGHEST: Final = np.iinfo(np.int64).max
_WIDEST: Final = 1 << 40
"""Offsets that the batches of one share partition may span to share an axis with others."""
_BATCHES_AT_ONCE: Final = 1 << 17
"""Batches covered together, except where one share partition has more: their arrays stay in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Runs of one share partition each: segment i is ``order[starts[i] : ends[i] + 1]``, in log order."""

    order: Int64Array
    starts: Int64Array
    ends: Int64Array

    @classmethod
    def of(cls, order: Int64Array, starts: Int64Array) -> Self:
        return cls(order=order, starts=starts, ends=np.append(starts[1:], len(order))[: len(starts)] - 1)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Int64Array:
        return self.ends - self.starts + 1

    @property
    def numbers(self) -> Int64Array:
        """The segment of each place in `order`."""
        return np.repeat(np.arange(len(self)), self.lengths)


class ConcatenatedRecords:
    """The rows of `pieces`, end to end. Only the rows that a method returns are copied."""

    def __init__(self, pieces: Sequence[RecordColumns]) -> None:
        self._pieces = pieces
        self._ends = np.cumsum([len(piece.batches.counts) for piece in pieces])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def column(self, name: str) -> NumberColumn:
        """One number of all rows."""
        return NumberColumn.concat([piece.numbers[name] for piece in self._pieces])

    def batches(self) -> Iterator[tuple[slice, BatchColumns]]:
        """The batches of each piece, with the range of its rows."""
        for piece, end in zip(self._pieces, self._ends.tolist(), strict=True):
            yield slice(end - len(piece.batches.counts), end), piece.batches

    def numbers_of(self, rows: Int64Array, names: Sequence[str]) -> dict[str, NumberColumn]:
        """Numbers of `rows`, in that order."""
        parts, order = self._split(rows)
        taken = {name: [piece.numbers[name].take(own) for piece, own in parts] for name in names}
        return {name: NumberColumn.concat(columns).take(order) for name, columns in taken.items()}

    def batches_of(self, rows: Int64Array) -> BatchColumns:
        """The batches of `rows`, in that order."""
        parts, order = self._split(rows)
        return BatchColumns.concat([piece.batches.take(own) for piece, own in parts]).take(order)

    def _split(self, rows: Int64Array) -> tuple[list[tuple[RecordColumns, Int64Array]], Int64Array]:
        """The pieces with `rows`, or the last one, each with its own; and the order that puts these, piece after piece,
        back into that of `rows`."""
        by_row = np.argsort(rows, kind="stable")
        begins = np.append(0, self._ends[:-1])
        bounds = np.searchsorted(rows[by_row], begins).tolist()
        spans = zip(self._pieces, bounds, [*bounds[1:], len(rows)], begins.tolist(), strict=True)
        parts = [(piece, rows[by_row[start:end]] - begin) for piece, start, end, begin in spans]
        order = np.empty(len(rows), np.int64)
        order[by_row] = np.arange(len(rows))
        return [part for part in parts if len(part[1])] or parts[-1:], order


def combine_batches(
    records: ConcatenatedRecords, start_offsets: Int64Array, prune_below: Int64Array, segments: Segments
) -> BatchColumns:
    """The batches of each segment's state; row i of the result is segment i.

    Args:
        records: the rows that ``segments.order`` numbers.
        start_offsets: int64, shape (places,): for each place in ``segments.order`` the start offset in force after that
            record.
        prune_below: int64, shape (places,): the offset below which that record's batches are dropped.

    Ties: at an offset the highest delivery count wins, then the highest delivery state. A segment of one record keeps
    its batches as written. Segments are laid side by side on one axis and covered together; those with an inverted
    batch, or with batches 2**40 offsets apart, are combined record by record.

    A snapshot with 0-9 available after one delivery, and an update that acknowledges 5-9 at the second:

    >>> from acktrail.format.columns.record_columns import RecordColumns
    >>> batches = BatchColumns.of_batches(
    ...     [
    ...         [StateBatch(first_offset=0, last_offset=9, delivery_state=0, delivery_count=1)],
    ...         [StateBatch(first_offset=5, last_offset=9, delivery_state=2, delivery_count=2)],
    ...     ]
    ... )
    >>> records = ConcatenatedRecords([RecordColumns(numbers={}, batches=batches)])
    >>> segments = Segments.of(order=np.arange(2), starts=np.array([0]))
    >>> combined = combine_batches(records, np.array([0, 0]), np.array([0, 0]), segments)
    >>> combined.first_offset.tolist(), combined.last_offset.tolist(), combined.delivery_state.tolist()
    ([0, 5], [4, 9], [0, 2])
    """
    clipped = _clipped(records, prune_below, segments)
    irregular = _irregular_segments(clipped, len(segments))
    single = np.flatnonzero(segments.starts == segments.ends)
    regular = clipped.take(np.flatnonzero(~irregular[clipped.segment])) if irregular.any() else clipped
    parts = [
        *(_covered(piece) for piece in _pieces(regular)),
        (single, records.batches_of(segments.order[segments.starts[single]])),
        *(
            _record_by_record(records, start_offsets, segments, segment)
            for segment in np.flatnonzero(irregular).tolist()
        ),
    ]
    return _in_segment_order(parts, len(segments))


def _clipped(records: ConcatenatedRecords, prune_below: Int64Array, segments: Segments) -> ClippedBatches:
    """The clipped batches of segments with updates, in the order of the segments."""
    rows = len(records)
    places = np.flatnonzero(np.repeat(segments.starts != segments.ends, segments.lengths))
    segment, prune_row_below = np.full(rows, _NO_SEGMENT), np.full(rows, _HIGHEST)
    segment[segments.order[places]] = segments.numbers[places]
    prune_row_below[segments.order[places]] = prune_below[places]
    clipped = ClippedBatches.concat(
        [batches.clip(segment[own], prune_row_below[own]) for own, batches in records.batches()]
    )
    clipped = clipped.take(ascending(clipped.segment))
    # Batches that end at 2**63 - 1 pass even where nothing should: rows of no segment sort first and are dropped.
    return clipped.take(slice(int(np.searchsorted(clipped.segment, 0)), None))


def _irregular_segments(clipped: ClippedBatches, count: int) -> BoolArray:
    """Which segments must be combined record by record; shape (count,)."""
    irregular = np.zeros(count, np.bool_)
    irregular[clipped.segment[clipped.first > clipped.last]] = True
    starts = starts_of(clipped.segment)
    if len(starts):
        lowest, highest = np.minimum.reduceat(clipped.first, starts), np.maximum.reduceat(clipped.last, starts)
        # As unsigned numbers the difference cannot overflow.
        is_wide = (highest.view(np.uint64) - lowest.view(np.uint64)) >= np.uint64(_WIDEST)
        irregular[clipped.segment[starts[is_wide]]] = True
    return irregular


def _pieces(clipped: ClippedBatches) -> Iterator[ClippedBatches]:
    """Whole segments, about ``_BATCHES_AT_ONCE`` batches together."""
    starts = starts_of(clipped.segment)
    begins = starts[starts_of(starts // _BATCHES_AT_ONCE)].tolist()
    for begin, end in zip(begins, [*begins[1:], len(clipped)], strict=False):
        yield clipped.take(slice(begin, end))


def _covered(clipped: ClippedBatches) -> _Combined:
    """Segments shifted side by side on one axis and covered at once, then shifted back."""
    starts = starts_of(clipped.segment)
    lowest, highest = np.minimum.reduceat(clipped.first, starts), np.maximum.reduceat(clipped.last, starts)
    room = highest - lowest + 2  # a free point between neighbours, so that they never touch
    begin = np.cumsum(room) - room
    shift = np.repeat(begin - lowest, np.diff(starts, append=len(clipped)))
    first, last, priority = cover(clipped.first + shift, clipped.last + shift, clipped.priority)
    counts = np.diff(np.searchsorted(first, begin), append=len(first))
    shift = np.repeat(begin - lowest, counts)
    state, count = state_and_count(priority)
    return clipped.segment[starts], BatchColumns(
        counts=counts, first_offset=first - shift, last_offset=last - shift, delivery_state=state, delivery_count=count
    )


def _record_by_record(
    records: ConcatenatedRecords, start_offsets: Int64Array, segments: Segments, segment: int
) -> _Combined:
    """One segment by the model's combiner, record after record."""
    places = np.arange(segments.starts[segment], segments.ends[segment] + 1)
    lists = records.batches_of(segments.order[places]).to_arrow().to_pylist()
    state, *updates = (tuple(StateBatch(**batch) for batch in batches) for batches in lists)
    for start, update in zip(start_offsets[places[1:]].tolist(), updates, strict=True):
        state = combine_state_batches(state, update, start)
    return np.array([segment]), BatchColumns.of_batches([state])


def _in_segment_order(parts: Sequence[_Combined], count: int) -> BatchColumns:
    """The parts' batches in the order of their segments; a segment in no part has none."""
    segment = np.concatenate([segments for segments, _ in parts])
    batches = BatchColumns.concat([combined for _, combined in parts])
    if (segment[1:] < segment[:-1]).any():
        order = np.argsort(segment, kind="stable")
        segment, batches = segment[order], batches.take(order)
    counts = np.zeros(count, np.int64)
    counts[segment] = batches.counts
    return replace(batches, counts=counts)


def cover(first: Int64Array, last: Int64Array, priority: _Priorities) -> _Intervals:
    """The shortest list of disjoint intervals in which every point has the highest priority that covers it.

    Args:
        first, last: int64, shape (n,): the first and last point of each interval, both inclusive, in any order; needs
            ``0 <= first <= last < 2**62``.
        priority: int32, shape (n,).

    Returns:
        The same three arrays, of the m intervals of the cover, ascending. Touching intervals of equal priority are one;
        points that no interval covers stay gaps.

    Only intervals that overlap others are cut: each end becomes a boundary, each interval marks the slices between its
    ends in a table of doubling widths, and the widths are pushed down to one. Cost: O(n log n) to sort, O(n log w) to
    push down, w the most slices that one interval spans.

    Priority 2 wins where 0-9 and 5-14 overlap; 20-29 touches nothing:

    >>> first, last = np.array([0, 5, 20]), np.array([9, 14, 29])
    >>> [array.tolist() for array in cover(first, last, np.array([1, 2, 1], np.int32))]
    [[0, 5, 20], [4, 14, 29], [1, 2, 1]]
    """
    order = ascending(first)
    first, last, priority = first[order], last[order], priority[order]
    if not len(first):
        return first, last, priority
    meets = first[1:] <= np.maximum.accumulate(last)[:-1]
    if meets.any():
        first, last, priority = _disjoint(first, last, priority, meets)
    return _joined(first, last, priority)


def _disjoint(first: Int64Array, last: Int64Array, priority: _Priorities, meets: BoolArray) -> _Intervals:
    """Ascending intervals cut so that none overlap; interval i+1 meets an earlier one where ``meets[i]``."""
    crowded = np.zeros(len(first), np.bool_)
    crowded[1:] = meets
    crowded[:-1] |= meets
    slices = _slices(first[crowded], last[crowded], priority[crowded])
    if crowded.all():
        return slices
    alone = ~crowded
    first = np.concatenate([first[alone], slices[0]])
    last = np.concatenate([last[alone], slices[1]])
    priority = np.concatenate([priority[alone], slices[2]])
    order = np.argsort(first, kind="stable")  # merges two ascending runs: linear in timsort
    return first[order], last[order], priority[order]


def _slices(first: Int64Array, last: Int64Array, priority: _Priorities) -> _Intervals:
    """Intervals cut at every end of any of them, each slice once with the highest priority over it."""
    points = np.concatenate([first, last + 1])
    points.sort()
    edges = points[np.concatenate([[True], points[1:] != points[:-1]])]
    begin, end = np.searchsorted(edges, first), np.searchsorted(edges, last + 1)
    highest = _highest_over_slices(begin, end, priority, len(edges))
    covered = np.flatnonzero(highest != _UNCOVERED)
    return edges[covered], edges[covered + 1] - 1, highest[covered]


def _highest_over_slices(begin: Int64Array, end: Int64Array, priority: _Priorities, count: int) -> _Priorities:
    """The highest priority at each of `count` slices; interval i covers slices ``begin[i]`` to ``end[i] - 1``.

    As in a sparse table for range queries: an interval of n slices is the union of two blocks, which may overlap, of
    the greatest power of two that is not above n. Each power marks only where its blocks begin; from the widest to the
    narrowest, a block of width 2w then passes its priority to its two halves of width w.
    """
    level = np.frexp(end - begin)[1] - 1
    highest = np.full(count, _UNCOVERED, np.int32)
    for exponent in range(int(level.max()), -1, -1):
        rows = np.flatnonzero(level == exponent)
        np.maximum.at(highest, begin[rows], priority[rows])
        if exponent:
            np.maximum.at(highest, end[rows] - (1 << exponent), priority[rows])
            half = 1 << (exponent - 1)
            narrower = highest.copy()
            np.maximum(narrower[half:], highest[:-half], out=narrower[half:])
            highest = narrower
    return highest


def _joined(first: Int64Array, last: Int64Array, priority: _Priorities) -> _Intervals:
    """Touching neighbours of equal priority made one."""
    is_joined = (first[1:] == last[:-1] + 1) & (priority[1:] == priority[:-1])
    heads, tails = joined_rows(is_joined, len(first))
    return first[heads], last[tails], priority[heads]
