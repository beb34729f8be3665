"""Positions of groups in one topic, and what is known of each before and after each reading."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.model.expansion.group_series import NO_POSITION

_NEVER: Final = np.iinfo(np.int64).max


class ReadingSeries:
    """Positions of some groups in one topic, and for each what is known before and after each reading.

    `flat` has a row for each group and partition. `before` and `after`: the newest reading up to one, and the first
    from one on, that knows the position (-1 and their number where none does). `restart`: the newest reading with a
    position below the last one known, or gone; 0 where there is none.
    """

    def __init__(self, positions: npt.NDArray[np.int64]) -> None:
        self.groups, self.partitions, self.readings = positions.shape
        self.flat = positions.reshape(self.groups * self.partitions, self.readings)
        self.numbers = np.arange(self.readings, dtype=np.int32)
        known = self.flat >= 0
        self.before = np.maximum.accumulate(np.where(known, self.numbers, np.int32(-1)), axis=1)
        after = np.where(known, self.numbers, np.int32(self.readings))
        self.after = np.minimum.accumulate(after[:, ::-1], axis=1)[:, ::-1]
        told = np.where(self.flat >= NO_POSITION, self.numbers, np.int32(0))
        values = np.take_along_axis(self.flat, np.maximum.accumulate(told, axis=1), axis=1)
        self.restart = 1 + _last(values[:, 1:] < values[:, :-1])

    def empty_before(self) -> npt.NDArray[np.int32]:
        """By group: the newest reading up to one that saw it without any position in the topic; -1: none did."""
        shaped = self.flat.reshape(self.groups, self.partitions, self.readings)
        is_empty = (shaped == NO_POSITION).all(axis=1)
        return np.maximum.accumulate(np.where(is_empty, self.numbers, np.int32(-1)), axis=1)

    def begun(self, low: Int64Array, high: Int64Array) -> tuple[Int64Array, Int64Array]:
        """For each row, since its restart: the first reading with its records from after the expansion begun for
        certain (the number of readings: none), and the last one without (-1: none). `low` and `high`: between which
        offsets the first of them lies, by partition."""
        lowest, most = (np.tile(bounds, self.groups) for bounds in (np.maximum(low, NO_POSITION), high))
        rows = np.arange(len(self.flat))
        first = np.minimum(self.after[rows, self.restart], self.readings - 1)
        most = np.where(most < 0, _NEVER, np.maximum(most, self.flat[rows, first]))
        since = self.numbers >= self.restart[:, None]
        is_begun = since & (self.flat > most[:, None])
        begun = np.where(is_begun.any(axis=1), is_begun.argmax(axis=1), self.readings)
        idle = _last(since & (self.flat >= NO_POSITION) & (self.flat <= lowest[:, None]))
        return begun, idle


def _last(mask: BoolArray) -> Int64Array:
    """The number of the last column that is true in each row; -1 where none is."""
    width = mask.shape[1]
    if not width:
        return np.full(len(mask), -1, np.int64)
    return np.where(mask.any(axis=1), width - 1 - mask[:, ::-1].argmax(axis=1), -1)
