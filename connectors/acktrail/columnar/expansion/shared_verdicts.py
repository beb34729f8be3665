"""Verdicts on destinations that wait for the same sources: each distinct course of one is judged once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from acktrail.columnar.binary_column import Int64Array, runs
from acktrail.columnar.expansion.dependency_columns import SharedSources
from acktrail.columnar.expansion.dependency_verdicts import (
    NUMBER_OF,
    DependencyVerdicts,
    JudgedExpansion,
    positions_at,
)
from acktrail.columnar.expansion.fence_columns import MISSING
from acktrail.model.expansion.ordering import OrderingVerdict

_PAIRS: Final = 1_000_000
"""Dependencies that are judged together."""


class SharedVerdicts:
    """The verdicts on all destinations of some classes for all groups.

    A verdict rests on the source and on readings of the destination: its restart, the last one without its records and
    what is doubtful of that, the first one with them, and, for a source that restarts after that, those that know the
    position from there on. Destinations of one group and class that have all of them in common are one case: its
    sources are judged once, with any of its destinations. Cost: for each case the sources of its class, never more than
    for each destination; then a row for each group and destination.
    """

    def __init__(self, known: JudgedExpansion, shared: SharedSources) -> None:
        series, size = known.series, len(shared.destination)
        self._known, self._shared = known, shared
        self._group = np.repeat(np.arange(series.groups), size)
        self._place = np.tile(np.arange(size), series.groups)
        self._row = self._group * series.partitions + shared.destination[self._place]
        row = self._row
        of_row = (known.idle, known.paused, known.doubt, known.is_worked, known.begun)
        course = (series.restart[row], *(each[row] for each in of_row), self._later())
        keys = (*course, shared.of_class[self._place], self._group)
        self._order = np.lexsort(keys)
        changes = np.logical_or.reduce([np.diff(key[self._order]) != 0 for key in keys])
        self._case = np.concatenate([[0], np.cumsum(changes)])  # of each one in order
        self._begins = np.concatenate([[0], 1 + np.flatnonzero(changes), [len(row)]])

    def _later(self) -> Int64Array:
        """A number for the readings that know a destination's position after it has begun, by row; 0 where no partition
        of the group restarts after that."""
        series = self._known.series
        newest = series.restart.reshape(series.groups, series.partitions).max(axis=1)
        begun, found = self._known.begun[self._row], np.zeros(len(self._row), np.int64)
        asked = np.flatnonzero(begun < newest[self._group])
        if len(asked):
            is_known = (series.flat[self._row[asked]] >= 0) & (series.numbers > begun[asked, None])
            packed = np.packbits(is_known, axis=1)
            found[asked] = 1 + np.unique(packed.view(f"V{packed.shape[1]}").ravel(), return_inverse=True)[1]
        return found

    def columns(self) -> Iterator[dict[str, Int64Array]]:
        """Columns of ``ORDERING_ROWS`` by name; `before` and `at` as numbers of readings. In each piece all that belong
        to some cases."""
        lengths = np.diff(self._shared.bounds)
        first = self._order[self._begins[:-1]]
        pairs = lengths[self._shared.of_class[self._place[first]]]
        piece = (np.cumsum(pairs) - pairs) // _PAIRS
        bounds = np.concatenate([[0], 1 + np.flatnonzero(np.diff(piece)), [len(first)]])
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            yield self._piece(begin, first[begin:end], pairs[begin:end], int(self._begins[end]))

    def _piece(self, begin: int, first: Int64Array, pairs: Int64Array, last: int) -> dict[str, Int64Array]:
        """Of the cases from `begin` on, each with its `first` destination and its number of sources."""
        shared, starts = self._shared, np.cumsum(pairs) - pairs
        case, number = runs(pairs)
        source = shared.source[shared.bounds[shared.of_class[self._place[first]]][case] + number]
        judged = DependencyVerdicts(self._known, self._group[first][case], self._row[first][case], source)
        ordered = slice(int(self._begins[begin]), last)
        members, own_case = self._order[ordered], self._case[ordered] - begin
        place = self._place[members]
        left_out = shared.left_out[place] - shared.bounds[shared.of_class[place]] + starts[own_case]
        left_out = np.where(shared.left_out[place] >= 0, left_out, MISSING)
        best, second = judged.deciding(starts)
        chosen = np.where(best[own_case] == left_out, second[own_case], best[own_case])

        def count(verdict: OrderingVerdict) -> Int64Array:
            mask = judged.verdict == NUMBER_OF[verdict]
            every = np.add.reduceat(mask.astype(np.int64), starts)[own_case]
            return np.asarray(every - np.where(left_out >= 0, mask[np.maximum(left_out, 0)], 0), np.int64)

        before, at, series = judged.before[chosen], judged.at[chosen], self._known.series
        return {
            "group": self._group[members],
            "event": np.full(len(members), shared.event),
            "source_event": np.full(len(members), shared.source_event),
            "partition": shared.destination[place],
            "source_partition": source[chosen],
            "sources": pairs[own_case] - (left_out >= 0),
            "sources_safe": count(OrderingVerdict.SAFE),
            "sources_violated": count(OrderingVerdict.VIOLATION),
            "destination_before": positions_at(series, self._row[members], before),
            "destination_at": positions_at(series, self._row[members], at),
            "fence_low": judged.low[chosen],
            "fence_high": judged.high[chosen],
            **{name: getattr(judged, name)[chosen] for name in _OF_SOURCE},
            "before_at": before,
            "at": at,
        }


_OF_SOURCE: Final = ("verdict", "reason", "source_before", "source_at", "remaining")
