"""Numbers by time: counted offset by offset, no piece twice; nothing is lost when intervals of trends grow. Chunks of
``queue_trends``: few of them, and no row is written often; over months no number is lost while they are joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from definitions.status_history import change_table, changes_of
from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_logs import coordinator_logs

from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.history.history_tables import FULL_ROWS, OF_GROUPS, TRENDS, add_parts, first_rewritten
from acktrail.model.offset_changes import Cause, OffsetStatusKind, StatusChange
from acktrail.model.records import StateRecord
from acktrail.replay.time_buckets import (
    COUNTS,
    DAY_MS,
    FINE_MS,
    HOUR_MS,
    RATE_INPUTS,
    added_buckets,
    aged,
    lengthened,
    partial_rates,
    sum_rates,
)
from acktrail.tables.delta.store import Tables

NOW_US = 1_800_000_000_000_000
_COUNTS = st.none() | st.integers(0, 9)
EVERY_MS = 7


def naive(changes: Iterable[StatusChange]) -> Counter[tuple[object, ...]]:
    """Offset by offset, in plain words."""
    found: Counter[tuple[object, ...]] = Counter()
    for change in changes:
        begin = (change.at.timestamp_ms or 0) // EVERY_MS * EVERY_MS
        for what, times in _counts(change):
            key = (change.key.group_id, change.key.topic_id, change.key.partition, begin, what)
            found[key] += times * (change.last_offset - change.first_offset + 1)
    return Counter({key: number for key, number in found.items() if number})


def _counts(change: StatusChange) -> Iterable[tuple[str, int]]:
    before, after = change.before, change.after
    if after.kind is not OffsetStatusKind.RECORDED:
        is_unfinished = before.kind is OffsetStatusKind.UNRECORDED or before.delivery_state in (0, 3)
        if is_unfinished and after.kind is OffsetStatusKind.BELOW_START and change.is_dated:
            yield "skipped" if change.at.cause is Cause.RESET else "passed_unfinished", 1
        return
    if not change.is_dated:
        yield "undated", 1
        return
    now, then = after.delivery_count or 0, before.delivery_count or 0
    for number in range(then + 1, now + 1):
        yield "deliveries", 1
        yield "redeliveries", int(number > 1)
    if after.delivery_state == 0:
        yield "released", int(now > then)
    elif after.delivery_state != before.delivery_state:
        yield {2: "acknowledged", 3: "archiving", 4: "archived"}[after.delivery_state or 2], 1


def counted(pieces: Iterable[pa.Table]) -> Counter[tuple[object, ...]]:
    rows = sum_rates(pieces).to_pylist()
    keys = [(r["group_id"], r["topic_id"], r["partition"], r["interval_start_ms"]) for r in rows]
    assert len(set(keys)) == len(keys)
    return Counter(
        {(*key, what): row[what] for key, row in zip(keys, rows, strict=True) for what in COUNTS if row[what]}
    )


@given(coordinator_logs(), st.integers(0, 6), st.integers(1, 5))
def test_counts_are_those_of_each_offset(log: list[StateRecord], first: int, pieces: int) -> None:
    """However the rows are cut into pieces; also where the beginning of a log is not known, and before 1970."""
    changes = changes_of(log, first=first)
    rows = change_table(changes).select(list(RATE_INPUTS))
    size = max(1, rows.num_rows // pieces)
    cut = [partial_rates(rows.slice(begin, size), EVERY_MS) for begin in range(0, rows.num_rows, size)]
    assert counted(cut) == naive(changes)


def test_a_count_beyond_int64_is_null() -> None:
    """A record that names every offset there can be, twice over: null, not a number that wrapped around."""
    row = {
        "group_id": "g",
        "topic_id": "t",
        "partition": 0,
        "first_offset": 0,
        "last_offset": 2**63 - 1,
        "before_standing": "unrecorded",
        "standing": "recorded",
        "delivery_state": 2,
        "delivery_count": 3,
        "cause": "update",
        "is_dated": True,
        "record_timestamp_ms": 1,
    }
    rows = pa.Table.from_pylist([row, row], schema=change_table([]).select(list(RATE_INPUTS)).schema)
    (found,) = sum_rates([partial_rates(rows, 1_000)]).to_pylist()
    assert (found["acknowledged"], found["deliveries"], found["archived"]) == (None, None, 0)


@st.composite
def parts(draw: st.DrawFn) -> pa.Table:
    """Rows of few queues in the order of time, as runs write them."""
    instants = sorted(draw(st.lists(st.integers(0, 100 * 24 * 12), max_size=30)))
    rows: list[dict[str, Any]] = []
    for number in instants:
        topic = draw(st.sampled_from([None, "t1", "t2"]))
        rows.append(
            {
                "group_id": draw(st.sampled_from(["a", "b"])),
                "topic_id": topic,
                "partition": None if topic is None else draw(st.integers(0, 1)),
                "bucket_ms": FINE_MS,
                "bucket_at": NOW_US - 100 * DAY_MS * 1_000 + number * FINE_MS * 1_000,
                "observations": 1,
                **{
                    name: draw(_COUNTS)
                    for name in (
                        "unfinished_records",
                        "most_unfinished_records",
                        "acknowledged",
                        "released",
                        "archived",
                    )
                },
            }
        )
    return pa.Table.from_pylist(rows, schema=TABLES[TRENDS])


@given(parts(), st.integers(0, 30))
def test_parts_may_be_added_in_any_grouping(rows: pa.Table, cut: int) -> None:
    """Adding the sums of two pieces gives what adding all of it gives; adding once more changes nothing."""
    whole = added_buckets(rows)
    assert added_buckets(whole).equals(whole)
    pieces = pa.concat_tables([added_buckets(rows.slice(0, cut)), added_buckets(rows.slice(cut))])
    assert added_buckets(pieces).equals(whole)


@given(parts(), st.integers(0, 30))
def test_longer_intervals_are_the_same_however_they_come_about(rows: pa.Table, cut: int) -> None:
    """Rows that age before or after they are added give the same days; each observation is in one of them."""
    days = added_buckets(lengthened(rows, DAY_MS))
    old = added_buckets(aged(rows.slice(0, cut), NOW_US))
    assert added_buckets(lengthened(pa.concat_tables([old, rows.slice(cut)]), DAY_MS)).equals(days)
    assert sum(days["observations"].to_pylist()) == rows.num_rows
    for row in added_buckets(aged(rows, NOW_US)).to_pylist():
        age_us = NOW_US - int(row["bucket_at"].timestamp() * 1_000_000)
        lengths = [FINE_MS, HOUR_MS, DAY_MS]
        limits = [0, 2 * DAY_MS * 1_000 + HOUR_MS * 1_000, 91 * DAY_MS * 1_000]
        assert lengths.index(row["bucket_ms"]) >= max(i for i in range(3) if age_us >= limits[i])


def test_the_last_value_counts_and_what_is_not_known_stays_so() -> None:
    """An interval has the lag of its last observation, known or not; the highest lag that is known; the sums of the
    counts that are known."""
    common = {
        "group_id": "g",
        "bucket_ms": FINE_MS,
        "bucket_at": NOW_US - NOW_US % (FINE_MS * 1_000),
        "observations": 1,
    }
    names = ("unfinished_records", "most_unfinished_records", "acknowledged", "released")
    rows = [{**common, **dict(zip(names, values, strict=True))} for values in ((7, 7, 3, 1), (None, None, None, 2))]
    (row,) = added_buckets(pa.Table.from_pylist(rows, schema=TABLES[TRENDS])).to_pylist()
    expected = {
        "observations": 2,
        "unfinished_records": None,
        "most_unfinished_records": 7,
        "acknowledged": 3,
        "released": 3,
        "archived": None,
    }
    assert {name: row[name] for name in expected} == expected


MINUTE_US = 60_000_000
BEGIN_US = NOW_US // (DAY_MS * 1_000) * DAY_MS * 1_000
RUNS = [BEGIN_US + day * DAY_MS * 1_000 + minutes * MINUTE_US for day in range(0, 100, 9) for minutes in (7, 8, 50)]


def parts_of(run: int, number: int) -> pa.Table:
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
    monkeypatch.setattr("acktrail.history.history_tables._WORTH_ROWS", 1)
    tables = Tables(TablesConfig(uri=str(tmp_path)))
    tables.begin()
    every = [parts_of(run, number) for number, run in enumerate(RUNS)]
    for run, own in zip(RUNS, every, strict=True):
        add_parts(tables, own, run, "step", run)
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
    tables.begin()
    first, second = RUNS[:2]
    for run in (first, second, first, second):
        add_parts(tables, parts_of(run, 1), run, "step", run)
    assert pc.sum(stored(tables)["observations"]).as_py() == 6
    third = RUNS[3]
    rows = parts_of(third, 2)
    add_parts(tables, rows, third, "other", third)
    assert pc.sum(stored(tables)["observations"]).as_py() == 9
    assert tables.transaction_version(TRENDS, "other/groups") == third


def test_two_writers_do_not_add_one_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that read the numbers before the other committed is refused."""
    tables = Tables(TablesConfig(uri=str(tmp_path)))
    tables.begin()
    add_parts(tables, parts_of(RUNS[0], 1), RUNS[0], "step", RUNS[0])
    original = Tables.transaction_version

    def stale(self: Tables, name: str, app_id: str) -> int | None:
        number = original(self, name, app_id)
        with monkeypatch.context() as patch:
            patch.setattr(Tables, "transaction_version", original)
            add_parts(Tables(self.config), parts_of(RUNS[1], 2), RUNS[1], "step", RUNS[1])
        return number

    monkeypatch.setattr(Tables, "transaction_version", stale)
    with pytest.raises(ConcurrentCommit):
        add_parts(tables, parts_of(RUNS[1], 2), RUNS[1], "step", RUNS[1])
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
