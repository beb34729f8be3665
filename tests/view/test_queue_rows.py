"""What pages read of queues: worst first, only what was asked for, from tables that may be missing."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.replay.time_buckets import DAY_MS, FINE_MS, HOUR_MS
from acktrail.tables.delta.store import Tables
from acktrail.view import queue_rows
from acktrail.view.queue_rows import bucket_for, newest_first, worst_first

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
HOSTILE = "';--<b>\n\u202e"


def _tables(folder: Path) -> Tables:
    return Tables(TablesConfig(uri=str(folder)))


def _row(group: str, status: str, unfinished_records: int | None, partition: int = 0, **more: Any) -> dict[str, Any]:
    own = {"cluster_id": "c1", "topic_id": "t1", "topic": "orders", "partition": partition, "observed_at": NOW}
    return {
        **own,
        "group_id": group,
        "status": status,
        "status_since": NOW,
        "unfinished_records": unfinished_records,
        "acknowledged": 1,
        **more,
    }


def _write(tables: Tables, name: str, rows: list[dict[str, Any]]) -> None:
    tables.append(name, pa.Table.from_pylist(rows, schema=TABLES[name]))


def test_missing_tables_give_no_rows(tmp_path: Path) -> None:
    """Before the first run nothing is there, and nothing fails."""
    tables = _tables(tmp_path)
    assert not queue_rows.run_totals(tables).num_rows
    assert not queue_rows.trend(tables, "g", since=NOW, until=NOW + dt.timedelta(days=1)).num_rows


def test_statuses_come_worst_first(tmp_path: Path) -> None:
    """The worst status first, of one status the highest lag."""
    tables = _tables(tmp_path)
    rows = [
        _row("calm", "ok", 0),
        _row(HOSTILE, "lagging", 5),
        _row(HOSTILE, "stuck", 3, 1, reason="why", members=0),
        _row(HOSTILE, "state_unknown", None, 2),
        _row("late", "lagging", 9),
    ]
    _write(tables, "queue_statuses", rows)
    found = [
        (row["group_id"], row["status"]) for row in worst_first(queue_rows.read(tables, "queue_statuses")).to_pylist()
    ]
    assert found == [
        (HOSTILE, "stuck"),
        ("late", "lagging"),
        (HOSTILE, "lagging"),
        (HOSTILE, "state_unknown"),
        ("calm", "ok"),
    ]


def test_changes_come_newest_first(tmp_path: Path) -> None:
    """Of one time the worst first."""
    tables = _tables(tmp_path)
    rows = [
        {"group_id": group, "changed_at": NOW + dt.timedelta(hours=hour), "after": after}
        for group, hour, after in [("a", 0, "ok"), ("b", 1, "ok"), ("c", 1, "stuck"), ("d", 2, None)]
    ]
    tables.append("status_changes", rows)
    found = newest_first(queue_rows.read(tables, "status_changes"))
    assert found["group_id"].to_pylist() == ["d", "c", "b", "a"]


def test_a_trend_is_of_one_queue_and_begins_with_what_stands(tmp_path: Path) -> None:
    """Parts of an interval become one row in the order of their chunks; the row before the first interval is carried
    to it; a group's rows are its own."""
    tables = _tables(tmp_path)
    common = {"group_id": "g", "bucket_ms": FINE_MS, "observations": 1, "acknowledged": 2}
    own = {**common, "topic_id": "t1", "partition": 0}
    rows = [
        {**own, "chunk": 1, "bucket_at": NOW, "unfinished_records": 4, "most_unfinished_records": 4},
        {
            **own,
            "chunk": 0,
            "bucket_at": NOW - dt.timedelta(hours=3),
            "unfinished_records": 1,
            "most_unfinished_records": 6,
        },
        {**own, "chunk": 0, "bucket_at": NOW, "unfinished_records": 9, "most_unfinished_records": 9},
        {**own, "chunk": 0, "bucket_at": NOW, "partition": 1, "unfinished_records": 100},
        {**common, "chunk": 0, "bucket_at": NOW, "unfinished_records": 50},
    ]
    for chunk in (0, 1):
        own = [row for row in rows if row["chunk"] == chunk]
        tables.replace("queue_trends", pa.Table.from_pylist(own, schema=TABLES["queue_trends"]), chunk=chunk)
    until = NOW + dt.timedelta(hours=1)
    found = queue_rows.trend(tables, "g", "t1", 0, since=NOW - dt.timedelta(hours=1), until=until).to_pylist()
    shown = [
        (
            row["bucket_at"],
            row["observations"],
            row["unfinished_records"],
            row["most_unfinished_records"],
            row["acknowledged"],
        )
        for row in found
    ]
    assert shown == [(NOW - dt.timedelta(hours=1), 0, 1, 1, 0), (NOW, 2, 4, 9, 4)]
    assert queue_rows.trend(tables, "g", since=NOW, until=until)["unfinished_records"].to_pylist() == [50]
    assert queue_rows.trend(tables, "g'; --", since=NOW, until=until).num_rows == 0


def test_a_chart_has_a_limited_number_of_points() -> None:
    """Two days in quarters of an hour, a week in hours, a year in days."""
    lengths = [bucket_for(dt.timedelta(days=days)) for days in (1, 2, 7, 90, 365, 4_000)]
    assert lengths == [FINE_MS, 3 * FINE_MS, HOUR_MS, 6 * HOUR_MS, DAY_MS, DAY_MS]
