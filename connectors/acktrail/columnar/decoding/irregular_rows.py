"""The rows of a batch that bulk decoding cannot read: decoded in other ways, each with its outcome."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from acktrail.columnar.binary_column import BinaryColumn, BoolArray, Int64Array
from acktrail.columnar.decoding.decode_rows import decode_rows
from acktrail.columnar.decoding.irregular_values import read_irregular_values
from acktrail.columnar.record_columns import RecordColumns, content_columns
from acktrail.columnar.schemas.table_schemas import RAW_RECORDS
from acktrail.wire.raw_record import DecodeStatus

__all__ = ["IrregularRows"]

Take = Callable[[Int64Array], pa.BinaryArray]
"""Returns the keys, or the values, of some rows."""


class IrregularRows:
    """Decodes the rows with irregular values or keys.

    After ``decode``: `rows` with their `statuses` and `reasons`; `strict_rows`, those of them that only the strict
    decoder reads (their keys are not `trusted`, or their values take too many steps), and `strict`, its result.
    """

    def __init__(self, *, keys: Take, values: Take, is_snapshot: BoolArray, trusted: BoolArray) -> None:
        self._take = (keys, values)
        self._is_snapshot, self._trusted = is_snapshot, trusted
        self.rows = self.strict_rows = np.empty(0, np.int64)
        self.statuses: list[DecodeStatus] = []
        self.reasons: list[str | None] = []
        self.strict: pa.RecordBatch | None = None

    def decode(self, rows: Int64Array, column: BinaryColumn) -> RecordColumns:
        """The numbers and batches of `rows`, whose values are `column`."""
        irregular = read_irregular_values(column, self._is_snapshot[rows])
        self.rows, self.statuses, self.reasons = rows, irregular.statuses, irregular.reasons
        places = np.flatnonzero(irregular.undecided | ~self._trusted[rows])
        return self._with_strict(irregular.records, places) if len(places) else irregular.records

    @property
    def readable(self) -> BoolArray:
        """Which of `rows` were decoded."""
        return np.array([status is DecodeStatus.DECODED for status in self.statuses], np.bool_)

    def _with_strict(self, records: RecordColumns, places: Int64Array) -> RecordColumns:
        self.strict_rows = self.rows[places]
        self.strict = decode_rows(self._raw(self.strict_rows))
        outcomes = (self.strict.column(name).to_pylist() for name in ("decode_status", "decode_error"))
        for place, status, reason in zip(places.tolist(), *outcomes, strict=True):
            self.statuses[place], self.reasons[place] = DecodeStatus(status), reason
        order = np.arange(len(records))
        order[places] = len(records) + np.arange(len(places))
        return RecordColumns.concat([records, content_columns(self.strict)]).take(order)

    def _raw(self, rows: Int64Array) -> pa.RecordBatch:
        address = [pa.array(np.zeros(len(rows), np.int64), kind) for kind in RAW_RECORDS.types[:3]]
        taken = [take(rows) for take in self._take]
        return pa.RecordBatch.from_arrays([*address, *taken], schema=RAW_RECORDS)
