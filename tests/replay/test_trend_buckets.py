"""Intervals of trends: parts added in any grouping give the same rows, and nothing is lost when intervals grow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.replay.time_buckets import DAY_MS, FINE_MS, HOUR_MS, added_buckets, aged, lengthened

TRENDS = TABLES["queue_trends"]
NOW_US = 1_800_000_000_000_000
_COUNTS = st.none() | st.integers(0, 9)


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
    return pa.Table.from_pylist(rows, schema=TRENDS)


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
    rows = [
        {
            **common,
            "unfinished_records": 7,
            "most_unfinished_records": 7,
            "acknowledged": 3,
            "released": 1,
        },
        {
            **common,
            "unfinished_records": None,
            "most_unfinished_records": None,
            "acknowledged": None,
            "released": 2,
        },
    ]
    (row,) = added_buckets(pa.Table.from_pylist(rows, schema=TRENDS)).to_pylist()
    expected = {
        "observations": 2,
        "unfinished_records": None,
        "most_unfinished_records": 7,
        "acknowledged": 3,
        "released": 3,
        "archived": None,
    }
    assert {name: row[name] for name in expected} == expected
