"""Replay of raw records of the state topic: the latest state of every share partition, by policy ``broker``.

Keys are read at once; values only of the records that replay still needs.
"""

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
from acktrail.format.columns.schemas.table_schemas import RAW_RECORDS
from acktrail.format.wire.state_record import SNAPSHOT_TYPE, UPDATE_TYPE, encode_key
from acktrail.model.share_partition import ZERO_TOPIC_ID, GroupId, SharePartition
from acktrail.replay.fold import REPLAYED_STATES, UNREADABLE, SharePartitionIndex, StateColumns, states_after

_VALUES_AT_ONCE: Final = 1 << 15
"""Values decoded together, so that intermediate arrays stay in the processor's cache."""
_NO_TIMESTAMP: Final = -1
_OF_RECORDS: Final = ("partition_index", "offsets", "is_snapshot")
_ANY_KEY: Final = SharePartition(group_id=GroupId(""), topic_id=ZERO_TOPIC_ID, partition=0)
_KEYS: Final = pa.array([encode_key(UPDATE_TYPE, _ANY_KEY), encode_key(SNAPSHOT_TYPE, _ANY_KEY)], pa.binary())
"""An update's and a snapshot's key, for the strict decoder: the real keys are read already."""
_ROWS_AT_ONCE: Final = 1 << 20
"""Rows whose keys are indexed together: enough that few of them are distinct."""
_SMALL_ROWS: Final = 1 << 14
_BUFFER_BYTES: Final = 1 << 28
_LOWEST: Final = np.iinfo(np.int64).min
_NONE: Final = np.empty(0, np.bool_)


class RawLogReplay:
    """The latest states after all records added so far, equal to ``acktrail.model.replay`` for each state partition.

    A share partition's newest readable snapshot or tombstone is found by key type and offset; values before it are not
    decoded. Records that cannot be read are skipped; a record that comes twice counts once.

    Buffers up to `buffer_bytes` of values; if more than half of them is still needed then, folds them into states and
    frees them. Records come in the order of each state partition's log; those that are not folded yet in any order.

    A snapshot at offset 7 with start offset 0, and an update at offset 8 that moves it to 5:

    >>> from acktrail.model.records import ShareSnapshot, ShareUpdate
    >>> from acktrail.model.share_partition import ZERO_TOPIC_ID, GroupId, SharePartition
    >>> from acktrail.format.wire.state_record import encode
    >>> key = SharePartition(group_id=GroupId("orders"), topic_id=ZERO_TOPIC_ID, partition=0)
    >>> common = {"key": key, "snapshot_epoch": 0, "delivery_complete_count": 0, "batches": ()}
    >>> times = {"create_timestamp_ms": 1, "write_timestamp_ms": 1}
    >>> snapshot = ShareSnapshot(**common, **times, state_epoch=1, leader_epoch=0, start_offset=0)
    >>> update = ShareUpdate(**common, leader_epoch=2, start_offset=5)
    >>> rows = [(3, offset, 1_000, *encode(record)) for offset, record in ((7, snapshot), (8, update))]
    >>> replay = RawLogReplay()
    >>> replay.add(pa.Table.from_pylist([dict(zip(RAW_RECORDS.names, row)) for row in rows], schema=RAW_RECORDS))
    >>> state = replay.finish().to_pylist()[0]
    >>> {name: state[name] for name in ("group_id", "leader_epoch", "start_offset", "last_record_offset")}
    {'group_id': 'orders', 'leader_epoch': 2, 'start_offset': 5, 'last_record_offset': 8}
    """

    def __init__(self, *, buffer_bytes: int = _BUFFER_BYTES) -> None:
        self._buffer_bytes = buffer_bytes
        self._index = SharePartitionIndex()
        self._states = StateColumns.of_arrow(REPLAYED_STATES.empty_table(), self._index)
        self._first_offset = np.empty(0, np.int64)  # by share partition: where its replay starts
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._pending: list[PendingRecords] = []

    def add(self, records: pa.Table | pa.RecordBatch) -> None:
        """Add records: the columns of ``RAW_RECORDS``; keys may be dictionary-encoded, those of all records or none."""
        for batch in _raw_batches(records):
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            self._waiting_bytes += batch.nbytes
            if self._waiting_rows >= _ROWS_AT_ONCE or self._waiting_bytes > self._buffer_bytes // 2:
                self.index_waiting()

    def finish(self) -> pa.Table:
        """The states (``REPLAYED_STATES``): one row for each share partition and state partition, in the order of their
        first records. Folds and frees all buffered records; more may be added afterwards."""
        self.index_waiting()
        self._fold()
        return self._states.to_arrow(self._index)

    def index_waiting(self) -> None:
        """Index the keys of the waiting batches, find the newest bases, buffer the records at or above them."""
        batches, self._waiting = _larger(self._waiting), []
        self._waiting_rows = self._waiting_bytes = 0
        if not batches:
            return
        state_partitions, offsets = (
            np.concatenate([batch.column(name).to_numpy() for batch in batches]) for name in ("partition", "offset")
        )
        keys = pa.chunked_array([batch.column("key") for batch in batches])
        partition_index, is_snapshot = self._index.add_keys(keys, state_partitions)
        new = len(self._index) - len(self._first_offset)
        self._first_offset = np.append(self._first_offset, np.full(new, _LOWEST))
        self._find_bases(partition_index, offsets, is_snapshot, [batch.column("value") for batch in batches])
        needed = (partition_index != UNREADABLE) & (offsets >= np.append(self._first_offset, _LOWEST)[partition_index])
        end = 0
        for batch in batches:
            start, end = end, end + batch.num_rows
            rows = np.flatnonzero(needed[start:end])
            self._pending.append(
                PendingRecords(
                    partition_index=partition_index[start:end][rows],
                    offsets=offsets[start:end][rows],
                    is_snapshot=is_snapshot[start:end][rows],
                    rows=rows,
                    values=batch.column("value"),
                    timestamps=batch.column("timestamp"),
                )
            )
        if sum(piece.values.nbytes for piece in self._pending) > self._buffer_bytes:
            needed = self._needed()
            if sum(piece.needed_bytes for piece in needed) > self._buffer_bytes // 2:
                self._fold()
            else:
                self._pending = [PendingRecords.packed(needed)]

    def _find_bases(
        self, partition_index: Int64Array, offsets: Int64Array, is_snapshot: BoolArray, values: Sequence[pa.BinaryArray]
    ) -> None:
        """Start each share partition's replay at its newest snapshot, or just after its newest tombstone."""
        rows = np.flatnonzero(is_snapshot & (partition_index != UNREADABLE))
        rows = rows[offsets[rows] >= self._first_offset[partition_index[rows]]]
        if not len(rows):
            return
        ends = np.cumsum([len(chunk) for chunk in values])
        parts = zip(values, ends, np.split(rows, np.searchsorted(rows, ends[:-1])), strict=True)
        candidates = pa.concat_arrays([chunk.take(pa.array(own - end + len(chunk))) for chunk, end, own in parts])
        newest = newest_readable(partition_index[rows], offsets[rows], candidates)
        is_tombstone = candidates.take(pa.array(newest)).is_null().to_numpy(zero_copy_only=False)
        bases = rows[newest]
        self._first_offset[partition_index[bases]] = first_replayed(offsets[bases], is_tombstone)

    def _needed(self) -> list[PendingRecords]:
        return [piece.where(piece.offsets >= self._first_offset[piece.partition_index]) for piece in self._pending]

    def _fold(self) -> None:
        """Apply the buffered records to the states."""
        states = self._states.where(self._states.next_offsets > self._first_offset[self._states.partition_index])
        pending, self._pending = self._needed(), []
        self._states = apply_records(states, pending) if pending else states


def _raw_batches(records: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    """`records` in the columns and types of ``RAW_RECORDS``; dictionary-encoded keys stay so."""
    table = pa.Table.from_batches([records]) if isinstance(records, pa.RecordBatch) else records
    kinds = dict(zip(RAW_RECORDS.names, RAW_RECORDS.types, strict=True))
    if pa.types.is_dictionary(table.schema.field("key").type):
        kinds["key"] = pa.dictionary(pa.int32(), pa.binary())
    return list(table.select(list(kinds)).cast(pa.schema(kinds)).to_batches(max_chunksize=_ROWS_AT_ONCE))


def _larger(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """`batches`, small ones as one where a copy is cheaper than reading each."""
    rows = sum(batch.num_rows for batch in batches)
    return batches if rows >= len(batches) * _SMALL_ROWS else [pa.concat_batches(batches)]


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
        for start in range(0, len(self), _VALUES_AT_ONCE):
            piece = slice(start, start + _VALUES_AT_ONCE)
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


def apply_records(states: StateColumns, pending: Sequence[PendingRecords]) -> StateColumns:
    """The states after `pending`: records after the `states`, or from a new base on (a snapshot, or an update without
    one). Records that cannot be read are skipped.

    Irregular values of all pieces are decoded together at the end: decoding a few at a time costs more.
    """
    regular_records = [list(piece.read()) for piece in pending]
    regular = [np.concatenate([_NONE, *(mask for _, mask in pieces)]) for pieces in regular_records]
    irregular = PendingRecords.packed([piece.where(~mask) for piece, mask in zip(pending, regular, strict=True)])
    irregular_records, readable = irregular.read_irregular()
    counted = np.concatenate([np.ones(len(states.partition_index), np.bool_), *regular])
    # Row i of the log is row i of the records, except irregular ones: these are appended behind all others.
    rows = np.arange(len(counted))
    places = np.flatnonzero(~counted)
    rows[places] = len(rows) + np.arange(len(places))
    counted[places] = readable
    return states_after(
        partition_index=np.concatenate([states.partition_index, *(piece.partition_index for piece in pending)]),
        offsets=np.concatenate([states.next_offsets - 1, *(piece.offsets for piece in pending)]),
        records=[states.records, *(records for pieces in regular_records for records, _ in pieces), irregular_records],
        rows=rows,
        counted=counted,
    )
