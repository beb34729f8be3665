"""The batches that replay leaves to many share partitions at once: the combiner's law, applied once to each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.record_columns import BatchColumns
from acktrail.columnar.replaying.clipped_batches import ClippedBatches, state_and_count
from acktrail.columnar.replaying.concatenated_records import ConcatenatedRecords
from acktrail.columnar.replaying.interval_cover import cover
from acktrail.columnar.sorting import ascending
from acktrail.model.batches import combine_state_batches
from acktrail.model.delivery import StateBatch

__all__ = ["LOWEST", "Segments", "combine_batches"]

LOWEST: Final = np.iinfo(np.int64).min
"""Stands for no start offset: nothing lies below it."""

_NO_OWNER: Final = -1
_HIGHEST: Final = np.iinfo(np.int64).max
_WIDEST: Final = 1 << 40
"""Offsets that one share partition's batches may span to find room on an axis shared with others."""

_BATCHES_AT_ONCE: Final = 1 << 17
"""Batches swept together, if they are not one share partition's: their arrays stay in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Rows in `order`: places `heads` to `tails`, both inclusive, are one share partition's."""

    order: Int64Array
    heads: Int64Array
    tails: Int64Array

    @classmethod
    def of(cls, order: Int64Array, heads: Int64Array) -> Self:
        return cls(order=order, heads=heads, tails=np.append(heads[1:], len(order))[: len(heads)] - 1)

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def lengths(self) -> Int64Array:
        return self.tails - self.heads + 1

    @property
    def numbers(self) -> Int64Array:
        """The segment of each place."""
        return np.repeat(np.arange(len(self)), self.lengths)


_Part = tuple[Int64Array, BatchColumns]
"""Segments in ascending order, and the batches that the state of each has."""


def combine_batches(
    records: ConcatenatedRecords, starts: Int64Array, cuts: Int64Array, segments: Segments
) -> BatchColumns:
    """The batches of each segment's state.

    `starts` and `cuts` are, for each place in ``segments.order``, the start offset in force after that record and the
    one below which its batches are gone.

    A segment of one record keeps that record's batches as they were written. Segments in which a batch ends before it
    begins, or lies 2**40 offsets from another, are combined record by record.
    """
    live = _live(records, cuts, segments)
    odd = _odd(live, len(segments))
    lone = np.flatnonzero(segments.heads == segments.tails)
    parts = [
        *(_swept(piece) for piece in _pieces(live.take(np.flatnonzero(~odd[live.owners])) if odd.any() else live)),
        (lone, records.batches_of(segments.order[segments.heads[lone]])),
        *(_combined(records, starts, segments, segment) for segment in np.flatnonzero(odd).tolist()),
    ]
    return _laid_out(parts, len(segments))


def _live(records: ConcatenatedRecords, cuts: Int64Array, segments: Segments) -> ClippedBatches:
    """What is left of the batches of segments with updates, in the order of their segments."""
    rows = len(records)
    merged = np.flatnonzero(np.repeat(segments.heads != segments.tails, segments.lengths))
    owners, cut_of_row = np.full(rows, _NO_OWNER), np.full(rows, _HIGHEST)
    owners[segments.order[merged]] = segments.numbers[merged]
    cut_of_row[segments.order[merged]] = cuts[merged]
    live = ClippedBatches.concat([batches.cut(owners[own], cut_of_row[own]) for own, batches in records.batches()])
    live = live.take(ascending(live.owners))
    return live.take(slice(int(np.searchsorted(live.owners, 0)), None))  # those that end at the last offset are none's


def _heads(owners: Int64Array) -> Int64Array:
    """Where each owner begins."""
    return np.flatnonzero(np.diff(owners, prepend=-1))


def _odd(live: ClippedBatches, count: int) -> BoolArray:
    """Segments whose batches must be combined one record after another."""
    odd = np.zeros(count, np.bool_)
    odd[live.owners[live.first > live.last]] = True
    heads = _heads(live.owners)
    if len(heads):
        lowest, highest = np.minimum.reduceat(live.first, heads), np.maximum.reduceat(live.last, heads)
        is_wide = (highest.view(np.uint64) - lowest.view(np.uint64)) >= np.uint64(_WIDEST)
        odd[live.owners[heads[is_wide]]] = True
    return odd


def _pieces(live: ClippedBatches) -> Iterator[ClippedBatches]:
    """Whole segments, about ``_BATCHES_AT_ONCE`` batches together."""
    heads = _heads(live.owners)
    begins = heads[_heads(heads // _BATCHES_AT_ONCE)].tolist()
    for begin, end in zip(begins, [*begins[1:], len(live)], strict=False):
        yield live.take(slice(begin, end))


def _swept(live: ClippedBatches) -> _Part:
    """Segments laid side by side on one axis and swept."""
    heads = _heads(live.owners)
    lowest, highest = np.minimum.reduceat(live.first, heads), np.maximum.reduceat(live.last, heads)
    room = highest - lowest + 2  # a free point between neighbours, so that they never touch
    begin = np.cumsum(room) - room
    shift = np.repeat(begin - lowest, np.diff(heads, append=len(live)))
    first, last, priority = cover(live.first + shift, live.last + shift, live.priority)
    counts = np.diff(np.searchsorted(first, begin), append=len(first))
    shift = np.repeat(begin - lowest, counts)
    state, count = state_and_count(priority)
    return live.owners[heads], BatchColumns(
        counts=counts,
        first_offset=first - shift,
        last_offset=last - shift,
        delivery_state=state,
        delivery_count=count,
    )


def _combined(records: ConcatenatedRecords, starts: Int64Array, segments: Segments, segment: int) -> _Part:
    """One segment by the plain law, record after record."""
    places = np.arange(segments.heads[segment], segments.tails[segment] + 1)
    lists = records.batches_of(segments.order[places]).to_arrow().to_pylist()
    found, *updates = (tuple(StateBatch(**batch) for batch in batches) for batches in lists)
    for start, update in zip(starts[places[1:]].tolist(), updates, strict=True):
        found = combine_state_batches(found, update, start)
    return np.array([segment]), BatchColumns.of_batches([found])


def _laid_out(parts: Sequence[_Part], count: int) -> BatchColumns:
    """The parts' batches in the order of their segments; a segment in no part has none."""
    owners = np.concatenate([segments for segments, _ in parts])
    batches = BatchColumns.concat([found for _, found in parts])
    if (owners[1:] < owners[:-1]).any():
        order = np.argsort(owners, kind="stable")
        owners, batches = owners[order], batches.take(order)
    counts = np.zeros(count, np.int64)
    counts[owners] = batches.counts
    return replace(batches, counts=counts)
