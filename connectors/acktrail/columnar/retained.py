"""Raw records that a replay may still need, as they came and without their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa

from acktrail.columnar.columns import Column, RecordColumns
from acktrail.columnar.gather import Integers, Mask, binary_column
from acktrail.columnar.odd_rows import OddRows
from acktrail.columnar.values import read_values
from acktrail.model.share_partition import ZERO_TOPIC_ID, GroupId, SharePartition
from acktrail.wire.state_record import SNAPSHOT_TYPE, UPDATE_TYPE, encode_key

__all__ = ["RetainedRecords", "Values"]

_ROWS_AT_ONCE: Final = 1 << 15
"""Values decoded together: what arises on the way stays in the processor's cache."""

_NO_TIMESTAMP: Final = -1
_ANY_KEY: Final = SharePartition(group_id=GroupId(""), topic_id=ZERO_TOPIC_ID, partition=0)
_KEYS: Final = pa.array([encode_key(UPDATE_TYPE, _ANY_KEY), encode_key(SNAPSHOT_TYPE, _ANY_KEY)], pa.binary())
"""Stand for keys that were read before: an update's and a snapshot's."""


class Values:
    """Values of a binary array, to be decoded in any order."""

    def __init__(self, array: pa.BinaryArray) -> None:
        self._array = array
        self._column = binary_column(array)

    def read(self, rows: Integers, is_snapshot: Mask) -> tuple[RecordColumns, Mask]:
        """What the values in `rows` say, of snapshots and updates as told, and which of them could be read."""
        trusted = np.ones(len(rows), np.bool_)
        odd = OddRows(
            keys=lambda some: _KEYS.take(pa.array(is_snapshot[some].astype(np.int8))),
            values=lambda some: self._array.take(pa.array(rows[some])),
            is_snapshot=is_snapshot,
            trusted=trusted,
        )
        records = read_values(self._column.take(rows), is_snapshot, odd.decode, trusted)
        readable = trusted.copy()
        readable[odd.rows] = odd.readable
        return records, readable


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedRecords:
    """Records whose keys were read: number of the share partition, offset, and the place in `values`, `timestamps`."""

    owners: Integers
    offsets: Integers
    is_snapshot: Mask
    rows: Integers
    values: pa.BinaryArray
    timestamps: pa.Int64Array

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, mask: Mask) -> RetainedRecords:
        """The records where `mask` holds; no value is copied."""
        if mask.all():
            return self
        return RetainedRecords(
            owners=self.owners[mask],
            offsets=self.offsets[mask],
            is_snapshot=self.is_snapshot[mask],
            rows=self.rows[mask],
            values=self.values,
            timestamps=self.timestamps,
        )

    def read(self) -> Iterator[tuple[RecordColumns, Mask]]:
        """What the records say, with `offset` and `timestamp_ms`, and which of them could be read; piece by piece."""
        values, timestamps = Values(self.values), self.timestamps.fill_null(_NO_TIMESTAMP).to_numpy()
        for start in range(0, len(self), _ROWS_AT_ONCE):
            piece = slice(start, start + _ROWS_AT_ONCE)
            rows = self.rows[piece]
            said, readable = values.read(rows, self.is_snapshot[piece])
            address = {
                "offset": Column(values=self.offsets[piece]),
                "timestamp_ms": Column(values=timestamps[rows], known=timestamps[rows] != _NO_TIMESTAMP),
            }
            yield RecordColumns(numbers={**said.numbers, **address}, batches=said.batches), readable

    @classmethod
    def packed(cls, pieces: Sequence[Self]) -> RetainedRecords:
        """The pieces end to end, with a copy of their values and of nothing else."""
        places = [pa.array(piece.rows) for piece in pieces]
        return RetainedRecords(
            owners=np.concatenate([piece.owners for piece in pieces]),
            offsets=np.concatenate([piece.offsets for piece in pieces]),
            is_snapshot=np.concatenate([piece.is_snapshot for piece in pieces]),
            rows=np.arange(sum(map(len, pieces))),
            values=pa.concat_arrays([piece.values.take(rows) for piece, rows in zip(pieces, places, strict=True)]),
            timestamps=pa.concat_arrays(
                [piece.timestamps.take(rows) for piece, rows in zip(pieces, places, strict=True)]
            ),
        )
