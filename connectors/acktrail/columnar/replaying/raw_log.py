"""Replay of a whole state topic: raw records in, the latest state of every share partition out, policy ``broker``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acktrail.columnar.binary_column import BoolArray, Int64Array
from acktrail.columnar.replaying.apply_records import apply_records
from acktrail.columnar.replaying.key_index import UNREADABLE, SharePartitionIndex
from acktrail.columnar.replaying.newest_bases import newest_readable
from acktrail.columnar.replaying.pending_records import PendingRecords
from acktrail.columnar.replaying.state_columns import StateColumns
from acktrail.columnar.schemas.table_schemas import RAW_RECORDS
from acktrail.errors import InputError

__all__ = ["RawLogReplay"]

_ROWS_AT_ONCE: Final = 1 << 20
"""Rows whose keys are numbered together: enough that distinct keys are few among them."""

_SMALL_ROWS: Final = 1 << 14
_HELD_BYTES: Final = 1 << 28
_LOWEST: Final = np.iinfo(np.int64).min


class RawLogReplay:
    """The latest states after all records added so far: what ``acktrail.model.replay`` gives for each state partition.

    A share partition's newest readable snapshot or tombstone is found by key type and offset; of the records before it
    not one value is decoded. A record that cannot be read is passed over, one that is there twice counts once. Values
    of about `held_bytes` are kept as they came; when half of that is still needed, it is folded into states and let
    go. Until then records may come in any order; from then on in that of each state partition's log.

    `base`: states (``REPLAYED_STATES``) to go on from. Records at or below a state's last one are in it already and
    are passed over.
    """

    def __init__(self, base: pa.Table | None = None, *, held_bytes: int = _HELD_BYTES) -> None:
        self._held_bytes = held_bytes
        self._keys = SharePartitionIndex()
        self._states = StateColumns.none() if base is None else StateColumns.of_arrow(base, self._keys)
        self._floors = np.full(len(self._keys), _LOWEST)  # of each share partition, the lowest offset still needed
        self._floors[self._states.owners] = self._states.floors
        self._superseded = np.zeros(len(self._keys), np.bool_)  # of each, whether a base came after its state
        self._folded = self._floors[:0]  # of each, the offset below which records have come too late
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._held: list[PendingRecords] = []

    def add(self, records: pa.Table | pa.RecordBatch) -> None:
        """Take in records: the columns of ``RAW_RECORDS``; keys may be dictionary-encoded.

        Raises:
            InputError: records of a share partition come after later ones of it were folded.
        """
        for batch in _raw_batches(records):
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            self._waiting_bytes += batch.nbytes
            if self._waiting_rows >= _ROWS_AT_ONCE or self._waiting_bytes > self._held_bytes // 2:
                self.index_waiting()

    def finish(self) -> pa.Table:
        """The states (``REPLAYED_STATES``): one row for each share partition and state partition, in the order in which
        they were met. More records may be added afterwards."""
        self.flush()
        return self._states.to_arrow(self._keys)

    def flush(self) -> None:
        """Fold what is held into states and let go of it."""
        self.index_waiting()
        self._fold()

    def index_waiting(self) -> None:
        """Number the keys of what waits, find the newest bases, hold what lies at or above them."""
        batches, self._waiting = _alike(self._waiting), []
        self._waiting_rows = self._waiting_bytes = 0
        if not batches:
            return
        keys = self._keys.number(pa.chunked_array([b.column("key") for b in batches]), _numbers(batches, "partition"))
        owners, offsets = keys.owners, _numbers(batches, "offset")
        self._floors = _grown(self._floors, len(self._keys))
        self._superseded = np.append(self._superseded, np.zeros(len(self._keys) - len(self._superseded), np.bool_))
        self._refuse_late(owners, offsets)
        self._raise_floors(owners, offsets, keys.is_snapshot, [batch.column("value") for batch in batches])
        needed = (owners != UNREADABLE) & (offsets >= np.append(self._floors, _LOWEST)[owners])
        end = 0
        for batch in batches:
            start, end = end, end + batch.num_rows
            rows = np.flatnonzero(needed[start:end])
            self._held.append(
                PendingRecords(
                    owners=owners[start:end][rows],
                    offsets=offsets[start:end][rows],
                    is_snapshot=keys.is_snapshot[start:end][rows],
                    rows=rows,
                    values=batch.column("value"),
                    timestamps=batch.column("timestamp"),
                )
            )
        if _bytes(self._held) > self._held_bytes:
            needed = self._needed()
            if sum(piece.needed_bytes for piece in needed) > self._held_bytes // 2:
                self._fold()
            else:
                self._held = [PendingRecords.packed(needed)]

    def _refuse_late(self, owners: Int64Array, offsets: Int64Array) -> None:
        if not len(self._folded):
            return
        self._folded = _grown(self._folded, len(self._keys))
        late = np.flatnonzero(offsets < np.append(self._folded, _LOWEST)[owners])
        if len(late):
            offset, reached = int(offsets[late[0]]), int(self._folded[owners[late[0]]])
            raise InputError(
                f"the record at offset {offset} comes after later ones of its share partition were folded",
                hint="add the records of a state partition in the order of its log",
                data={"offset": offset, "expected": reached},
            )

    def _raise_floors(
        self, owners: Int64Array, offsets: Int64Array, is_snapshot: BoolArray, values: Sequence[pa.BinaryArray]
    ) -> None:
        """Let each share partition's replay begin at its newest snapshot, or just after its newest tombstone."""
        rows = np.flatnonzero(is_snapshot & (owners != UNREADABLE))
        rows = rows[offsets[rows] >= self._floors[owners[rows]]]
        if not len(rows):
            return
        candidates = _taken(values, rows)
        newest = newest_readable(owners[rows], offsets[rows], candidates)
        is_tombstone = candidates.take(pa.array(newest)).is_null().to_numpy(zero_copy_only=False)
        bases = rows[newest]
        self._floors[owners[bases]] = offsets[bases] + is_tombstone
        self._superseded[owners[bases]] = True

    def _needed(self) -> list[PendingRecords]:
        return [piece.where(piece.offsets >= self._floors[piece.owners]) for piece in self._held]

    def _fold(self) -> None:
        """Make new states of the old ones and of what is held."""
        states = self._states.where(~self._superseded[self._states.owners])
        self._superseded[:] = False
        if self._held:
            held, self._held = self._needed(), []
            states = apply_records(states, held)
            self._folded = np.full(len(self._keys), _LOWEST)
            self._folded[states.owners] = states.floors
        self._states = states


def _raw_batches(records: pa.Table | pa.RecordBatch) -> list[pa.RecordBatch]:
    """`records` in the columns and types of ``RAW_RECORDS``, save that dictionaries of keys stay such."""
    table = pa.Table.from_batches([records]) if isinstance(records, pa.RecordBatch) else records
    kinds = dict(zip(RAW_RECORDS.names, RAW_RECORDS.types, strict=True))
    if pa.types.is_dictionary(table.schema.field("key").type):
        kinds["key"] = pa.dictionary(pa.int32(), pa.binary())
    batches: list[pa.RecordBatch] = (
        table.select(list(kinds)).cast(pa.schema(list(kinds.items()))).to_batches(max_chunksize=_ROWS_AT_ONCE)
    )
    return batches


def _alike(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """`batches` with keys of one type; and as one where they are so small that copying is cheaper than taking each."""
    if len({batch.schema.field("key").type for batch in batches}) > 1:
        batches = [batch.cast(RAW_RECORDS) for batch in batches]
    rows = sum(batch.num_rows for batch in batches)
    return batches if rows >= len(batches) * _SMALL_ROWS else [pa.concat_batches(batches)]


def _numbers(batches: Sequence[pa.RecordBatch], name: str) -> npt.NDArray[Any]:
    return np.concatenate([batch.column(name).to_numpy() for batch in batches])


def _taken(chunks: Sequence[pa.BinaryArray], rows: Int64Array) -> pa.BinaryArray:
    """The values in `rows`, which ascend, of `chunks` laid end to end."""
    ends = np.cumsum([len(chunk) for chunk in chunks])
    parts = np.split(rows, np.searchsorted(rows, ends[:-1]))
    starts = ends - [len(chunk) for chunk in chunks]
    return pa.concat_arrays(
        [chunk.take(pa.array(part - start)) for chunk, part, start in zip(chunks, parts, starts, strict=True)]
    )


def _grown(numbers: Int64Array, count: int) -> Int64Array:
    return np.append(numbers, np.full(count - len(numbers), _LOWEST))


def _bytes(held: Sequence[PendingRecords]) -> int:
    return sum(piece.values.nbytes for piece in held)
