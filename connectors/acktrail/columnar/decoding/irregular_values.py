"""Values laid out in any way that their format allows, and those that cannot be read, many at once.

Newer releases may put tagged fields into every value: then these are all of them. What is read, and what is said of
what cannot be read, is what the strict decoder (``wire.dialects.kafka_4_2``) says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from acktrail.columnar.binary_column import BinaryColumn, BoolArray, Int64Array, runs
from acktrail.columnar.decoding.cursors import Cursors, Fault
from acktrail.columnar.record_columns import CONTENT_NUMBERS, BatchColumns, NumberColumn, RecordColumns
from acktrail.errors import MalformedRecord, UnsupportedRecord
from acktrail.wire.raw_record import DecodeStatus

__all__ = ["IrregularValues", "read_irregular_values"]

_UPDATE: Final = np.dtype([("snapshot_epoch", ">i4"), ("leader_epoch", ">i4"), ("start_offset", ">i8")])
_SNAPSHOT: Final = np.dtype(
    [
        ("snapshot_epoch", ">i4"),
        ("state_epoch", ">i4"),
        ("leader_epoch", ">i4"),
        ("start_offset", ">i8"),
        ("create_timestamp_ms", ">i8"),
        ("write_timestamp_ms", ">i8"),
    ]
)
_BATCH_FIELDS: Final = [
    ("first_offset", ">i8"),
    ("last_offset", ">i8"),
    ("delivery_state", "i1"),
    ("delivery_count", ">i2"),
]
_BATCH: Final = np.dtype(_BATCH_FIELDS)
_PLAIN_BATCH: Final = np.dtype([*_BATCH_FIELDS, ("tags", "u1")])
_COUNT_TAG: Final = 0
_ABSENT: Final = -1
_STEPS: Final = 64
_TEXTS: Final = {
    Fault.INTEGER_CUT_OFF: "{amount}-byte integer is cut off",
    Fault.VARINT_CUT_OFF: "variable-length integer is cut off",
    Fault.VARINT_TOO_LONG: "variable-length integer is longer than five bytes",
    Fault.BYTES_MISSING: "{amount} bytes announced, {left} left",
    Fault.NULL_BATCHES: "null array of state batches",
    Fault.BATCHES_MISSING: "{amount} state batches announced",
    Fault.NULL_UPDATE: "null value under an update key",
    Fault.UNDECIDED: "",
}
_FAULTS: Final = tuple(Fault)
_STATUSES: Final = {
    Fault.NONE: DecodeStatus.DECODED,
    Fault.UNKNOWN_VERSION: DecodeStatus.UNKNOWN_VERSION,
    Fault.NULL_UPDATE: DecodeStatus.NULL_UPDATE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IrregularValues:
    """What the values of some rows say, and what became of each: the reason is None for those that were decoded.

    `undecided` rows take more steps than it pays to take together; nothing is said of them.
    """

    records: RecordColumns
    statuses: list[DecodeStatus]
    reasons: list[str | None]
    undecided: BoolArray


def read_irregular_values(column: BinaryColumn, is_snapshot: BoolArray) -> IrregularValues:
    """Read values of any layout. A null one is a tombstone under a snapshot key, and a fault under an update key."""
    reader = _Reader(column)
    is_null = column.lengths < 0
    reader.cursors.fail(np.flatnonzero(is_null & ~is_snapshot), Fault.NULL_UPDATE)
    reader.read(np.flatnonzero(~is_null & ~is_snapshot), _UPDATE)
    reader.read(np.flatnonzero(~is_null & is_snapshot), _SNAPSHOT)
    faults = [_FAULTS[fault] for fault in reader.cursors.fault.tolist()]
    details = (reader.cursors.amount, reader.cursors.left, reader.cursors.position)
    told = zip(faults, *(numbers.tolist() for numbers in details), strict=True)
    return IrregularValues(
        records=reader.records(),
        statuses=[_STATUSES.get(fault, DecodeStatus.MALFORMED_VALUE) for fault in faults],
        reasons=[_reason(*each) if each[0] else None for each in told],
        undecided=reader.cursors.fault == Fault.UNDECIDED,
    )


@lru_cache(maxsize=1_024)
def _reason(fault: Fault, amount: int, left: int, position: int) -> str:
    """What the strict decoder says of a row that has a fault: many rows have the same."""
    if fault is Fault.UNKNOWN_VERSION:
        return UnsupportedRecord("unknown value version", part="value", number=amount).message
    text = _TEXTS[fault].format(amount=amount, left=left)
    return MalformedRecord(text, part="value", position=position).message


class _Reader:
    """Reads values of one kind after the other, and keeps what it finds."""

    def __init__(self, column: BinaryColumn) -> None:
        self.cursors = Cursors(column)
        self._column = column
        rows = len(column.starts)
        self._values: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(rows, kind) for name, kind in CONTENT_NUMBERS.items()
        }
        self._known = {name: np.zeros(rows, np.bool_) for name in CONTENT_NUMBERS}
        self._batches: list[tuple[Int64Array, npt.NDArray[Any]]] = []

    def read(self, rows: Int64Array, layout: np.dtype[np.void]) -> None:
        """Read the values in `rows`, whose fixed fields are `layout`."""
        if not len(rows):
            return
        rows, versions = self.cursors.integers(rows, ">i2")
        unknown = versions != 0
        self.cursors.fail(rows[unknown], Fault.UNKNOWN_VERSION, amount=versions[unknown])
        rows, fields = self.cursors.structures(rows[~unknown], layout)
        self._keep(rows, fields, is_snapshot=layout is _SNAPSHOT)
        rows = self._read_batches(rows)
        counts = self._values["delivery_complete_count"]
        counts[rows] = _ABSENT
        rows = self.cursors.tagged_fields(rows, {_COUNT_TAG: counts})
        self._known["delivery_complete_count"][rows] = counts[rows] != _ABSENT

    def records(self) -> RecordColumns:
        """What the rows without a fault say."""
        good = self.cursors.fault == Fault.NONE
        owners = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in self._batches)])
        batches = np.concatenate([np.empty(0, _BATCH), *(found for _, found in self._batches)])
        order = np.argsort(owners, kind="stable")
        order = order[good[owners[order]]]
        found = batches[order]
        return RecordColumns(
            numbers={n: NumberColumn(values=self._values[n], known=self._known[n] & good) for n in CONTENT_NUMBERS},
            batches=BatchColumns(
                counts=np.bincount(owners[order], minlength=len(good)),
                first_offset=found["first_offset"].astype(np.int64),
                last_offset=found["last_offset"].astype(np.int64),
                delivery_state=found["delivery_state"].copy(),
                delivery_count=found["delivery_count"].astype(np.int16),
            ),
        )

    def _keep(self, rows: Int64Array, fields: npt.NDArray[Any], *, is_snapshot: bool) -> None:
        for name in fields.dtype.names or ():
            self._values[name][rows] = fields[name]
            self._known[name][rows] = True
        self._known["start_offset"][rows] = fields["start_offset"] != _ABSENT
        if not is_snapshot:
            self._known["leader_epoch"][rows] = fields["leader_epoch"] != _ABSENT

    def _read_batches(self, rows: Int64Array) -> Int64Array:
        """The arrays of batches, as far as they are plain in one go, then one with tagged fields at a time."""
        left = np.zeros(len(self.cursors.fault), np.int64)
        going = self._announced(rows, left)
        for _ in range(_STEPS):
            going = going[left[going] > 0]
            if not len(going):
                break
            going = self._read_plain(going, left)
            going = self._read_tagged(going[left[going] > 0], left)
        self.cursors.fail(going[left[going] > 0], Fault.UNDECIDED)
        return self.cursors.sound(rows)

    def _announced(self, rows: Int64Array, left: Int64Array) -> Int64Array:
        begun = np.zeros(len(left), np.int64)
        begun[rows] = self.cursors.places(rows)
        rows, counts = self.cursors.varints(rows)
        is_null = counts == 0
        self.cursors.fail(rows[is_null], Fault.NULL_BATCHES, begun[rows[is_null]])
        rows, counts = rows[~is_null], counts[~is_null] - 1
        missing = counts * _PLAIN_BATCH.itemsize > self.cursors.room(rows)
        self.cursors.fail(rows[missing], Fault.BATCHES_MISSING, begun[rows[missing]], amount=counts[missing])
        left[rows[~missing]] = counts[~missing]
        announced: Int64Array = rows[~missing]
        return announced

    def _read_plain(self, rows: Int64Array, left: Int64Array) -> Int64Array:
        """The next batches without tagged fields."""
        whole = np.minimum(left[rows], self.cursors.room(rows) // _PLAIN_BATCH.itemsize)
        owners, places = runs(whole)
        found = self._column.gather(self.cursors.places(rows)[owners] + _PLAIN_BATCH.itemsize * places, _PLAIN_BATCH)
        tagged = found["tags"] != 0
        plain = whole.copy()
        np.minimum.at(plain, owners[tagged], places[tagged])
        kept = places < plain[owners]
        batches = np.empty(int(kept.sum()), _BATCH)
        for name in _BATCH.names or ():
            batches[name] = found[name][kept]
        self._batches.append((rows[owners[kept]], batches))
        left[rows] -= plain
        return self.cursors.skip(rows, plain * _PLAIN_BATCH.itemsize)

    def _read_tagged(self, rows: Int64Array, left: Int64Array) -> Int64Array:
        """The next batch of each row, and past its tagged fields."""
        rows, batches = self.cursors.structures(rows, _BATCH)
        self._batches.append((rows, batches))
        left[rows] -= 1
        return self.cursors.skip_tagged_fields(rows)
