"""Records as numpy columns: what decoding produces and replay folds. Here, too: rows of states and of changes of the
history to values of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acktrail.format.columns.binary_column import BoolArray, Int64Array, strides
from acktrail.format.columns.schemas.table_schemas import BATCHES, DELIVERY_HISTORY, HELD_STATES, saved_columns
from acktrail.model.batches import StateBatch
from acktrail.model.offset_changes import (
    LAST_OFFSET,
    Cause,
    KnownState,
    OffsetStatus,
    OffsetStatusKind,
    RecordPosition,
    StatusChange,
)
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import KEY_COLUMNS, GroupId, SharePartition, TopicId

CONTENT_NUMBERS: Final[Mapping[str, type[np.signedinteger]]] = {
    "snapshot_epoch": np.int32,
    "state_epoch": np.int32,
    "leader_epoch": np.int32,
    "start_offset": np.int64,
    "delivery_complete_count": np.int32,
    "create_timestamp_ms": np.int64,
    "write_timestamp_ms": np.int64,
}
"""The numbers in a record's value: column names and types."""
_FIELDS: Final = {field.name: field.type for field in BATCHES.value_type}
_STATE_BITS: Final = 8
_STATE_BIAS: Final = 128
_FEW: Final = 16
_STATE_NUMBERS: Final = tuple(name for name in SharePartitionState.__slots__ if name not in {"key", "batches"})
RECORD_COLUMNS: Final = ("offset", "record_type", *KEY_COLUMNS, *_STATE_NUMBERS, "batches", "decode_status")
"""The columns of a record that change a state, and those that choose records."""
HELD_COLUMNS: Final = saved_columns(HELD_STATES)
CHANGE_COLUMNS: Final = pa.schema([field for field in DELIVERY_HISTORY if field.name not in ("cluster_id", "chunk")])
"""The columns of ``DELIVERY_HISTORY`` that depend only on a change."""
_Row = Mapping[str, Any]
_STATE: Final = "state"
_ROWS_AT_ONCE: Final = 8_192


def _bits(mask: BoolArray) -> pa.Buffer:
    """`mask` as Arrow's validity bitmap: one bit a row, least significant first."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberColumn:
    """Numbers of shape (rows,), null where not `known`; `known` None: no row is null."""

    values: npt.NDArray[Any]
    known: BoolArray | None = None

    def take(self, rows: Int64Array) -> Self:
        return type(self)(values=self.values[rows], known=None if self.known is None else self.known[rows])

    def put(self, rows: Int64Array, numbers: Self) -> None:
        """Set `rows` to `numbers`, in place. Needs a column with a `known` mask."""
        assert self.known is not None
        self.known[rows], self.values[rows] = numbers.mask, numbers.values

    @property
    def mask(self) -> BoolArray:
        """`known` as an array, of shape (rows,)."""
        return np.ones(len(self.values), np.bool_) if self.known is None else self.known

    def to_arrow(self, kind: pa.DataType) -> pa.Array:
        """An Arrow array over the same memory, null where not known."""
        validity = None if self.known is None or self.known.all() else _bits(self.known)
        numbers = np.ascontiguousarray(self.values, kind.to_pandas_dtype())
        return pa.Array.from_buffers(kind, len(numbers), [validity, pa.py_buffer(numbers)])

    @classmethod
    def of_arrow(cls, array: pa.Array) -> Self:
        """The numbers of an Arrow array."""
        if not array.null_count:
            return cls(values=array.to_numpy())
        return cls(values=array.fill_null(0).to_numpy(), known=array.is_valid().to_numpy(zero_copy_only=False))

    @classmethod
    def concat(cls, pieces: Sequence[Self]) -> Self:
        """The pieces end to end."""
        known = None if all(piece.known is None for piece in pieces) else np.concatenate([p.mask for p in pieces])
        return cls(values=np.concatenate([piece.values for piece in pieces]), known=known)


class ArrayColumns:
    """Arrays, which a subclass names."""

    __slots__: tuple[str, ...] = ()

    def take(self, rows: Int64Array | slice) -> Self:
        """What is in `rows`."""
        return type(self)(**{name: getattr(self, name)[rows] for name in self.__slots__})

    @classmethod
    def concat(cls, pieces: Sequence[Self]) -> Self:
        """The pieces end to end."""
        return cls(**{name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in cls.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClippedBatches(ArrayColumns):
    """Batches, each with its segment: arrays of shape (batches,).

    Where two batches of a segment overlap the higher `priority` wins: delivery count first, then delivery state, as in
    ``model.batches``. Both are packed into one int32, so that they compare as one number.
    """

    segment: Int64Array
    first: Int64Array
    last: Int64Array
    priority: npt.NDArray[np.int32]

    @classmethod
    def of(cls, batches: Mapping[str, npt.NDArray[Any]], segment: Int64Array, prune_below: Int64Array) -> Self:
        """Batches (columns by the names of ``BATCHES``) that end at or above `prune_below` (one offset for each batch),
        clipped to begin there or later."""
        count, state = batches["delivery_count"].astype(np.int32), batches["delivery_state"].astype(np.int32)
        return cls(
            segment=segment,
            first=np.maximum(batches["first_offset"].astype(np.int64), prune_below),
            last=batches["last_offset"].astype(np.int64),
            priority=(count << _STATE_BITS) + (state + _STATE_BIAS),
        )

    def __len__(self) -> int:
        return len(self.segment)


def state_and_count(priority: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int16]]:
    """Delivery states and delivery counts out of priorities."""
    state = (priority & (1 << _STATE_BITS) - 1) - _STATE_BIAS
    return state.astype(np.int8), (priority >> _STATE_BITS).astype(np.int16)


def batches_from(last: Int64Array, counts: Int64Array, prune_below: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Which batches reach the `prune_below` of their row, and the row of each.

    `last`, of shape (batches,), are last offsets; ``counts[i]`` of them, end to end, belong to row i. `prune_below` has
    the shape of `counts`, (rows,).
    """
    chosen = np.flatnonzero(last >= np.repeat(prune_below, counts))
    if len(chosen) * _FEW < len(last):  # a search for each of a few is cheaper than the row of every batch
        return chosen, np.searchsorted(np.cumsum(counts), chosen, side="right")
    return chosen, np.repeat(np.arange(len(counts)), counts)[chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchColumns(ArrayColumns):
    """State batches of many rows, end to end: the next ``counts[i]`` belong to row i.

    `counts` has shape (rows,), the other arrays have shape (batches,).
    """

    counts: Int64Array
    first_offset: Int64Array
    last_offset: Int64Array
    delivery_state: npt.NDArray[np.int8]
    delivery_count: npt.NDArray[np.int16]

    def take(self, rows: Int64Array | slice) -> Self:
        """The batches of `rows`, in that order."""
        counts = self.counts[rows]
        places = strides((np.cumsum(self.counts) - self.counts)[rows], counts, 1)
        return type(self)(counts=counts, **{name: getattr(self, name)[places] for name in _FIELDS})

    def clip(self, segment: Int64Array, prune_below: Int64Array) -> ClippedBatches:
        """The batches at or above `prune_below`; both arguments have one number for each row."""
        chosen, rows = batches_from(self.last_offset, self.counts, prune_below)
        fields = {name: getattr(self, name)[chosen] for name in _FIELDS}
        return ClippedBatches.of(fields, segment[rows], prune_below[rows])

    def structures(self, layout: np.dtype[np.void]) -> npt.NDArray[Any]:
        """The batches as structures of `layout`; its other fields are zero."""
        structures = np.zeros(len(self.first_offset), layout)
        for name in _FIELDS:
            structures[name] = getattr(self, name)
        return structures

    @classmethod
    def of_structures(cls, counts: Int64Array, structures: npt.NDArray[Any]) -> Self:
        """The batches in structures with the fields of ``BATCHES``; ``counts[i]`` of them belong to row i."""
        return cls(counts=counts, **{n: structures[n].astype(kind.to_pandas_dtype()) for n, kind in _FIELDS.items()})

    def to_arrow(self, known: BoolArray | None = None) -> pa.ListArray:
        """``BATCHES`` over the same memory; rows that are not `known` (they have no batches) are null."""
        bounds = np.zeros(len(self.counts) + 1, np.int32)
        np.cumsum(self.counts, out=bounds[1:])
        children = [NumberColumn(values=getattr(self, name)).to_arrow(kind) for name, kind in _FIELDS.items()]
        structures = pa.StructArray.from_arrays(children, fields=list(BATCHES.value_type))
        validity = None if known is None or known.all() else _bits(known)
        return pa.ListArray.from_buffers(
            BATCHES, len(self.counts), [validity, pa.py_buffer(bounds)], children=[structures]
        )

    @classmethod
    def of_arrow(cls, lists: pa.ListArray) -> Self:
        """The batches of an Arrow array of ``BATCHES``; null is an empty list."""
        structures = lists.flatten()
        numbers = {name: structures.field(name).to_numpy() for name in _FIELDS}
        counts = lists.value_lengths().fill_null(0).to_numpy().astype(np.int64)
        return cls(counts=counts, **numbers)

    @classmethod
    def of_batches(cls, rows: Sequence[Sequence[StateBatch]]) -> Self:
        """The batches of the model."""
        numbers = {
            name: np.array([getattr(batch, name) for row in rows for batch in row], kind.to_pandas_dtype())
            for name, kind in _FIELDS.items()
        }
        return cls(counts=np.array([len(row) for row in rows], np.int64), **numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """One record, or one state, a row: the numbers of ``STATE_RECORDS`` by column name, and the batches."""

    numbers: Mapping[str, NumberColumn]
    batches: BatchColumns

    def __len__(self) -> int:
        return len(self.batches.counts)

    def take(self, rows: Int64Array) -> RecordColumns:
        """`rows`, in that order."""
        numbers = {name: column.take(rows) for name, column in self.numbers.items()}
        return RecordColumns(numbers=numbers, batches=self.batches.take(rows))

    @classmethod
    def concat(cls, pieces: Sequence[RecordColumns]) -> RecordColumns:
        """The pieces end to end; all have the same columns."""
        numbers = {name: NumberColumn.concat([piece.numbers[name] for piece in pieces]) for name in pieces[0].numbers}
        return cls(numbers=numbers, batches=BatchColumns.concat([piece.batches for piece in pieces]))


def content_columns(rows: pa.RecordBatch, others: Sequence[str] = ()) -> RecordColumns:
    """``CONTENT_NUMBERS``, numbers of `others`, and batches of decoded rows."""
    numbers = {name: NumberColumn.of_arrow(rows.column(name)) for name in (*CONTENT_NUMBERS, *others)}
    return RecordColumns(numbers=numbers, batches=BatchColumns.of_arrow(rows.column("batches")))


def share_partition_of(row: _Row) -> SharePartition:
    """The share partition in the columns `group_id`, `topic_id` and `partition`."""
    return SharePartition(
        group_id=GroupId(row["group_id"]), topic_id=TopicId(row["topic_id"]), partition=row["partition"]
    )


def replayed_state_of(row: _Row) -> SharePartitionState:
    """The state in a row with a share partition and the columns of a replayed state."""
    return SharePartitionState(
        key=share_partition_of(row), batches=_batches(row), **{name: row[name] for name in _STATE_NUMBERS}
    )


def _batches(row: _Row) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(**batch) for batch in row["batches"])


def known_states_of(rows: pa.Table) -> Iterator[tuple[SharePartition, KnownState]]:
    """The known states in rows of ``HELD_STATES``, without the state partition."""
    for row in rows.to_pylist():
        held: KnownState = OffsetStatusKind.UNKNOWN
        if row["held"] == _STATE:
            held = replayed_state_of(row)
        elif row["held"] == OffsetStatusKind.ABSENT.value:
            held = OffsetStatusKind.ABSENT
        yield share_partition_of(row), held


def changes_of(rows: pa.Table) -> Iterator[StatusChange]:
    """The changes in rows of ``DELIVERY_HISTORY``, in order."""
    for batch in rows.select(CHANGE_COLUMNS.names).to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in batch.to_pylist():
            yield StatusChange(
                key=share_partition_of(row),
                first_offset=row["first_offset"],
                last_offset=LAST_OFFSET if row["last_offset"] is None else row["last_offset"],
                before=_status_of(row["before_standing"], row["before_state"], row["before_count"]),
                after=_status_of(row["standing"], row["delivery_state"], row["delivery_count"]),
                at=RecordPosition(
                    state_partition=row["state_partition"],
                    offset=row["record_offset"],
                    timestamp_ms=row["record_timestamp_ms"],
                    cause=Cause(row["cause"]),
                ),
            )


def _status_of(kind: str, state: int | None, count: int | None) -> OffsetStatus:
    return OffsetStatus(kind=OffsetStatusKind(kind), delivery_state=state, delivery_count=count)
