"""A reader that goes through many byte strings at once, each at its own place: one step for all that are still read.

The checks are those of ``wire.primitives``, in the same order, and so are the faults.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from acktrail.columnar.binary_column import BinaryColumn, BoolArray, Int64Array

__all__ = ["Cursors", "Fault"]

_VARINT_BYTES: Final = 5

_STEPS: Final = 64
"""Steps for which rows go on together; what takes longer is cheaper read alone."""


class Fault(IntEnum):
    """What is wrong with a row."""

    NONE = 0
    INTEGER_CUT_OFF = 1
    VARINT_CUT_OFF = 2
    VARINT_TOO_LONG = 3
    BYTES_MISSING = 4
    NULL_BATCHES = 5
    BATCHES_MISSING = 6
    UNKNOWN_VERSION = 7
    NULL_UPDATE = 8
    UNDECIDED = 9
    """Too many steps: nobody looked on."""


class Cursors:
    """One cursor a row of `column`. Methods take row numbers and hand back those that did not fail; of those that did,
    `fault`, `position` (from the row's begin), `amount` and `left` tell what an error message needs.
    """

    def __init__(self, column: BinaryColumn) -> None:
        self._column = column
        self._begin, self._end = column.starts, column.ends
        self._at = column.starts.copy()
        count = len(column.starts)
        self.fault = np.zeros(count, np.int8)
        self.position, self.amount, self.left = (np.zeros(count, np.int64) for _ in range(3))

    def sound(self, rows: Int64Array) -> Int64Array:
        """Those of `rows` that have no fault."""
        good: Int64Array = rows[self.fault[rows] == Fault.NONE]
        return good

    def room(self, rows: Int64Array) -> Int64Array:
        """Bytes left."""
        return self._end[rows] - self._at[rows]

    def places(self, rows: Int64Array) -> Int64Array:
        """Where the cursors stand."""
        return self._at[rows]

    def fail(
        self, rows: Int64Array, fault: Fault, places: Int64Array | None = None, amount: Int64Array | int = 0
    ) -> None:
        """Give up `rows`: at `places`, or where their cursors stand."""
        if not len(rows):
            return
        self.fault[rows] = fault
        self.position[rows] = (self._at[rows] if places is None else places) - self._begin[rows]
        self.amount[rows] = amount
        self.left[rows] = self.room(rows)

    def integers(self, rows: Int64Array, kind: str) -> tuple[Int64Array, npt.NDArray[Any]]:
        """Big-endian integers of type `kind`."""
        layout = np.dtype([("number", kind)])
        rows = self._with_room(rows, layout.itemsize, Fault.INTEGER_CUT_OFF)
        numbers = self._column.gather(self._at[rows], layout)["number"]
        self._at[rows] += layout.itemsize
        return rows, numbers

    def structures(self, rows: Int64Array, layout: np.dtype[np.void]) -> tuple[Int64Array, npt.NDArray[Any]]:
        """Structures of big-endian integers without gaps. A row that ends within one fails at the field it ends in."""
        short = rows[self.room(rows) < layout.itemsize]
        rows = rows[self.room(rows) >= layout.itemsize]
        for name in layout.names or ():
            if len(short):
                short, _ = self.integers(short, layout[name].str)
        found = self._column.gather(self._at[rows], layout)
        self._at[rows] += layout.itemsize
        return rows, found

    def skip(self, rows: Int64Array, lengths: Int64Array) -> Int64Array:
        """Go past `lengths` bytes."""
        fits = lengths <= self.room(rows)
        self.fail(rows[~fits], Fault.BYTES_MISSING, amount=lengths[~fits])
        self._at[rows[fits]] += lengths[fits]
        return rows[fits]

    def varints(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Unsigned variable-length integers."""
        begin, values = self._at[rows], np.zeros(len(rows), np.int64)
        going = np.arange(len(rows))
        for index in range(_VARINT_BYTES):
            is_out = begin[going] + index >= self._end[rows[going]]
            self.fail(rows[going[is_out]], Fault.VARINT_CUT_OFF, begin[going[is_out]])
            going = going[~is_out]
            octets = self._column.data[begin[going] + index].astype(np.int64)
            values[going] |= (octets & 0x7F) << 7 * index
            self._at[rows[going]] = begin[going] + index + 1
            going = going[octets >= 0x80]
            if not len(going):
                break
        self.fail(rows[going], Fault.VARINT_TOO_LONG, begin[going])
        is_good = self.fault[rows] == Fault.NONE
        return rows[is_good], values[is_good]

    def skip_tagged_fields(self, rows: Int64Array) -> Int64Array:
        """Go past tag buffers whose fields nobody here knows."""
        return self.tagged_fields(rows, {})

    def tagged_fields(self, rows: Int64Array, known: dict[int, npt.NDArray[Any]]) -> Int64Array:
        """Go past tag buffers. A field whose tag is `known` is an integer of its array's type, whatever its size says,
        and is put there, row by row; all others are passed over."""
        counts = np.zeros(len(self.fault), np.int64)
        going, counts_read = self.varints(rows)
        counts[going] = counts_read
        for _ in range(_STEPS):
            going = going[counts[going] > 0]
            if not len(going):
                break
            counts[going] -= 1
            going = self._tagged_field(going, known)
        self.fail(going[counts[going] > 0], Fault.UNDECIDED)
        return self.sound(rows)

    def _tagged_field(self, rows: Int64Array, known: dict[int, npt.NDArray[Any]]) -> Int64Array:
        rows, tags = self.varints(rows)
        told = np.zeros(len(self.fault), np.int64)
        told[rows] = tags
        rows, sizes = self.varints(rows)
        is_known = np.isin(told[rows], list(known))
        passed = [self.skip(rows[~is_known], sizes[~is_known])]
        for tag, numbers in known.items():
            own, found = self.integers(rows[told[rows] == tag], numbers.dtype.newbyteorder(">").str)
            numbers[own] = found
            passed.append(own)
        return np.sort(np.concatenate(passed))

    def _with_room(self, rows: Int64Array, size: int, fault: Fault) -> Int64Array:
        fits: BoolArray = self.room(rows) >= size
        if not fits.all():
            self.fail(rows[~fits], fault, amount=size)
        return rows[fits]
