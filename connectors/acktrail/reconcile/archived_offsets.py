"""Which offsets were ever archived, of all share partitions at once."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["RANGES", "ArchivedRanges"]

RANGES: Final = pa.list_(pa.struct([("first_offset", pa.int64()), ("last_offset", pa.int64())]))

_ROWS_KEPT: Final = 200_000
"""Ranges are united when there are more of them, and twice as many as after the last time."""

_EXACT: Final = 2.0**62
"""Sums below are the same in floating point and in 64 bits, but for their last digits."""

_Integers = npt.NDArray[np.int64]
_Address = tuple[Any, ...]


class ArchivedRanges:
    """Sets of offsets by address: a row of columns that name a share partition.

    The invariant: after uniting, ranges are ascending by owner and offset, and no two of an owner overlap or touch.
    Cost: O(n log n) for n ranges added, whatever they are.
    """

    def __init__(self) -> None:
        self._owners: dict[_Address, int] = {}
        self._pieces: list[tuple[_Integers, _Integers, _Integers]] = []
        self._rows = self._united = 0
        self._counts: dict[int, int] | None = None

    def add(self, addresses: pa.Table, ranges: pa.StructArray) -> None:
        """Take in a range for each row of `addresses`; none is inverted."""
        if not len(ranges):
            return
        bounds = (ranges.field(name).to_numpy() for name in ("first_offset", "last_offset"))
        self._pieces.append((self._numbered(addresses), *bounds))
        self._rows += len(ranges)
        self._counts = None
        if self._rows > max(_ROWS_KEPT, 2 * self._united):
            self._unite()

    def count(self, address: _Address) -> int:
        """How many distinct offsets an address has."""
        if self._counts is None:
            self._counts = self._counted()
        return self._counts.get(self._owners.get(address, -1), 0)

    def lists(self, addresses: pa.Table) -> pa.ListArray:
        """The ranges (``RANGES``) of each row of `addresses`, disjoint and ascending."""
        owners, firsts, lasts = self._unite()
        rows = zip(*(column.to_pylist() for column in addresses.columns), strict=True)
        asked = np.array([self._owners.get(address, -1) for address in rows], np.int64)
        begins, ends = np.searchsorted(owners, asked), np.searchsorted(owners, asked, side="right")
        offsets = np.concatenate(([0], np.cumsum(ends - begins)))
        places = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], ends - begins)
        values = pa.StructArray.from_arrays(
            [pa.array(firsts[places]), pa.array(lasts[places])], fields=[*RANGES.value_type]
        )
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=RANGES)

    def _numbered(self, addresses: pa.Table) -> _Integers:
        """Numbers of the owners that the rows name: only distinct ones are looked up."""
        codes = np.zeros(addresses.num_rows, np.int64)
        for column in addresses.columns:
            encoded = column.combine_chunks().dictionary_encode()
            pairs = codes * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy()
            codes = np.unique(pairs, return_inverse=True)[1]
        _, heads, places = np.unique(codes, return_index=True, return_inverse=True)
        distinct = zip(*(column.to_pylist() for column in addresses.take(pa.array(heads)).columns), strict=True)
        numbers = [self._owners.setdefault(address, len(self._owners)) for address in distinct]
        return np.array(numbers, np.int64)[places]

    def _counted(self) -> dict[int, int]:
        owners, firsts, lasts = self._unite()
        heads = np.flatnonzero(np.diff(owners, prepend=-1))
        if not len(heads):
            return {}
        about = np.add.reduceat(lasts.astype(np.float64) - firsts + 1, heads)
        sums = np.add.reduceat(lasts - firsts + 1, heads).tolist()
        ends = np.append(heads[1:], len(owners))
        for at in np.flatnonzero(about >= _EXACT):
            pairs = zip(firsts[heads[at] : ends[at]].tolist(), lasts[heads[at] : ends[at]].tolist(), strict=True)
            sums[at] = sum(last - first + 1 for first, last in pairs)
        return dict(zip(owners[heads].tolist(), sums, strict=True))

    def _unite(self) -> tuple[_Integers, _Integers, _Integers]:
        """Owners, first and last offsets of all ranges, united."""
        if len(self._pieces) != 1 or self._united != self._rows:
            empty = np.empty(0, np.int64)
            owners, firsts, lasts = (np.concatenate(side) for side in zip((empty,) * 3, *self._pieces, strict=True))
            self._pieces = [_disjoint(owners, firsts, lasts)]
            self._rows = self._united = len(self._pieces[0][0])
        return self._pieces[0]


def _disjoint(owners: _Integers, firsts: _Integers, lasts: _Integers) -> tuple[_Integers, _Integers, _Integers]:
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
