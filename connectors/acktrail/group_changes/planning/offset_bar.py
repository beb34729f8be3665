"""A share partition as a strip of cells, from the log's start to its end: what became of its records. Pure."""

from __future__ import annotations

from bisect import bisect_right
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


_MARKS: Final[dict[int, CellState]] = {
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
    recorded = row.recorded_start
    cells = [
        CellState.PASSED if recorded is not None and last <= recorded else CellState.NOT_DELIVERED
        for last in bounds[1:]
    ]
    for begin, until, state, _ in row.state.batches if row.state is not None else ():
        first, last = max(begin, recorded or begin, start), min(until, end - 1)
        for index in range(_cell_of(first, bounds), _cell_of(last, bounds) + 1) if first <= last else ():
            cells[index] = max(cells[index], _MARKS.get(state, CellState.RELEASED))
    return OffsetBar(
        first=start,
        last=end - 1,
        cells=tuple(cells),
        start_cell=None if recorded is None else _cell_of(recorded, bounds),
        target_cell=None if row.target_offset is None else _cell_of(row.target_offset, bounds),
    )


def _cell_of(offset: int, bounds: list[int]) -> int:
    """The cell that holds `offset`, the first for what is below, one past the last for what is at the end or beyond."""
    return max(0, bisect_right(bounds, offset) - 1)
