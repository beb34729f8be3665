"""State batches clipped at start offsets, before overlaps are resolved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from acktrail.columnar.binary_column import Int64Array

BatchFields = Mapping[str, npt.NDArray[Any]] | npt.NDArray[Any]
"""Columns of batches by the names of ``BATCHES``, each of shape (batches,)."""

_STATE_BITS: Final = 8
_STATE_BIAS: Final = 128
_FEW: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedBatches:
    """Batches, each with its segment: arrays of shape (batches,).

    Where two batches of a segment overlap the higher `priority` wins: delivery count first, then delivery state, as in
    ``model.batches``. Both are packed into one int32, so that they compare as one number.
    """

    segment: Int64Array
    first: Int64Array
    last: Int64Array
    priority: npt.NDArray[np.int32]

    @classmethod
    def of(cls, batches: BatchFields, segment: Int64Array, prune_below: Int64Array) -> Self:
        """Batches that end at or above `prune_below` (one offset for each batch), clipped to begin there or later."""
        count, state = batches["delivery_count"].astype(np.int32), batches["delivery_state"].astype(np.int32)
        return cls(
            segment=segment,
            first=np.maximum(batches["first_offset"].astype(np.int64), prune_below),
            last=batches["last_offset"].astype(np.int64),
            priority=(count << _STATE_BITS) + (state + _STATE_BIAS),
        )

    def __len__(self) -> int:
        return len(self.segment)

    def take(self, rows: Int64Array | slice) -> Self:
        """The batches in `rows`."""
        return type(self)(
            segment=self.segment[rows], first=self.first[rows], last=self.last[rows], priority=self.priority[rows]
        )

    @classmethod
    def concat(cls, pieces: Sequence[Self]) -> Self:
        """The pieces end to end."""
        return cls(**{name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in cls.__slots__})


def state_and_count(priority: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int16]]:
    """Delivery states and delivery counts out of priorities."""
    state = (priority & (1 << _STATE_BITS) - 1) - _STATE_BIAS
    return state.astype(np.int8), (priority >> _STATE_BITS).astype(np.int16)


def batches_from(last: Int64Array, counts: Int64Array, prune_below: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Which batches reach the `prune_below` of their row, and the row of each.

    `last`, of shape (batches,), are last offsets; ``counts[i]`` of them, end to end, belong to row i. `prune_below` has
    the shape of `counts`, (rows,).
    """
    chosen = np.flatnonzero(last >= np.repeat(prune_below, counts))
    if len(chosen) * _FEW < len(last):  # a search for each of a few is cheaper than the row of every batch
        return chosen, np.searchsorted(np.cumsum(counts), chosen, side="right")
    return chosen, np.repeat(np.arange(len(counts)), counts)[chosen]
