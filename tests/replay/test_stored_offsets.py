"""Runs of stored offsets, cut into pieces."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from acktrail.replay.stored_offsets import OffsetRuns, stored_offsets

SCHEMA = pa.schema([("state_partition", pa.int32()), ("offset", pa.int64())])


def runs_of(offsets: set[int]) -> OffsetRuns:
    rows = pa.Table.from_pylist([{"state_partition": 0, "offset": offset} for offset in offsets], schema=SCHEMA)
    (found,) = stored_offsets(rows.to_batches(), {}).runs.values()
    return found


@given(st.sets(st.integers(0, 40), min_size=1, max_size=30), st.integers(1, 9))
def test_pieces_hold_every_offset_and_no_more_than_asked(offsets: set[int], quota: int) -> None:
    """Cut piece by piece, each offset lies in one piece, and every piece but the last is full: holes cost none."""
    runs, own = runs_of(offsets), sorted(offsets)
    bound, pieces = own[0], list[list[int]]()
    while bound <= own[-1]:
        end = runs.end_after(bound, quota)
        pieces.append([offset for offset in own if bound <= offset < end])
        bound = end
    assert bound == own[-1] + 1
    assert [offset for piece in pieces for offset in piece] == own
    assert all(len(piece) == quota for piece in pieces[:-1])


def test_holes_between_runs_cost_nothing() -> None:
    """The example in the docstring."""
    assert runs_of({*range(10), *range(90, 100)}).end_after(5, 8) == 93
