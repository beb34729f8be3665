"""Fixed-width big-endian structures out of a binary Arrow array, many rows at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# The C library keeps freed memory only up to twice the largest block it was ever given back: this one, never touched,
# lets it keep the arrays of one batch for the next. Without it, fetching pages anew takes longer than decoding.
np.empty((32 << 20) - 65_536, np.uint8)

__all__ = ["BinaryColumn", "BoolArray", "Int64Array", "binary_column", "runs", "strides"]

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryColumn:
    """A view of a binary array: `data` is shared by all rows, row i is ``data[starts[i] : starts[i] + lengths[i]]``.

    A null row has length -1, so that no length check lets it pass. `bounds`, where all rows lie end to end: where each
    begins and the last one ends.
    """

    data: npt.NDArray[np.uint8]
    starts: Int64Array
    lengths: Int64Array
    bounds: Int64Array | None = None

    def take(self, rows: Int64Array) -> Self:
        """`rows`, in that order."""
        return type(self)(data=self.data, starts=self.starts[rows], lengths=self.lengths[rows])

    @property
    def ends(self) -> Int64Array:
        return self.starts + self.lengths

    def gather(self, positions: Int64Array, layout: np.dtype[np.void]) -> npt.NDArray[Any]:
        """The structures of type `layout` at `positions` of `data`.

        A position where no whole structure fits gives some other bytes, never an error: the caller knows from the
        lengths which rows mean nothing.
        """
        room = len(self.data) - layout.itemsize
        if room < 0:
            return np.zeros(len(positions), layout)
        # Overlapping windows, indexed and not `take`n: take would copy them all first.
        windows: npt.NDArray[Any] = np.ndarray(
            shape=(room + 1,), dtype=f"V{layout.itemsize}", buffer=self.data, strides=(1,)
        )
        if positions.min(initial=0) < 0 or positions.max(initial=0) > room:
            positions = np.clip(positions, 0, room)
        return windows[positions].view(layout)

    def heads_and_ends(
        self, head: np.dtype[np.void], end: np.dtype[np.void]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The structures that rows begin with and those that they end with; of a row that is too short, other bytes.

        Where rows lie end to end, the end of one and the head of the next are taken together.
        """
        if self.bounds is None:
            return self.gather(self.starts, head), self.gather(self.ends - end.itemsize, end)
        around = np.dtype([("end", end), ("head", head)])
        at = self.bounds - end.itemsize
        both = self.gather(at, around)
        outside = np.flatnonzero((at < 0) | (at > len(self.data) - around.itemsize))
        both["head"][outside] = self.gather(self.bounds[outside], head)
        both["end"][outside] = self.gather(at[outside], end)
        return both["head"][:-1], both["end"][1:]


def binary_column(array: pa.BinaryArray) -> BinaryColumn:
    """The view of `array`, sliced or not."""
    _, offsets, data = array.buffers()
    count = len(array)
    if count == 0:
        return BinaryColumn(data=np.empty(0, np.uint8), starts=np.empty(0, np.int64), lengths=np.empty(0, np.int64))
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + count + 1].astype(np.int64)
    lengths = bounds[1:] - bounds[:-1]
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return BinaryColumn(data=octets, starts=bounds[:-1], lengths=lengths, bounds=bounds)


def runs(lengths: Int64Array) -> tuple[Int64Array, Int64Array]:
    """For rows of `lengths` items laid end to end: every item's row, and its place within that row."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return rows, np.arange(len(rows)) - before[rows]


def strides(first: Int64Array, lengths: Int64Array, width: int) -> Int64Array:
    """Where the items of rows begin: ``first[i]`` and every `width` from there, ``lengths[i]`` of them, end to end.

    One running sum over steps, of which nearly all are `width`.
    """
    if not lengths.all():
        filled = lengths != 0
        first, lengths = first[filled], lengths[filled]
    if not len(lengths):
        return np.empty(0, np.int64)
    ends = np.cumsum(lengths)
    steps = np.full(ends[-1], width)
    steps[0] = first[0]
    steps[ends[:-1]] = first[1:] - first[:-1] - width * (lengths[:-1] - 1)
    return np.cumsum(steps, out=steps)
