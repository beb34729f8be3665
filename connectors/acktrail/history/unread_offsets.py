"""Where the new records of a state partition lie, and how to cut them into pieces of so many records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["NewOffsets", "new_offsets"]

_Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOffsets:
    """Offsets of records in ascending ranges: each from one of `firsts` to before the one of `ends` beside it."""

    firsts: _Offsets
    ends: _Offsets

    @property
    def first(self) -> int:
        """The least of them."""
        return int(self.firsts[0])

    @property
    def end(self) -> int:
        """The offset after the last one."""
        return int(self.ends[-1])

    def end_of(self, begin: int, records: int) -> int:
        """The end of a piece that begins at offset `begin` and has at most so many records.

        Offsets without a record cost nothing: a piece is not full before it has that many, or all that are left.
        """
        at = int(np.searchsorted(self.ends, begin, side="right"))
        firsts, ends = np.maximum(self.firsts[at:], begin), self.ends[at:]
        reached = np.cumsum(ends - firsts)
        last = int(np.searchsorted(reached, records))
        return self.end if last >= len(reached) else int(ends[last] - (reached[last] - records))


def new_offsets(pieces: Iterable[pa.Table], positions: Mapping[int, int]) -> dict[int, NewOffsets]:
    """The offsets at or after its position (0 where it has none) of each state partition that has any.

    Args:
        pieces: ``state_partition`` and ``offset`` of records, no record twice. Each piece is kept as ranges only.
    """
    found: dict[int, list[tuple[_Offsets, _Offsets]]] = {}
    for piece in pieces:
        numbers, offsets = (piece[name].to_numpy() for name in ("state_partition", "offset"))
        for number in np.unique(numbers).tolist():
            own = np.sort(offsets[numbers == number])
            own = own[own >= positions.get(number, 0)]
            if len(own):
                found.setdefault(number, []).append(_ranges(own))
    return {number: _joined(found[number]) for number in sorted(found)}


def _ranges(ascending: _Offsets) -> tuple[_Offsets, _Offsets]:
    edges = np.flatnonzero(np.diff(ascending) != 1)
    return ascending[np.concatenate(([0], edges + 1))], ascending[np.concatenate((edges, [-1]))] + 1


def _joined(ranges: Sequence[tuple[_Offsets, _Offsets]]) -> NewOffsets:
    firsts, ends = (np.concatenate(sides) for sides in zip(*ranges, strict=True))
    order = np.argsort(firsts)
    return NewOffsets(firsts=firsts[order], ends=ends[order])
