"""Which offsets are stored of each state partition, as runs of neighbours: a log without holes is one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import pyarrow as pa

from acktrail.format.columns.binary_column import Int64Array, joined_rows

_MOST_PIECES: Final = 64
"""Pieces that are gathered before they are joined."""


@dataclass(frozen=True, slots=True, eq=False)
class OffsetRuns:
    """Offsets from each of `first` to before the `end` beside it, ascending, disjoint and not touching.

    Two arrays of int64, shape (runs,).
    """

    first: Int64Array
    end: Int64Array

    @classmethod
    def of(cls, first: Int64Array, end: Int64Array) -> Self:
        """Of intervals in any order, which may overlap.

        >>> runs = OffsetRuns.of(np.array([9, 0, 4]), np.array([12, 4, 6]))
        >>> runs.first.tolist(), runs.end.tolist()
        ([0, 9], [6, 12])
        """
        order = np.argsort(first, kind="stable")
        first, reached = first[order], np.maximum.accumulate(end[order])
        heads, tails = joined_rows(first[1:] <= reached[:-1], len(first))
        return cls(first[heads], reached[tails])

    @classmethod
    def empty(cls) -> Self:
        """No offsets."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def last_end(self) -> int | None:
        """One past the last offset; None where there is none."""
        return int(self.end[-1]) if len(self.end) else None

    @property
    def total(self) -> int:
        """How many offsets there are."""
        return int((self.end - self.first).sum())

    def count(self, first: int, last: int) -> int:
        """How many of the offsets `first` to `last` (inclusive) there are."""
        return int(np.maximum(0, np.minimum(self.end, last + 1) - np.maximum(self.first, first)).sum())

    @staticmethod
    def union(parts: Sequence[OffsetRuns]) -> OffsetRuns:
        """The offsets that are in one of `parts`; there is at least one part."""
        return OffsetRuns.of(*(np.concatenate([getattr(part, side) for part in parts]) for side in ("first", "end")))

    def above(self, offset: int) -> OffsetRuns:
        """The offsets at or above `offset`."""
        kept = self.end > offset
        return OffsetRuns(np.maximum(self.first[kept], offset), self.end[kept])

    def end_after(self, begin: int, count: int) -> int:
        """One past the last of the first `count` offsets at or above `begin`; of all of them, where they are fewer.

        Holes cost nothing: of runs 0 to 10 and 90 to 100, ``end_after(5, 8)`` is 93.
        """
        above = self.above(begin)
        reached = np.cumsum(above.end - above.first)
        run = int(np.searchsorted(reached, count))
        return int(self.end[-1] if run == len(reached) else above.end[run] - (reached[run] - count))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOffsets:
    """The runs by state partition.

    `begin`: from where on they were looked for, by state partition; absent: from 0. `in_order`: the offsets of each
    state partition came in ascending order, each once.
    """

    runs: Mapping[int, OffsetRuns] = field(default_factory=dict)
    begin: Mapping[int, int] = field(default_factory=dict)
    in_order: bool = True

    def count(self, state_partition: int, first: int, last: int) -> int | None:
        """How many of the offsets `first` to `last` (inclusive) are stored; None where some were not looked for."""
        if first < self.begin.get(state_partition, 0):
            return None
        runs = self.runs.get(state_partition)
        return 0 if runs is None else runs.count(first, last)

    def ends(self) -> dict[int, int]:
        """One past the last stored offset of each state partition."""
        return {partition: int(runs.end[-1]) for partition, runs in self.runs.items() if len(runs.end)}


def stored_offsets(addresses: Iterable[pa.RecordBatch], begin: Mapping[int, int]) -> StoredOffsets:
    """The runs of `addresses` (`state_partition` and `offset`, in any order, also twice); only the runs are held."""
    gathered: dict[int, list[OffsetRuns]] = {}
    reached: dict[int, int] = {}
    in_order = True
    for batch in addresses:
        for partition, offsets in _by_state_partition(batch):
            in_order &= bool((np.diff(offsets, prepend=reached.get(partition, -1)) > 0).all())
            parts = gathered.setdefault(partition, [])
            parts.append(OffsetRuns.of(offsets, offsets + 1))
            reached[partition] = int(offsets[-1])
            if len(parts) >= _MOST_PIECES:
                gathered[partition] = [OffsetRuns.union(parts)]
    runs = {partition: OffsetRuns.union(parts) for partition, parts in sorted(gathered.items())}
    return StoredOffsets(runs=runs, begin=begin, in_order=in_order)


def _by_state_partition(batch: pa.RecordBatch) -> Iterator[tuple[int, Int64Array]]:
    """The offsets of each state partition, in the order in which they come."""
    partition, offset = (np.asarray(batch.column(name), np.int64) for name in ("state_partition", "offset"))
    order = np.argsort(partition, kind="stable")
    partition, offset = partition[order], offset[order]
    heads = np.flatnonzero(np.diff(partition, prepend=-1))
    for head, own in zip(heads, np.split(offset, heads[1:]), strict=False):
        yield int(partition[head]), own
