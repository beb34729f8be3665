"""Raw records that replay may still need: their keys are read, their values are not decoded yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import pyarrow as pa

from acktrail.format.columns.binary_column import BoolArray, Int64Array, binary_column, by_partition_and_offset
from acktrail.format.columns.decoding.irregular_values import IrregularRows
from acktrail.format.columns.decoding.regular_values import LazyRecords, read_lazy
from acktrail.format.columns.record_columns import NumberColumn, RecordColumns
from acktrail.format.wire.state_key import SNAPSHOT_TYPE, UPDATE_TYPE, encode_key
from acktrail.model.share_partition import ZERO_TOPIC_ID, GroupId, SharePartition

_ROWS_AT_ONCE: Final = 1 << 15
"""Values decoded together, so that intermediate arrays stay in the processor's cache."""

_NO_TIMESTAMP: Final = -1
_OF_RECORDS: Final = ("partition_index", "offsets", "is_snapshot")
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
        return replace(self, **{name: getattr(self, name)[kept] for name in _OF_RECORDS}, rows=self.rows[kept])

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
        return PendingRecords(
            **{name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in _OF_RECORDS},
            rows=np.arange(sum(map(len, pieces))),
            values=pa.concat_arrays([piece.values.take(pa.array(piece.rows)) for piece in pieces]),
            timestamps=pa.concat_arrays([piece.timestamps.take(pa.array(piece.rows)) for piece in pieces]),
        )


def read_irregular(values: pa.BinaryArray, is_snapshot: BoolArray) -> tuple[RecordColumns, BoolArray]:
    """The content of values of snapshots and updates, and which of them can be read."""
    keys, trusted = _KEYS.take(pa.array(is_snapshot.astype(np.int8))), np.ones(len(is_snapshot), np.bool_)
    irregular = IrregularRows(keys=keys, values=values, is_snapshot=is_snapshot, trusted=trusted)
    return irregular.decode(np.arange(len(is_snapshot)), binary_column(values)), irregular.readable


def _address(offsets: Int64Array, timestamps: Int64Array) -> dict[str, NumberColumn]:
    return {
        "offset": NumberColumn(values=offsets),
        "timestamp_ms": NumberColumn(values=timestamps, known=timestamps != _NO_TIMESTAMP),
    }


def first_replayed(bases: Int64Array, is_tombstone: BoolArray) -> Int64Array:
    """The first offset that replay needs of share partitions whose newest base is at `bases`: a snapshot itself, or
    what follows a tombstone. Shapes (n,)."""
    return bases + is_tombstone


def newest_readable(partition_index: Int64Array, offsets: Int64Array, values: pa.BinaryArray) -> Int64Array:
    """The row of the newest readable base of each share partition.

    Args:
        partition_index, offsets: int64, shape (n,), in any order.
        values: the n values of snapshots, null for tombstones.

    The newest of each share partition is decoded first; its other bases only where that one cannot be read.
    """
    order = by_partition_and_offset(partition_index, offsets)
    newest = order[_ends(partition_index[order])]
    readable = _are_readable(values, newest)
    if readable.all():
        return newest
    candidates = order[np.isin(partition_index[order], partition_index[newest[~readable]])]
    good = candidates[_are_readable(values, candidates)]
    return np.concatenate([newest[readable], good[_ends(partition_index[good])]])


def _ends(partition_index: Int64Array) -> Int64Array:
    """Where the rows of each share partition end."""
    return np.flatnonzero(np.diff(partition_index, append=-1))


def _are_readable(values: pa.BinaryArray, rows: Int64Array) -> BoolArray:
    is_snapshot = np.ones(len(rows), np.bool_)
    readable = read_lazy(binary_column(values).take(rows), is_snapshot)[1].copy()
    irregular = np.flatnonzero(~readable)
    if len(irregular):
        readable[irregular] = read_irregular(values.take(pa.array(rows[irregular])), is_snapshot[irregular])[1]
    return readable
