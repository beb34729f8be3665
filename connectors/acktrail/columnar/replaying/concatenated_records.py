"""Several pieces of records as one sequence, without a copy: rows are numbered across the pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.record_columns import BatchColumns, NumberColumn, RecordColumns
from acktrail.columnar.replaying.lazy_batches import LazyBatches, LazyRecords

AnyRecords = RecordColumns | LazyRecords

TakenT = TypeVar("TakenT", NumberColumn, BatchColumns)


class ConcatenatedRecords:
    """The rows of `pieces`, end to end. Only the rows that a method returns are copied."""

    def __init__(self, pieces: Sequence[AnyRecords]) -> None:
        self._pieces = pieces
        self._ends = np.cumsum([len(piece.batches.counts) for piece in pieces])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def column(self, name: str) -> NumberColumn:
        """One number of all rows."""
        return NumberColumn.concat([piece.numbers[name] for piece in self._pieces])

    def batches(self) -> Iterator[tuple[slice, BatchColumns | LazyBatches]]:
        """The batches of each piece, with the range of its rows."""
        for piece, end in zip(self._pieces, self._ends.tolist(), strict=True):
            yield slice(end - len(piece.batches.counts), end), piece.batches

    def numbers_of(self, rows: Int64Array, names: Sequence[str]) -> dict[str, NumberColumn]:
        """Numbers of `rows`, in that order."""
        selection = _Selection(rows, self._ends)
        taken = {name: selection.take([piece.numbers[name].take for piece in self._pieces]) for name in names}
        return {name: NumberColumn.concat(columns).take(selection.order) for name, columns in taken.items()}

    def batches_of(self, rows: Int64Array) -> BatchColumns:
        """The batches of `rows`, in that order."""
        selection = _Selection(rows, self._ends)
        taken = selection.take([piece.batches.take for piece in self._pieces])
        return BatchColumns.concat(taken).take(selection.order)


class _Selection:
    """`rows` split by piece. ``order`` puts the taken rows, piece after piece, back into the order of `rows`."""

    def __init__(self, rows: Int64Array, ends: Int64Array) -> None:
        by_row = np.argsort(rows, kind="stable")
        begins = np.append(0, ends[:-1])
        bounds = np.searchsorted(rows[by_row], begins).tolist()
        spans = zip(bounds, [*bounds[1:], len(rows)], begins.tolist(), strict=True)
        self._rows = [rows[by_row[start:end]] - begin for start, end, begin in spans]
        self.order = np.empty(len(rows), np.int64)
        self.order[by_row] = np.arange(len(rows))

    def take(self, takes: Sequence[Callable[[Int64Array], TakenT]]) -> list[TakenT]:
        """The rows of each piece by its `take` function; pieces without rows are left out, except the last one."""
        last = len(takes) - 1
        return [
            take(rows)
            for piece, (take, rows) in enumerate(zip(takes, self._rows, strict=True))
            if len(rows) or piece == last
        ]
