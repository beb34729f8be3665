"""Reads many byte strings at once, each at its own position: one numpy step advances all that are still being read.

The checks and errors are those of ``wire.primitives``, in the same order.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from acktrail.format.columns.binary_column import BinaryColumn, Int64Array

_VARINT_BYTES: Final = 5

_STEPS: Final = 64
"""Steps that rows take together; a row that needs more is cheaper decoded alone."""


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
    """Gave up after ``_STEPS`` steps: the row is decoded alone."""


class Cursors:
    """One cursor for each row of `column`.

    Methods take row numbers (int64, any subset) and return those that did not fail. For the others `fault`, `position`
    (from the row's first byte), `amount` and `left`, all of shape (rows,), have what an error message needs.
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
        """The positions of the cursors in the column's data."""
        return self._at[rows]

    def fail(
        self, rows: Int64Array, fault: Fault, places: Int64Array | None = None, amount: Int64Array | int = 0
    ) -> None:
        """Mark `rows` as failed at `places`, by default at their cursors."""
        if not len(rows):
            return
        self.fault[rows] = fault
        self.position[rows] = (self._at[rows] if places is None else places) - self._begin[rows]
        self.amount[rows] = amount
        self.left[rows] = self.room(rows)

    def integers(self, rows: Int64Array, kind: str) -> tuple[Int64Array, npt.NDArray[Any]]:
        """Big-endian integers of type `kind`."""
        layout = np.dtype([("number", kind)])
        fits = self.room(rows) >= layout.itemsize
        self.fail(rows[~fits], Fault.INTEGER_CUT_OFF, amount=layout.itemsize)
        rows = rows[fits]
        numbers = self._column.gather(self._at[rows], layout)["number"]
        self._at[rows] += layout.itemsize
        return rows, numbers

    def structures(self, rows: Int64Array, layout: np.dtype[np.void]) -> tuple[Int64Array, npt.NDArray[Any]]:
        """Structures of big-endian integers. A row that ends within one fails at the field in which it ends."""
        short = rows[self.room(rows) < layout.itemsize]
        rows = rows[self.room(rows) >= layout.itemsize]
        for name in layout.names or ():
            if len(short):
                short, _ = self.integers(short, layout[name].str)
        fields = self._column.gather(self._at[rows], layout)
        self._at[rows] += layout.itemsize
        return rows, fields

    def skip(self, rows: Int64Array, lengths: Int64Array) -> Int64Array:
        """Skip `lengths` bytes."""
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

    def tagged_fields(self, rows: Int64Array, known: dict[int, npt.NDArray[Any]]) -> Int64Array:
        """Read tag buffers: a field whose tag is in `known` is an integer of that array's dtype, ignoring its size as
        Kafka does, and is stored there by row; other fields are skipped."""
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
        tag_of_row = np.zeros(len(self.fault), np.int64)
        tag_of_row[rows] = tags
        rows, sizes = self.varints(rows)
        is_known = np.isin(tag_of_row[rows], list(known))
        passed = [self.skip(rows[~is_known], sizes[~is_known])]
        for tag, numbers in known.items():
            known_rows, values = self.integers(rows[tag_of_row[rows] == tag], numbers.dtype.newbyteorder(">").str)
            numbers[known_rows] = values
            passed.append(known_rows)
        return np.sort(np.concatenate(passed))
