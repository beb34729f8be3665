"""Positions of groups in one topic, and what is known of each before and after each reading."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.model.expansion.ordering import NO_POSITION

_NEVER: Final = np.iinfo(np.int64).max


class ReadingSeries:
    """Positions of some groups in one topic, and for each what is known before and after each reading.

    `flat` has a row for each group and partition. `before` and `after`: the newest reading up to one, and the first
    from one on, that knows the position (-1 and their number where none does). `restart`: the newest reading with a
    position below the last one known, or gone, or the first since a known reset; 0 where there is none.
    """

    def __init__(self, positions: npt.NDArray[np.int64], cuts: Int64Array | None = None) -> None:
        """`cuts`: by row, the first reading since the newest reset that is known, 0 where there is none."""
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
        if cuts is not None:
            self.restart = np.maximum(self.restart, cuts)

    def empty_before(self) -> npt.NDArray[np.int32]:
        """By group: the newest reading up to one that saw it without any position in the topic; -1: none did."""
        shaped = self.flat.reshape(self.groups, self.partitions, self.readings)
        is_empty = (shaped == NO_POSITION).all(axis=1)
        return np.maximum.accumulate(np.where(is_empty, self.numbers, np.int32(-1)), axis=1)

    def begun(self, high: Int64Array) -> Int64Array:
        """For each row, since its restart: the first reading with its records from after the expansion begun for
        certain (the number of readings: none). `high`: by partition, an offset that the first of them is not above."""
        most = np.tile(high, self.groups)
        rows = np.arange(len(self.flat))
        first = np.minimum(self.after[rows, self.restart], self.readings - 1)
        most = np.where(most < 0, _NEVER, np.maximum(most, self.flat[rows, first]))
        is_begun = self._since() & (self.flat > most[:, None])
        return np.where(is_begun.any(axis=1), is_begun.argmax(axis=1), np.int64(self.readings))

    def idle(self, low: Int64Array, until: Int64Array | None = None) -> Int64Array:
        """For each row, since its restart: the last reading without its records from after the expansion (-1: none).
        `low`: by partition, an offset that the first of them is not below. `until`: by row, the last reading whose
        position counts; one without any position always does."""
        lowest = np.tile(np.maximum(low, NO_POSITION), self.groups)
        is_idle = self._since() & (self.flat >= NO_POSITION) & (self.flat <= lowest[:, None])
        if until is not None:
            is_idle &= (self.flat == NO_POSITION) | (self.numbers <= until[:, None])
        return _last(is_idle)

    def _since(self) -> BoolArray:
        return np.asarray(self.numbers >= self.restart[:, None])


def _last(mask: BoolArray) -> Int64Array:
    """The number of the last column that is true in each row; -1 where none is."""
    width = mask.shape[1]
    if not width:
        return np.full(len(mask), -1, np.int64)
    return np.where(mask.any(axis=1), width - 1 - mask[:, ::-1].argmax(axis=1), -1)
