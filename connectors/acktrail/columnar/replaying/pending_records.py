"""Raw records that replay may still need: their keys are read, their values are not decoded yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa

from acktrail.columnar.binary_column import BoolArray, Int64Array, binary_column
from acktrail.columnar.decoding.irregular_values import IrregularRows
from acktrail.columnar.record_columns import NumberColumn, RecordColumns
from acktrail.columnar.replaying.lazy_batches import LazyRecords, read_lazy
from acktrail.model.share_partition import ZERO_TOPIC_ID, GroupId, SharePartition
from acktrail.wire.state_key import SNAPSHOT_TYPE, UPDATE_TYPE, encode_key

_ROWS_AT_ONCE: Final = 1 << 15
"""Values decoded together, so that intermediate arrays stay in the processor's cache."""

_NO_TIMESTAMP: Final = -1
_ANY_KEY: Final = SharePartition(group_id=GroupId(""), topic_id=ZERO_TOPIC_ID, partition=0)
_KEYS: Final = pa.array([encode_key(UPDATE_TYPE, _ANY_KEY), encode_key(SNAPSHOT_TYPE, _ANY_KEY)], pa.binary())
"""An update's and a snapshot's key, for the strict decoder: the real keys are read already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecords:
    """Records with the number of their share partition; `rows` are their places in `values` and `timestamps`.

    `partition_index`, `offsets`, `is_snapshot` and `rows` have shape (records,); `values` may hold more.
    """

    partition_index: Int64Array
    offsets: Int64Array
    is_snapshot: BoolArray
    rows: Int64Array
    values: pa.BinaryArray
    timestamps: pa.Int64Array

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def needed_bytes(self) -> int:
        """About how many bytes of `values` belong to the records."""
        return int(self.values.nbytes) * len(self) // max(len(self.values), 1)

    def where(self, mask: BoolArray) -> PendingRecords:
        """The records where `mask` is true; no value is copied."""
        kept = np.flatnonzero(mask)
        if len(kept) == len(mask):
            return self
        return PendingRecords(
            partition_index=self.partition_index[kept],
            offsets=self.offsets[kept],
            is_snapshot=self.is_snapshot[kept],
            rows=self.rows[kept],
            values=self.values,
            timestamps=self.timestamps,
        )

    def read(self) -> Iterator[tuple[LazyRecords, BoolArray]]:
        """The content of regular records, and which records are regular; piece by piece."""
        column, timestamps = binary_column(self.values), self.timestamps.fill_null(_NO_TIMESTAMP).to_numpy()
        for start in range(0, len(self), _ROWS_AT_ONCE):
            piece = slice(start, start + _ROWS_AT_ONCE)
            rows = self.rows[piece]
            lazy, regular = read_lazy(column.take(rows), self.is_snapshot[piece])
            address = _address(self.offsets[piece], timestamps[rows])
            yield LazyRecords(numbers={**lazy.numbers, **address}, batches=lazy.batches), regular

    def read_irregular(self) -> tuple[RecordColumns, BoolArray]:
        """The content of all records, regular or not, and which of them can be read."""
        taken = [array.take(pa.array(self.rows)) for array in (self.values, self.timestamps)]
        records, readable = read_irregular(taken[0], self.is_snapshot)
        address = _address(self.offsets, taken[1].fill_null(_NO_TIMESTAMP).to_numpy())
        return RecordColumns(numbers={**records.numbers, **address}, batches=records.batches), readable

    @classmethod
    def packed(cls, pieces: Sequence[Self]) -> PendingRecords:
        """The pieces end to end; `values` holds a copy of theirs alone."""
        places = [pa.array(piece.rows) for piece in pieces]
        return PendingRecords(
            partition_index=np.concatenate([piece.partition_index for piece in pieces]),
            offsets=np.concatenate([piece.offsets for piece in pieces]),
            is_snapshot=np.concatenate([piece.is_snapshot for piece in pieces]),
            rows=np.arange(sum(map(len, pieces))),
            values=pa.concat_arrays([piece.values.take(rows) for piece, rows in zip(pieces, places, strict=True)]),
            timestamps=pa.concat_arrays(
                [piece.timestamps.take(rows) for piece, rows in zip(pieces, places, strict=True)]
            ),
        )


def read_irregular(values: pa.BinaryArray, is_snapshot: BoolArray) -> tuple[RecordColumns, BoolArray]:
    """The content of values of snapshots and updates, and which of them can be read."""
    keys = _KEYS.take(pa.array(is_snapshot.astype(np.int8)))
    irregular = IrregularRows(
        keys=lambda rows: keys.take(pa.array(rows)),
        values=lambda rows: values.take(pa.array(rows)),
        is_snapshot=is_snapshot,
        trusted=np.ones(len(is_snapshot), np.bool_),
    )
    return irregular.decode(np.arange(len(is_snapshot)), binary_column(values)), irregular.readable


def _address(offsets: Int64Array, timestamps: Int64Array) -> dict[str, NumberColumn]:
    return {
        "offset": NumberColumn(values=offsets),
        "timestamp_ms": NumberColumn(values=timestamps, known=timestamps != _NO_TIMESTAMP),
    }
