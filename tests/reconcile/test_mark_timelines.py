"""Timelines of marks, offset by offset: cut, divided and joined in any way, they are what the records say in turn.
Intervals on one axis: the cover is pointwise."""

from __future__ import annotations

import itertools
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.model.status_changes import LAST_OFFSET
from acktrail.replay import mark_timelines
from acktrail.replay.combine_batches import cover
from acktrail.replay.mark_timelines import MarkedRanges, timelines

OFFSETS = (*range(14), 2**40, LAST_OFFSET - 1, LAST_OFFSET)


class Range(NamedTuple):
    """A row of ``MarkedRanges``."""

    run: int
    row: int
    first: int
    last: int
    mark: int
    replaces: bool


@st.composite
def runs(draw: st.DrawFn) -> list[Range]:
    """Some runs; of a row only one range replaces others, or it has several that do not."""
    found, row = [], 0
    for run in range(draw(st.integers(1, 4))):
        found.append(Range(run, row, 0, LAST_OFFSET, -9, False))
        for length in draw(st.lists(st.integers(0, 3), max_size=6)):
            row += 1
            replaces = length == 1 and draw(st.booleans())
            for _ in range(length):
                first, last = sorted(draw(st.tuples(st.sampled_from(OFFSETS), st.sampled_from(OFFSETS))))
                found.append(Range(run, row, first, last, draw(st.integers(-9, 3)), replaces))
        row += 1
    return found


@pytest.fixture(params=[None, 1, 2], ids=["at once", "row by row", "two rows at a time"])
def at_a_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs divided as those with many cuts are."""
    if request.param is not None:
        for name, value in (("_MOST_ROWS", 8), ("_LEAST_ROWS", request.param), ("_CUTS_OF_A_RANGE", 0)):
            monkeypatch.setattr(mark_timelines, name, value)
        monkeypatch.setattr(mark_timelines, "_RANGES_AT_ONCE", 4)


@pytest.mark.usefixtures("at_a_time")
def test_every_offset_has_the_marks_of_its_records_in_turn() -> None:
    """Changes are the shortest list, and runs begin and end as the definition does."""

    @given(runs())
    def compare(found: list[Range]) -> None:
        changes, begins, ends = _by_definition(found)
        columns = (np.array(column) for column in zip(*found, strict=True))
        lines = timelines(MarkedRanges(**dict(zip(Range._fields, columns, strict=True))))
        made = lines.changes.take(np.argsort(lines.changes.row, kind="stable")).joined()
        names = ("row", "first", "last", "before", "after")
        rows = list(zip(*(getattr(made, name).tolist() for name in names), strict=True))
        assert {(row, at): marks for row, low, high, *marks in rows for at in OFFSETS if low <= at <= high} == changes
        for one, other in pairwise(rows):
            assert one[0] != other[0] or one[2] + 1 < other[1] or (one[2] < other[1] and one[3:] != other[3:])
        for covers, expected in ((lines.begins, begins), (lines.ends, ends)):
            cells = list(
                zip(*(getattr(covers, name).tolist() for name in ("run", "first", "last", "mark")), strict=True)
            )
            assert {(run, at): m for run, low, high, m in cells for at in OFFSETS if low <= at <= high} == expected
            for one, other in pairwise(cells):
                assert (one[2] == LAST_OFFSET and other[1] == 0) or (one[2] + 1 == other[1] and one[3] != other[3])

    compare()


def _by_definition(
    found: list[Range],
) -> tuple[dict[tuple[int, int], list[int]], dict[tuple[int, int], int], dict[tuple[int, int], int]]:
    """Offset by offset: the changes by row and offset, the marks by run and offset after its first and last row."""
    changes: dict[tuple[int, int], list[int]] = {}
    begins: dict[tuple[int, int], int] = {}
    marks: dict[tuple[int, int], int] = {}
    for (run, row), ranges in groupby(found, key=itemgetter(0, 1)):
        before = {at: marks.get((run, at)) for at in OFFSETS}
        for each in ranges:
            for at in OFFSETS:
                if each.first <= at <= each.last:
                    old = marks.get((run, at), each.mark)
                    marks[run, at] = each.mark if each.replaces else max(old, each.mark)
        for at, old in before.items():
            if old is None:
                begins[run, at] = marks[run, at]
            elif old != marks[run, at]:
                changes[row, at] = [old, marks[run, at]]
    return changes, begins, marks


def test_no_range_has_no_timeline() -> None:
    """Nothing in, nothing out."""
    nothing = np.empty(0, np.int64)
    assert not len(timelines(MarkedRanges.of(nothing, 0, 0, 0)).changes.row)


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.integers(-5, 5)).map(lambda t: (t[0], t[0] + t[1], t[2])),
    max_size=25,
)


@given(intervals, st.sampled_from([0, 2**61]))
def test_every_point_has_the_highest_priority(found: list[tuple[int, int, int]], shift: int) -> None:
    """Disjoint, ascending, as few as can be, and at each point the greatest priority of those that cover it."""
    first, last, priority = (np.array([t[i] for t in found], np.int64) for i in range(3))
    covers = list(
        zip(*(a.tolist() for a in cover(first + shift, last + shift, priority.astype(np.int32))), strict=True)
    )
    told = {p - shift: priority for begin, end, priority in covers for p in range(begin, end + 1)}
    assert told == {
        p: max(rank for begin, end, rank in found if begin <= p <= end)
        for p in range(100)
        if any(begin <= p <= end for begin, end, _ in found)
    }
    for (_, end, rank), (begin, _, next_rank) in itertools.pairwise(covers):
        assert begin > end
        assert begin > end + 1 or rank != next_rank
