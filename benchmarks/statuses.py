"""The statuses out of full windows; charts of 90 days of 1,000 busy share partitions."""

from __future__ import annotations

import datetime as dt
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from table import Row

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import INSTANT, STATUS_WINDOW, TABLES
from acktrail.history.history_tables import add_parts
from acktrail.model.queue_status import LONGEST
from acktrail.replay.time_buckets import DAY_MS, FINE_MS, HOUR_MS, KEPT_FINE_MS
from acktrail.tables.delta.store import Tables
from acktrail.view import queue_rows
from acktrail_jobs.statuses.status_rules import CONTEXT, judge_windows

_END: Any = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
_TRENDS = TABLES["queue_trends"]


def compare(share_partitions: int = 50_000, groups: int = 100, partitions: int = 10, days: int = 90) -> list[Row]:
    """The table's rows: the judgement, then reads."""
    windows = _windows(share_partitions)
    by_columns = _seconds(lambda: _judge(windows))
    rows = [Row(what=f"statuses of {share_partitions:,} share partitions", ours=f"{by_columns:.2f} s")]
    with tempfile.TemporaryDirectory() as folder:
        tables = Tables(TablesConfig(uri=folder))
        tables.begin()
        _fill(tables, groups, partitions, days)
        asked: dict[str, dict[str, Any]] = {
            "of a group": {},
            "of a share partition": {"topic_id": "t", "partition": 1},
        }
        since = _END - dt.timedelta(days=days)
        for what, named in asked.items():
            taken = _seconds(
                lambda named=named: queue_rows.trend(
                    tables.snapshot("queue_trends"), "group-001", since=since, until=_END, **named
                )
            )
            beside = f"{groups * partitions:,} share partitions"
            rows.append(Row(what=f"chart {what}, {days} days", ours=f"{taken * 1_000:.0f} ms", beside=beside))
    return rows


def _seconds(work: Callable[[], Any], rounds: int = 3) -> float:
    """The least CPU time of some rounds after one that does not count."""
    work()
    taken = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


def _windows(count: int) -> pa.Array:
    chance = np.random.default_rng(1)
    fields = list(STATUS_WINDOW.value_type)
    steps = chance.integers(0, 3, (count, LONGEST, len(fields))).cumsum(axis=1).reshape(-1, len(fields))
    arrays = [pa.array(steps[:, number]).cast(field.type) for number, field in enumerate(fields)]
    flat = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.ListArray.from_arrays(pa.array(np.arange(count + 1) * LONGEST, pa.int32()), flat, type=STATUS_WINDOW)


def _judge(windows: pa.Array) -> pa.Table:
    count = len(windows)
    known = {
        "completeness": pa.repeat("complete", count),
        "members": pa.repeat(pa.scalar(1, pa.int32()), count),
        "first_look_at": pa.repeat(pa.scalar(0, INSTANT), count),
    }
    columns = [known.get(field.name, pa.nulls(count, field.type)) for field in CONTEXT]
    return judge_windows(windows, pa.table(columns, schema=CONTEXT))


def _fill(tables: Tables, groups: int, partitions: int, days: int) -> None:
    """Trends of queues that are all at work, hour by hour, and every five minutes in the last two days."""
    end = int(_END.timestamp() * 1_000)
    fine = end - min(days * DAY_MS, KEPT_FINE_MS)
    parts = []
    for begin in range(end - days * DAY_MS, fine, 2 * DAY_MS):
        hours = range(begin, min(begin + 2 * DAY_MS, fine), HOUR_MS)
        parts.append(_parts(groups, partitions, hours, HOUR_MS))
    parts.append(_parts(groups, partitions, range(fine, end, FINE_MS), FINE_MS))
    add_parts(tables, pa.concat_tables(parts), end * 1_000, "benchmark", end * 1_000)


def _parts(groups: int, partitions: int, begins: range, bucket_ms: int) -> pa.Table:
    count, queues = len(begins), groups * (partitions + 1)
    group, partition = np.divmod(np.repeat(np.arange(queues), count), partitions + 1)
    is_group = partition == partitions
    chance = np.random.default_rng(begins.start % 1_000)
    names, topics = pa.array([f"group-{number:03d}" for number in range(groups)]), pa.array(["t", None])
    known = {
        "group_id": names.take(pa.array(group)),
        "topic_id": topics.take(pa.array(is_group.astype(np.int8))),
        "partition": pa.array(partition.astype(np.int32), mask=is_group),
        "bucket_ms": pa.repeat(pa.scalar(bucket_ms, pa.int64()), queues * count),
        "bucket_at": pa.array(np.tile(np.array(begins) * 1_000, queues)).cast(INSTANT),
        "cluster_id": pa.repeat("c1", queues * count),
        "topic": pa.nulls(queues * count, pa.string()),
    }
    columns = [
        known[field.name] if field.name in known else pa.array(chance.integers(0, 1_000_000, queues * count))
        for field in _TRENDS
    ]
    return pa.table(columns, schema=_TRENDS)
