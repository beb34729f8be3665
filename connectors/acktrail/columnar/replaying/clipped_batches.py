"""What start offsets leave of state batches, before overlaps are settled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from acktrail.columnar.binary_column import Int64Array

__all__ = ["ClippedBatches", "batches_from", "state_and_count"]

Fields = Mapping[str, npt.NDArray[Any]] | npt.NDArray[Any]
"""Numbers of batches by the names of ``BATCHES``."""

_STATE_BITS: Final = 8
_STATE_BIAS: Final = 128
_FEW: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedBatches:
    """Batches with the number of their owner. Where two overlap the one with the higher priority wins."""

    owners: Int64Array
    first: Int64Array
    last: Int64Array
    priority: npt.NDArray[np.int32]

    @classmethod
    def of(cls, batches: Fields, owners: Int64Array, cuts: Int64Array) -> Self:
        """Batches that reach their `cuts`, beginning there at the earliest. Delivery count before delivery state."""
        count, state = batches["delivery_count"].astype(np.int32), batches["delivery_state"].astype(np.int32)
        return cls(
            owners=owners,
            first=np.maximum(batches["first_offset"].astype(np.int64), cuts),
            last=batches["last_offset"].astype(np.int64),
            priority=(count << _STATE_BITS) + (state + _STATE_BIAS),
        )

    def __len__(self) -> int:
        return len(self.owners)

    def take(self, rows: Int64Array | slice) -> Self:
        """The batches in `rows`."""
        return type(self)(
            owners=self.owners[rows], first=self.first[rows], last=self.last[rows], priority=self.priority[rows]
        )

    @classmethod
    def concat(cls, pieces: Sequence[Self]) -> Self:
        """The pieces end to end."""
        return cls(**{name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in cls.__slots__})


def state_and_count(priority: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int16]]:
    """Delivery states and delivery counts of priorities."""
    state = (priority & (1 << _STATE_BITS) - 1) - _STATE_BIAS
    return state.astype(np.int8), (priority >> _STATE_BITS).astype(np.int16)


def batches_from(last: Int64Array, counts: Int64Array, cuts: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Which batches reach the cut of their row, and the row of each; `counts` of them, end to end, are a row's."""
    chosen = np.flatnonzero(last >= np.repeat(cuts, counts))
    if len(chosen) * _FEW < len(last):
        return chosen, np.searchsorted(np.cumsum(counts), chosen, side="right")
    return chosen, np.repeat(np.arange(len(counts)), counts)[chosen]
