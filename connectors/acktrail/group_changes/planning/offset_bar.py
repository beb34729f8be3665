"""A share partition as a strip of cells, from the log's start to its end: what became of its records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from acktrail.group_changes.planning.plan import PartitionPlan
from acktrail.model.delivery import DeliveryState


class CellState(IntEnum):
    """What a cell shows; where it stands for several records, the highest of theirs, so that none is hidden."""

    NOT_DELIVERED = 0
    """At or above the start offset, without any trace in the state."""
    PASSED = 1
    """Below the start offset: done with."""
    ACKNOWLEDGED = 2
    RELEASED = 3
    """Delivered and given back, or timed out: in flight."""
    ARCHIVING = 4
    ARCHIVED = 5


_MARKS: Final[Mapping[int, CellState]] = {
    DeliveryState.AVAILABLE: CellState.RELEASED,
    DeliveryState.ACQUIRED: CellState.RELEASED,
    DeliveryState.ACKNOWLEDGED: CellState.ACKNOWLEDGED,
    DeliveryState.ARCHIVING: CellState.ARCHIVING,
    DeliveryState.ARCHIVED: CellState.ARCHIVED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetBar:
    """`cells` cover offsets `first` to `last` (inclusive), in equal parts, give or take one.

    `start_cell` and `target_cell` are the cells that hold the present and the new start offset; one past the last cell:
    the log's end; None: there is none.
    """

    first: int
    last: int
    cells: tuple[CellState, ...]
    start_cell: int | None
    target_cell: int | None


def offset_bar(row: PartitionPlan, width: int) -> OffsetBar | None:
    """The strip of a share partition in at most `width` cells; None: its log is empty or not known."""
    start, end = row.log_start_offset, row.log_end_offset
    if start is None or end is None or end <= start:
        return None
    count = min(width, end - start)
    bounds = [start + (end - start) * index // count for index in range(count + 1)]
    recorded = row.state.start_offset if row.state is not None else row.start_offset
    cells = [
        CellState.PASSED if recorded is not None and last <= recorded else CellState.NOT_DELIVERED
        for last in bounds[1:]
    ]
    for first, last, state, _ in row.state.batches if row.state is not None else ():
        _paint(cells, bounds, max(first, recorded or first), last, _MARKS.get(state, CellState.RELEASED))
    return OffsetBar(
        first=start,
        last=end - 1,
        cells=tuple(cells),
        start_cell=_cell_of(recorded, bounds),
        target_cell=_cell_of(row.target_offset, bounds),
    )


def _paint(cells: list[CellState], bounds: list[int], first: int, last: int, mark: CellState) -> None:
    """Raise every cell that holds one of the offsets to `mark`."""
    if last < bounds[0] or first >= bounds[-1] or last < first:
        return
    begin = _cell_of(max(first, bounds[0]), bounds) or 0
    end = _cell_of(min(last, bounds[-1] - 1), bounds) or 0
    for index in range(begin, end + 1):
        cells[index] = max(cells[index], mark)


def _cell_of(offset: int | None, bounds: list[int]) -> int | None:
    """The cell that holds `offset`, the first for what is below, one past the last for what is at the end or beyond."""
    if offset is None:
        return None
    count, start, end = len(bounds) - 1, bounds[0], bounds[-1]
    if offset >= end:
        return count
    guess = max(0, offset - start) * count // (end - start)
    while guess + 1 < count and bounds[guess + 1] <= offset:
        guess += 1
    return guess
