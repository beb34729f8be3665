"""The batches that replay leaves to many share partitions at once: the combiner's law, applied once to each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from acktrail.columnar.columns import BatchColumns
from acktrail.columnar.cover import cover
from acktrail.columnar.gather import Integers, Mask
from acktrail.model.batches import combine_state_batches
from acktrail.model.delivery import StateBatch

__all__ = ["LOWEST", "Segments", "merged_batches"]

LOWEST: Final = np.iinfo(np.int64).min
"""Stands for no start offset: nothing lies below it."""

_HIGHEST: Final = np.iinfo(np.int64).max
_WIDEST: Final = 1 << 40
"""Offsets that one share partition's batches may span to find room on an axis shared with others."""

_BATCHES_AT_ONCE: Final = 1 << 17
"""Batches swept together, if they are not one share partition's: their arrays stay in the processor's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Rows in `order`: places `heads` to `tails`, both inclusive, are one share partition's."""

    order: Integers
    heads: Integers
    tails: Integers

    @classmethod
    def of(cls, order: Integers, heads: Integers) -> Self:
        return cls(order=order, heads=heads, tails=np.append(heads[1:], len(order))[: len(heads)] - 1)

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def lengths(self) -> Integers:
        return self.tails - self.heads + 1

    @property
    def numbers(self) -> Integers:
        """The segment of each place."""
        return np.repeat(np.arange(len(self)), self.lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batches:
    """Batches with the segments that have them."""

    owners: Integers
    first: Integers
    last: Integers
    priority: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.owners)

    def take(self, rows: Integers | slice | Mask) -> _Batches:
        return _Batches(
            owners=self.owners[rows], first=self.first[rows], last=self.last[rows], priority=self.priority[rows]
        )


_Part = tuple[Integers, BatchColumns]
"""Segments in ascending order, and the batches that the state of each has."""


def merged_batches(
    batches: Sequence[BatchColumns], starts: Integers, cuts: Integers, segments: Segments
) -> BatchColumns:
    """The batches of each segment's state.

    `batches` are those of the rows that ``segments.order`` numbers, part by part; `starts` and `cuts`, one for each
    place in it, the start offset in force and the one below which the record's batches are gone.

    A segment of one record keeps that record's batches as they were written. Segments in which a batch ends before it
    begins, or lies 2**40 offsets from another, are combined record by record.
    """
    rows = _Rows(batches)
    live = _live(batches, cuts, segments)
    odd = _odd(live, len(segments))
    lone = np.flatnonzero(segments.heads == segments.tails)
    parts = [
        *(_swept(piece) for piece in _pieces(live.take(~odd[live.owners]) if odd.any() else live)),
        (lone, rows.take(segments.order[segments.heads[lone]])),
        *(_combined(rows, starts, segments, segment) for segment in np.flatnonzero(odd).tolist()),
    ]
    return _laid_out(parts, len(segments))


def _live(batches: Sequence[BatchColumns], cuts: Integers, segments: Segments) -> _Batches:
    """What is left of the batches of segments with updates, in the order of their segments."""
    rows = sum(len(part.counts) for part in batches)
    merged = np.flatnonzero(np.repeat(segments.heads != segments.tails, segments.lengths))
    owner_of_row, cut_of_row = np.full(rows, -1), np.full(rows, _HIGHEST)
    owner_of_row[segments.order[merged]] = segments.numbers[merged]
    cut_of_row[segments.order[merged]] = cuts[merged]
    begin, found = 0, []
    for part in batches:
        own = slice(begin, begin + len(part.counts))
        found.append(_cut(part, owner_of_row[own], cut_of_row[own]))
        begin = own.stop
    live = _Batches(**{name: np.concatenate([getattr(p, name) for p in found]) for name in _Batches.__slots__})
    return live.take(_grouped(live.owners))


def _cut(batches: BatchColumns, owners: Integers, cuts: Integers) -> _Batches:
    """The batches that reach their row's cut, beginning there at the earliest; none of a row without an owner."""
    chosen = np.flatnonzero(batches.last_offset >= np.repeat(cuts, batches.counts))
    rows = np.repeat(np.arange(len(cuts)), batches.counts)[chosen]
    if (owners[rows] < 0).any():
        chosen, rows = chosen[owners[rows] >= 0], rows[owners[rows] >= 0]
    counts, states = batches.delivery_count[chosen], batches.delivery_state[chosen]
    return _Batches(
        owners=owners[rows],
        first=np.maximum(batches.first_offset[chosen], cuts[rows]),
        last=batches.last_offset[chosen],
        priority=counts.astype(np.int32) * 256 + (states.astype(np.int32) + 128),
    )


def _grouped(owners: Integers) -> Integers:
    """The stable order of rows by owner."""
    row_bits = max(1, len(owners).bit_length())
    packed = owners << row_bits | np.arange(len(owners))
    packed.sort()
    order: Integers = packed & ((1 << row_bits) - 1)
    return order


def _heads(owners: Integers) -> Integers:
    """Where each owner begins."""
    return np.flatnonzero(np.diff(owners, prepend=-1))


def _odd(live: _Batches, count: int) -> Mask:
    """Segments whose batches must be combined one record after another."""
    odd = np.zeros(count, np.bool_)
    odd[live.owners[live.first > live.last]] = True
    heads = _heads(live.owners)
    if len(heads):
        lowest, highest = np.minimum.reduceat(live.first, heads), np.maximum.reduceat(live.last, heads)
        is_wide = (highest.view(np.uint64) - lowest.view(np.uint64)) >= np.uint64(_WIDEST)
        odd[live.owners[heads[is_wide]]] = True
    return odd


def _pieces(live: _Batches) -> Iterator[_Batches]:
    """Whole segments, about ``_BATCHES_AT_ONCE`` batches together."""
    heads = _heads(live.owners)
    begins = heads[_heads(heads // _BATCHES_AT_ONCE)].tolist()
    for begin, end in zip(begins, [*begins[1:], len(live)], strict=False):
        yield live.take(slice(begin, end))


def _swept(live: _Batches) -> _Part:
    """Segments laid side by side on one axis and swept."""
    heads = _heads(live.owners)
    lowest, highest = np.minimum.reduceat(live.first, heads), np.maximum.reduceat(live.last, heads)
    room = highest - lowest + 2  # a free point between neighbours, so that they never touch
    begin = np.cumsum(room) - room
    shift = np.repeat(begin - lowest, np.diff(heads, append=len(live)))
    first, last, priority = cover(live.first + shift, live.last + shift, live.priority)
    counts = np.diff(np.searchsorted(first, begin), append=len(first))
    shift = np.repeat(begin - lowest, counts)
    swept = BatchColumns(
        counts=counts,
        first_offset=first - shift,
        last_offset=last - shift,
        delivery_state=((priority & 255) - 128).astype(np.int8),
        delivery_count=(priority >> 8).astype(np.int16),
    )
    return live.owners[heads], swept


def _combined(rows: _Rows, starts: Integers, segments: Segments, segment: int) -> _Part:
    """One segment by the plain law, record after record."""
    places = np.arange(segments.heads[segment], segments.tails[segment] + 1)
    lists = rows.take(segments.order[places]).to_arrow().to_pylist()
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


class _Rows:
    """Batches of rows that lie in several parts."""

    def __init__(self, parts: Sequence[BatchColumns]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part.counts) for part in parts])

    def take(self, rows: Integers) -> BatchColumns:
        """The batches of `rows`, in that order."""
        order = np.argsort(rows, kind="stable")
        split = np.split(rows[order], np.searchsorted(rows[order], self._ends[:-1]))
        begins = self._ends - [len(part.counts) for part in self._parts]
        found = [part.take(own - begin) for part, own, begin in zip(self._parts, split, begins, strict=True)]
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return BatchColumns.concat(found).take(back)
