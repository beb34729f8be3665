"""Records in several parts, end to end, as one: their rows are numbered through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from acktrail.columnar.binary_column import Int64Array
from acktrail.columnar.record_columns import BatchColumns, NumberColumn, RecordColumns
from acktrail.columnar.replaying.lazy_batches import LazyBatches, LazyRecords

__all__ = ["AnyRecords", "ConcatenatedRecords"]

AnyRecords = RecordColumns | LazyRecords

TakenT = TypeVar("TakenT", NumberColumn, BatchColumns)


class ConcatenatedRecords:
    """The rows of `parts`."""

    def __init__(self, parts: Sequence[AnyRecords]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part.batches.counts) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def column(self, name: str) -> NumberColumn:
        """A number of all rows."""
        return NumberColumn.concat([part.numbers[name] for part in self._parts])

    def batches(self) -> Iterator[tuple[slice, BatchColumns | LazyBatches]]:
        """The batches of each part, with its rows."""
        for part, end in zip(self._parts, self._ends.tolist(), strict=True):
            yield slice(end - len(part.batches.counts), end), part.batches

    def numbers_of(self, rows: Int64Array, names: Sequence[str]) -> dict[str, NumberColumn]:
        """Numbers of `rows`, in that order."""
        taking = _Taking(rows, self._ends)
        pieces = {name: taking.apply([part.numbers[name].take for part in self._parts]) for name in names}
        return {name: NumberColumn.concat(taken).take(taking.back) for name, taken in pieces.items()}

    def batches_of(self, rows: Int64Array) -> BatchColumns:
        """The batches of `rows`, in that order."""
        taking = _Taking(rows, self._ends)
        return BatchColumns.concat(taking.apply([part.batches.take for part in self._parts])).take(taking.back)


class _Taking:
    """Rows told apart by part; `back` is where each of them comes to lie."""

    def __init__(self, rows: Int64Array, ends: Int64Array) -> None:
        order = np.argsort(rows, kind="stable")
        begins = np.append(0, ends[:-1])
        bounds = np.searchsorted(rows[order], begins).tolist()
        spans = zip(bounds, [*bounds[1:], len(rows)], begins.tolist(), strict=True)
        self._own = [rows[order[start:end]] - begin for start, end, begin in spans]
        self.back = np.empty(len(rows), np.int64)
        self.back[order] = np.arange(len(rows))

    def apply(self, takes: Sequence[Callable[[Int64Array], TakenT]]) -> list[TakenT]:
        """What each part's function gives for its own rows; parts without any are left out, save the last."""
        last = len(takes) - 1
        return [
            take(own) for part, (take, own) in enumerate(zip(takes, self._own, strict=True)) if len(own) or part == last
        ]
