"""Chunks: few of them, and no row is written often. ``queue_trends`` over months: no number is lost while chunks are
joined and intervals grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.reconcile.past.history_tables import FULL_ROWS, OF_GROUPS, TRENDS, add_parts, first_rewritten
from acktrail.replay.time_buckets import DAY_MS, FINE_MS, HOUR_MS, added_buckets, lengthened
from acktrail.tables.delta.store import Tables

MINUTE_US = 60_000_000
BEGIN_US = 1_800_000_000_000_000 // (DAY_MS * 1_000) * DAY_MS * 1_000
RUNS = [BEGIN_US + day * DAY_MS * 1_000 + minutes * MINUTE_US for day in range(0, 100, 9) for minutes in (7, 8, 50)]


def parts(run: int, number: int) -> pa.Table:
    """What a run of two share partitions writes, and of their group."""
    begin = run - run % (FINE_MS * 1_000)
    common: dict[str, Any] = {"group_id": "g", "bucket_ms": FINE_MS, "bucket_at": begin, "observations": 1}
    common |= {"unfinished_records": number, "most_unfinished_records": number, "acknowledged": 1}
    places = (("t", 0), ("t", 1), (None, None))
    rows = [{**common, "topic_id": topic, "partition": partition} for topic, partition in places]
    return pa.Table.from_pylist(rows, schema=TABLES[TRENDS])


def stored(tables: Tables) -> pa.Table:
    rows = tables.read(TRENDS)
    return rows.take(pc.sort_indices(rows["chunk"]))


@pytest.mark.full
def test_months_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By day, the table has what all parts of all runs add up to; old rows have long intervals, and files are few."""
    monkeypatch.setattr("acktrail.reconcile.past.history_tables._WORTH_ROWS", 1)
    tables = Tables(TablesConfig(uri=str(tmp_path)))
    every = [parts(run, number) for number, run in enumerate(RUNS)]
    for run, own in zip(RUNS, every, strict=True):
        add_parts(tables, own, run, "step")
    rows = stored(tables)
    expected = added_buckets(lengthened(pa.concat_tables(every), DAY_MS))
    assert added_buckets(lengthened(rows, DAY_MS)).equals(expected)
    assert pc.sum(rows["observations"]).as_py() == 3 * len(RUNS)
    for row in rows.to_pylist():
        age_ms = (RUNS[-1] - int(row["bucket_at"].timestamp() * 1_000_000)) // 1_000
        assert row["bucket_ms"] >= (HOUR_MS if age_ms > 9 * DAY_MS else FINE_MS), row
        assert (row["chunk"] >= OF_GROUPS) == (row["partition"] is None)
    snapshot = tables.snapshot(TRENDS)
    assert snapshot is not None
    assert len(snapshot.files()) < 30


def test_a_run_is_added_once(tmp_path: Path) -> None:
    """The same run again, or an older one, adds nothing; where only the share partitions' rows landed, those of groups
    follow."""
    tables = Tables(TablesConfig(uri=str(tmp_path)))
    first, second = RUNS[:2]
    for run in (first, second, first, second):
        add_parts(tables, parts(run, 1), run, "step")
    assert pc.sum(stored(tables)["observations"]).as_py() == 6
    third = RUNS[3]
    rows = parts(third, 2)
    add_parts(tables, rows, third, "other")
    assert pc.sum(stored(tables)["observations"]).as_py() == 9
    snapshot = tables.snapshot(TRENDS)
    assert snapshot is not None
    assert snapshot.transaction_version("other/groups") == third


def test_two_writers_do_not_add_one_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that read the numbers before the other committed is refused."""
    tables = Tables(TablesConfig(uri=str(tmp_path)))
    add_parts(tables, parts(RUNS[0], 1), RUNS[0], "step")
    original = Tables.transaction_version

    def stale(self: Tables, name: str, app_id: str) -> int | None:
        number = original(self, name, app_id)
        with monkeypatch.context() as patch:
            patch.setattr(Tables, "transaction_version", original)
            add_parts(Tables(self.config), parts(RUNS[1], 2), RUNS[1], "step")
        return number

    monkeypatch.setattr(Tables, "transaction_version", stale)
    with pytest.raises(ConcurrentCommit):
        add_parts(tables, parts(RUNS[1], 2), RUNS[1], "step")
    assert pc.sum(stored(tables)["observations"]).as_py() == 6


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
