"""Irregular values (unknown tagged fields, long varints, bytes left over, damage), many at once.

Many byte strings are read, each at its own position: one numpy step advances all that are still being read. The checks
and errors are those of ``wire.primitives``, in the same order, and so results and errors equal the strict decoder's
(``wire.state_record``). It could decode these rows too, one by one, but 1 % of irregular records would then take
1.6x the time of regular ones (here 1.1x), and a release that adds a tagged field to every value 8x the time of this
module (``benchmarks/decode.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acktrail.errors import InputError, MalformedRecord, UnsupportedRecord
from acktrail.format.columns.binary_column import BinaryColumn, BoolArray, Int64Array, runs
from acktrail.format.columns.decoding.regular_values import BATCH, SNAPSHOT, UPDATE
from acktrail.format.columns.record_columns import (
    CONTENT_NUMBERS,
    BatchColumns,
    NumberColumn,
    RecordColumns,
    content_columns,
)
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS, STATE_RECORDS
from acktrail.format.wire.raw_record import AddressedRecord, DecodeStatus, RawRecord, decode_with
from acktrail.format.wire.state_record import SNAPSHOT_TYPE, decode, decode_key
from acktrail.model.records import ShareSnapshot, StateRecord, Tombstone
from acktrail.model.share_partition import KEY_COLUMNS

Decoder = Callable[[bytes | None, bytes | None], StateRecord]
"""Key and value to a record of a released dialect; raises MalformedRecord or UnsupportedRecord."""
_FIRST: Final = STATE_RECORDS.get_field_index("record_type")
CONTENT_COLUMNS: Final = pa.schema([STATE_RECORDS.field(index) for index in range(_FIRST, len(STATE_RECORDS))])
"""The columns of ``STATE_RECORDS`` that are decoded from a record's bytes."""
_Row = tuple[Any, ...]
_key: Final = attrgetter(*KEY_COLUMNS)
_NO_VALUE: Final[_Row] = (None,) * (len(CONTENT_NUMBERS) + 1)
"""For each of ``CONTENT_NUMBERS``, and for the batches."""
_VARINT_BYTES: Final = 5
_STEPS: Final = 64
"""Steps that rows take together; a row that needs more is cheaper decoded alone."""
_UPDATE: Final = np.dtype(UPDATE.descr[1:-2])
_SNAPSHOT: Final = np.dtype(SNAPSHOT.descr[1:-2])
"""The fixed fields between the version and the array of batches."""
_BATCH: Final = np.dtype(BATCH.descr[:-1])
"""A batch before its tag buffer."""
_COUNT_TAG: Final = 0
_ABSENT: Final = -1


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


@lru_cache(maxsize=1_024)
def _reason(fault: Fault, amount: int, left: int, position: int) -> str:
    """The strict decoder's message for a fault; cached, since many rows have the same one."""
    if fault is Fault.UNKNOWN_VERSION:
        return UnsupportedRecord("unknown value version", part="value", number=amount).message
    text = _TEXTS[fault].format(amount=amount, left=left)
    return MalformedRecord(text, part="value", position=position).message


class _Reader:
    """Reads all updates, then all snapshots, and collects their content."""

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
        for name in fields.dtype.names or ():
            self._values[name][rows] = fields[name]
            # -1 says unchanged in an update, and not initialized in either.
            may_be_absent = name == "start_offset" or (name == "leader_epoch" and layout is _UPDATE)
            self._known[name][rows] = fields[name] != _ABSENT if may_be_absent else True
        rows = self._read_batches(rows)
        counts = self._values["delivery_complete_count"]
        counts[rows] = _ABSENT
        rows = self.cursors.tagged_fields(rows, {_COUNT_TAG: counts})
        self._known["delivery_complete_count"][rows] = counts[rows] != _ABSENT

    def records(self) -> RecordColumns:
        """The content of the rows without a fault."""
        good = self.cursors.fault == Fault.NONE
        rows_of = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in self._batches)])
        batches = np.concatenate([np.empty(0, _BATCH), *(batches for _, batches in self._batches)])
        order = np.argsort(rows_of, kind="stable")
        order = order[good[rows_of[order]]]
        return RecordColumns(
            numbers={n: NumberColumn(values=self._values[n], known=self._known[n] & good) for n in CONTENT_NUMBERS},
            batches=BatchColumns.of_structures(np.bincount(rows_of[order], minlength=len(good)), batches[order]),
        )

    def _read_batches(self, rows: Int64Array) -> Int64Array:
        """The arrays of batches: runs without tagged fields at once, then one batch with tagged fields at a time."""
        left = np.zeros(len(self.cursors.fault), np.int64)
        going = self._announced(rows, left)
        for _ in range(_STEPS):
            going = going[left[going] > 0]
            if not len(going):
                break
            going = self._read_plain(going, left)
            # The next batch of each row, its tagged fields skipped.
            tagged, batches = self.cursors.structures(going[left[going] > 0], _BATCH)
            self._batches.append((tagged, batches))
            left[tagged] -= 1
            going = self.cursors.tagged_fields(tagged, {})
        self.cursors.fail(going[left[going] > 0], Fault.UNDECIDED)
        return self.cursors.sound(rows)

    def _announced(self, rows: Int64Array, left: Int64Array) -> Int64Array:
        begun = np.zeros(len(left), np.int64)
        begun[rows] = self.cursors.places(rows)
        rows, counts = self.cursors.varints(rows)
        is_null = counts == 0
        self.cursors.fail(rows[is_null], Fault.NULL_BATCHES, begun[rows[is_null]])
        rows, counts = rows[~is_null], counts[~is_null] - 1
        missing = counts * BATCH.itemsize > self.cursors.room(rows)
        self.cursors.fail(rows[missing], Fault.BATCHES_MISSING, begun[rows[missing]], amount=counts[missing])
        left[rows[~missing]] = counts[~missing]
        announced: Int64Array = rows[~missing]
        return announced

    def _read_plain(self, rows: Int64Array, left: Int64Array) -> Int64Array:
        """The next batches without tagged fields."""
        whole = np.minimum(left[rows], self.cursors.room(rows) // BATCH.itemsize)
        rows_of, places = runs(whole)
        batches_read = self._column.gather(self.cursors.places(rows)[rows_of] + BATCH.itemsize * places, BATCH)
        tagged = batches_read["tags"] != 0
        plain = whole.copy()
        np.minimum.at(plain, rows_of[tagged], places[tagged])
        kept = places < plain[rows_of]
        batches = np.empty(int(kept.sum()), _BATCH)
        for name in _BATCH.names or ():
            batches[name] = batches_read[name][kept]
        self._batches.append((rows[rows_of[kept]], batches))
        left[rows] -= plain
        return self.cursors.skip(rows, plain * BATCH.itemsize)


class IrregularRows:
    """Decodes the rows with irregular values or keys, of `keys` and `values`.

    After ``decode``: `rows` with their `statuses` and `reasons` (None: decoded); `strict_rows`, those of them that only
    the strict decoder reads (their keys are not `trusted`, or their values take too many steps), and `strict`, its
    result.
    """

    def __init__(
        self, *, keys: pa.BinaryArray, values: pa.BinaryArray, is_snapshot: BoolArray, trusted: BoolArray
    ) -> None:
        self._raw = (keys, values)
        self._is_snapshot, self._trusted = is_snapshot, trusted
        self.rows = self.strict_rows = np.empty(0, np.int64)
        self.statuses: list[DecodeStatus] = []
        self.reasons: list[str | None] = []
        self.strict: pa.RecordBatch | None = None

    def decode(self, rows: Int64Array, column: BinaryColumn) -> RecordColumns:
        """The numbers and batches of `rows`, whose values are `column`. Null is a tombstone under a snapshot key, and a
        fault under an update key."""
        reader = _Reader(column)
        cursors, is_null, is_snapshot = reader.cursors, column.lengths < 0, self._is_snapshot[rows]
        cursors.fail(np.flatnonzero(is_null & ~is_snapshot), Fault.NULL_UPDATE)
        reader.read(np.flatnonzero(~is_null & ~is_snapshot), _UPDATE)
        reader.read(np.flatnonzero(~is_null & is_snapshot), _SNAPSHOT)
        faults = [_FAULTS[fault] for fault in cursors.fault.tolist()]
        details = (numbers.tolist() for numbers in (cursors.amount, cursors.left, cursors.position))
        self.rows = rows
        self.statuses = [_STATUSES.get(fault, DecodeStatus.MALFORMED_VALUE) for fault in faults]
        self.reasons = [_reason(*each) if each[0] else None for each in zip(faults, *details, strict=True)]
        places = np.flatnonzero((cursors.fault == Fault.UNDECIDED) | ~self._trusted[rows])
        return self._with_strict(reader.records(), places) if len(places) else reader.records()

    @property
    def readable(self) -> BoolArray:
        """Which of `rows` were decoded."""
        return np.array([status is DecodeStatus.DECODED for status in self.statuses], np.bool_)

    def _with_strict(self, records: RecordColumns, places: Int64Array) -> RecordColumns:
        self.strict_rows = self.rows[places]
        address = [pa.array(np.zeros(len(places), np.int64), kind) for kind in RAW_RECORDS.types[:3]]
        taken = [array.take(pa.array(self.strict_rows)) for array in self._raw]
        self.strict = decode_rows(pa.RecordBatch.from_arrays([*address, *taken], schema=RAW_RECORDS))
        outcomes = (self.strict.column(name).to_pylist() for name in ("decode_status", "decode_error"))
        for place, status, reason in zip(places.tolist(), *outcomes, strict=True):
            self.statuses[place], self.reasons[place] = DecodeStatus(status), reason
        order = np.arange(len(records))
        order[places] = len(records) + np.arange(len(places))
        return RecordColumns.concat([records, content_columns(self.strict)]).take(order)


def decode_rows(batch: pa.RecordBatch, decoder: Decoder = decode) -> pa.RecordBatch:
    """``CONTENT_COLUMNS`` of `batch` (``RAW_RECORDS``), decoded one row at a time by a dialect's `decoder`.

    A record that cannot be decoded still names its share partition where its key can be read.
    """
    columns = (column.to_pylist() for column in batch.columns)
    rows = [
        _row(
            decode_with(decoder, RawRecord(state_partition=at, offset=offset, timestamp_ms=time, key=key, value=value))
        )
        for at, offset, time, key, value in zip(*columns, strict=True)
    ]
    decoded = zip(*rows, strict=True) if rows else ((),) * len(CONTENT_COLUMNS)
    arrays = [pa.array(column, field.type) for column, field in zip(decoded, CONTENT_COLUMNS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=CONTENT_COLUMNS)


def _row(decoded: AddressedRecord[StateRecord]) -> _Row:
    outcome = (decoded.status.value, decoded.reason)
    record = decoded.record
    if record is None:
        return (*_readable_key(decoded.raw.key), *_NO_VALUE, *outcome)
    if isinstance(record, Tombstone):
        return ("tombstone", *_key(record.key), *_NO_VALUE, *outcome)
    record_type = "snapshot" if isinstance(record, ShareSnapshot) else "update"
    numbers = (getattr(record, name, None) for name in CONTENT_NUMBERS)
    batches = [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in record.batches]
    return (record_type, *_key(record.key), *numbers, batches, *outcome)


def _readable_key(key: bytes | None) -> _Row:
    """Record type and share partition of a record whose value could not be read; nulls where its key cannot be read."""
    try:
        kind, share_partition = decode_key(key or b"")
    except InputError:
        return (None,) * 4
    return ("snapshot" if kind == SNAPSHOT_TYPE else "update", *_key(share_partition))


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
