"""Records as numpy columns: what decoding produces and replay folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from acktrail.columnar.binary_column import BoolArray, Int64Array, strides
from acktrail.columnar.replaying.clipped_batches import ClippedBatches, batches_from
from acktrail.columnar.schemas.table_schemas import BATCHES
from acktrail.model.delivery import StateBatch

CONTENT_NUMBERS: Final = MappingProxyType(
    {
        "snapshot_epoch": np.int32,
        "state_epoch": np.int32,
        "leader_epoch": np.int32,
        "start_offset": np.int64,
        "delivery_complete_count": np.int32,
        "create_timestamp_ms": np.int64,
        "write_timestamp_ms": np.int64,
    }
)
"""The numbers in a record's value: column names and types."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchColumns:
    """State batches of many rows, end to end: the next ``counts[i]`` belong to row i.

    `counts` has shape (rows,), the other arrays have shape (batches,).
    """

    counts: Int64Array
    first_offset: Int64Array
    last_offset: Int64Array
    delivery_state: npt.NDArray[np.int8]
    delivery_count: npt.NDArray[np.int16]

    def take(self, rows: Int64Array) -> BatchColumns:
        """The batches of `rows`, in that order."""
        counts = self.counts[rows]
        first = (np.cumsum(self.counts) - self.counts)[rows]
        places = strides(first, counts, 1)
        return BatchColumns(
            counts=counts,
            first_offset=self.first_offset[places],
            last_offset=self.last_offset[places],
            delivery_state=self.delivery_state[places],
            delivery_count=self.delivery_count[places],
        )

    def clip(self, segment: Int64Array, prune_below: Int64Array) -> ClippedBatches:
        """The batches at or above `prune_below`; both arguments have one number for each row."""
        chosen, rows = batches_from(self.last_offset, self.counts, prune_below)
        fields = {field.name: getattr(self, field.name)[chosen] for field in BATCHES.value_type}
        return ClippedBatches.of(fields, segment[rows], prune_below[rows])

    def structures(self, layout: np.dtype[np.void]) -> npt.NDArray[Any]:
        """The batches as structures of `layout`; its other fields are zero."""
        structures = np.zeros(len(self.first_offset), layout)
        for field in BATCHES.value_type:
            structures[field.name] = getattr(self, field.name)
        return structures

    def to_arrow(self, known: BoolArray | None = None) -> pa.ListArray:
        """``BATCHES`` over the same memory; rows that are not `known` (they have no batches) are null."""
        bounds = np.zeros(len(self.counts) + 1, np.int32)
        np.cumsum(self.counts, out=bounds[1:])
        fields = list(BATCHES.value_type)
        children = [NumberColumn(values=getattr(self, field.name)).to_arrow(field.type) for field in fields]
        structures = pa.StructArray.from_arrays(children, fields=fields)
        validity = None if known is None or known.all() else _bits(known)
        return pa.ListArray.from_buffers(
            BATCHES, len(self.counts), [validity, pa.py_buffer(bounds)], children=[structures]
        )

    @classmethod
    def of_arrow(cls, lists: pa.ListArray) -> Self:
        """The batches of an Arrow array of ``BATCHES``; null is an empty list."""
        structures = lists.flatten()
        numbers = {field.name: structures.field(field.name).to_numpy() for field in BATCHES.value_type}
        counts = lists.value_lengths().fill_null(0).to_numpy().astype(np.int64)
        return cls(counts=counts, **numbers)

    @classmethod
    def of_batches(cls, rows: Sequence[Sequence[StateBatch]]) -> Self:
        """The batches of the model."""
        flat = [batch for row in rows for batch in row]
        return cls(
            counts=np.array([len(row) for row in rows], np.int64),
            first_offset=np.array([batch.first_offset for batch in flat], np.int64),
            last_offset=np.array([batch.last_offset for batch in flat], np.int64),
            delivery_state=np.array([batch.delivery_state for batch in flat], np.int8),
            delivery_count=np.array([batch.delivery_count for batch in flat], np.int16),
        )

    @classmethod
    def concat(cls, pieces: Sequence[BatchColumns]) -> BatchColumns:
        """The pieces end to end."""
        return cls(**{name: np.concatenate([getattr(piece, name) for piece in pieces]) for name in cls.__slots__})


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


def content_columns(rows: pa.RecordBatch | pa.Table) -> RecordColumns:
    """``CONTENT_NUMBERS`` and batches of decoded rows."""
    numbers = {name: NumberColumn.of_arrow(rows.column(name)) for name in CONTENT_NUMBERS}
    return RecordColumns(numbers=numbers, batches=BatchColumns.of_arrow(rows.column("batches")))
