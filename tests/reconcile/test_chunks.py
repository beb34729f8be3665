"""Chunks: few of them, and no row is written often."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from acktrail.reconcile.past.history_tables import FULL_ROWS, first_rewritten

TIERS = 7


def written(arrivals: list[int]) -> tuple[list[list[int]], list[int]]:
    """Chunks as lists of arrivals, and how often each arrival was written."""
    chunks: list[list[int]] = []
    times = [0] * len(arrivals)
    for number, rows in enumerate(arrivals):
        first = first_rewritten([sum(arrivals[n] for n in chunk) for chunk in chunks], rows)
        chunks[first:] = [[n for chunk in chunks[first:] for n in chunk] + [number]]
        for each in chunks[-1]:
            times[each] += 1
    return chunks, times


@given(st.integers(1, 20_000), st.integers(1, 400))
def test_rows_that_come_evenly(rows: int, arrivals: int) -> None:
    """However small the arrivals, the chunks stay few, and no row is written more often than there are tiers."""
    chunks, times = written([rows] * arrivals)
    assert len(chunks) <= rows * arrivals / FULL_ROWS + 7 * (TIERS - 1)
    assert max(times) <= TIERS


@given(st.lists(st.one_of(st.integers(0, 50), st.integers(0, 3 * FULL_ROWS)), max_size=200))
def test_rows_that_come_as_they_like(arrivals: list[int]) -> None:
    """Nothing is lost or doubled, order is kept, a full chunk is never written again, small ones are few in a row."""
    chunks, times = written(arrivals)
    assert [n for chunk in chunks for n in chunk] == list(range(len(arrivals)))
    assert all(time == 1 for time, rows in zip(times, arrivals, strict=True) if rows >= FULL_ROWS)
    assert max(times, default=0) <= TIERS + 1
    sizes = [sum(arrivals[n] for n in chunk) for chunk in chunks]
    for begin in range(len(sizes) - 8):
        window = sizes[begin : begin + 8]
        assert len({_tier(size) for size in window}) > 1 or min(window) >= FULL_ROWS


def _tier(rows: int) -> int:
    return 0 if rows < 8 else 1 + _tier(rows // 8)


def test_a_backlog_is_left_alone() -> None:
    """A great chunk that came at once is not rewritten for a small one, and small ones behind it find together."""
    assert first_rewritten([FULL_ROWS * 5], 10) == 1
    assert first_rewritten([FULL_ROWS * 5, *[10] * 7], 10) == 1
    assert first_rewritten([FULL_ROWS * 5, *[10] * 6], 10) == 7
    assert first_rewritten([], 10) == 0
