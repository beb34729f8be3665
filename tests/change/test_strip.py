"""A strip hides nothing: each cell shows the gravest thing among its records."""

from __future__ import annotations

from change.scenes import a_plan, a_request, a_snapshot, logs
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.collection.facts import PartitionFacts
from acktrail.change.request.reset_request import OutOfRange, StrategyKind
from acktrail.cli.change.change_text import CellState, offset_bar
from acktrail.model.batches import DeliveryState

MARKS = {
    0: CellState.RELEASED,
    1: CellState.RELEASED,
    2: CellState.ACKNOWLEDGED,
    3: CellState.ARCHIVING,
    4: CellState.ARCHIVED,
}


def mark(facts: PartitionFacts, offset: int) -> CellState:
    assert facts.state is not None
    for first, last, state, _ in facts.state.batches:
        if first <= offset <= last:
            return MARKS[DeliveryState(state)]
    return CellState.NOT_DELIVERED


@given(logs(), st.integers(1, 50), st.integers(0, 45))
def test_a_cell_shows_the_gravest_of_its_records(facts: PartitionFacts, width: int, number: int) -> None:
    """Cells cover the log in order, of equal size give or take one; start and target are in the right cell."""
    request = a_request(StrategyKind.TO_OFFSET, number=number, out_of_range=OutOfRange.CLAMP)
    (row,) = a_plan(request, a_snapshot(facts)).partitions
    strip = offset_bar(row, width)
    low, high = facts.log_start_offset or 0, facts.log_end_offset or 0
    if low == high:
        assert strip is None
        return
    assert strip is not None
    count = len(strip.cells)
    assert count == min(width, high - low)
    bounds = [low + (high - low) * index // count for index in range(count + 1)]
    for index, cell in enumerate(strip.cells):
        offsets = range(bounds[index], bounds[index + 1])
        start = facts.start_offset
        above = [mark(facts, o) for o in offsets if start is None or o >= start]
        passed = start is not None and offsets[-1] < start
        assert cell == max([*above, CellState.PASSED if passed else CellState.NOT_DELIVERED])
    assert strip.target_cell is not None
    if strip.target_cell < count:
        assert row.target_offset in range(bounds[strip.target_cell], bounds[strip.target_cell + 1])
    else:
        assert row.target_offset == high
