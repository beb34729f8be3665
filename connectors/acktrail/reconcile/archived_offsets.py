"""Which offsets were ever archived, of all share partitions at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.binary_column import Int64Array

RANGES: Final = pa.list_(pa.struct([("first_offset", pa.int64()), ("last_offset", pa.int64())]))

_ROWS_KEPT: Final = 200_000
"""Ranges are united when there are more of them, and more than twice those left the last time."""

_FULL: Final = 2.0**63 * 1.5
"""Beyond it a count wraps to a positive number."""


class ArchivedRanges:
    """Sets of offsets by the number of a share partition.

    The invariant: after uniting, ranges are ascending by number and offset, and no two of one number overlap or touch.
    Cost: O(n log n) for n ranges added.
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[Int64Array, Int64Array, Int64Array]] = []
        self._rows = self._united = 0

    def add(self, numbers: Int64Array, ranges: pa.StructArray) -> None:
        """Take in a range for each of `numbers`; none is inverted."""
        if not len(ranges):
            return
        first, last = (ranges.field(name).to_numpy() for name in ("first_offset", "last_offset"))
        self._pieces.append((numbers, first, last))
        self._rows += len(ranges)
        if self._rows > max(_ROWS_KEPT, 2 * self._united):
            self._unite()

    def lists(self, count: int) -> pa.ListArray:
        """The ranges (``RANGES``) of the numbers below `count`, disjoint and ascending."""
        numbers, firsts, lasts = self._unite()
        bounds = np.searchsorted(numbers, np.arange(count + 1))
        values = pa.StructArray.from_arrays([pa.array(firsts), pa.array(lasts)], fields=[*RANGES.value_type])
        return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), values, type=RANGES)

    def _unite(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Numbers, first and last offsets of all ranges, united."""
        if len(self._pieces) != 1 or self._united != self._rows:
            empty = np.empty(0, np.int64)
            owners, firsts, lasts = (np.concatenate(side) for side in zip((empty,) * 3, *self._pieces, strict=True))
            self._pieces = [_disjoint(owners, firsts, lasts)]
            self._rows = self._united = len(self._pieces[0][0])
        return self._pieces[0]


def offset_counts(ranges: pa.ListArray) -> pa.Array:
    """How many offsets each row's disjoint ranges have; null where more than a column can hold."""
    values, rows = pc.list_flatten(ranges), pc.list_parent_indices(ranges).to_numpy()
    first, last = (values.field(name).to_numpy() for name in ("first_offset", "last_offset"))
    about = np.bincount(rows, last.astype(np.float64) - first + 1, len(ranges))
    total = np.append(0, np.cumsum(last - first + 1))  # wraps past 2**63; a difference of two values is right below it
    ends = np.cumsum(pc.fill_null(pc.list_value_length(ranges), 0).to_numpy())
    counts = total[ends] - total[np.append(0, ends[:-1])[: len(ends)]]
    return pa.array(counts, mask=(counts < 0) | (about >= _FULL))


def _disjoint(owners: Int64Array, firsts: Int64Array, lasts: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    order = np.lexsort((firsts, owners))
    owners, firsts, lasts = owners[order], firsts[order], lasts[order]
    if not len(owners):
        return owners, firsts, lasts
    distinct, ranks = np.unique(lasts, return_inverse=True)
    reached = distinct[np.maximum.accumulate(owners * len(distinct) + ranks) - owners * len(distinct)]
    before = reached[:-1]  # where a first offset lies above it, one can be added to it
    begins = np.ones(len(owners), np.bool_)
    begins[1:] = (owners[1:] != owners[:-1]) | ((firsts[1:] > before) & (firsts[1:] != before + 1))
    heads = np.flatnonzero(begins)
    return owners[heads], firsts[heads], reached[np.append(heads[1:], len(owners)) - 1]
