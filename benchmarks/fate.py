"""`acktrail record` on a long history: the table's order and statistics must do the work."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from measure import median, run

from acktrail.columnar.changes import CHANGE_COLUMNS
from acktrail.columnar.held import HELD_COLUMNS
from acktrail.config import TablesConfig
from acktrail.tables.history import HistoryTables, Holding
from acktrail.tables.store import Tables

SHARE_PARTITIONS = 5_000
CHANGES_OF_A_STEP = 250_000

Array = npt.NDArray[Any]


def compare(changes: int = 10_000_000, rounds: int = 5) -> list[tuple[str, str]]:
    """Rows of (what, figure)."""
    acktrail = str(Path(sys.executable).with_name("acktrail"))
    with tempfile.TemporaryDirectory() as folder:
        asked = _build(Tables(TablesConfig(uri=folder)), changes)
        runs = [run([acktrail, "record", *asked, "--tables", folder]) for _ in range(1 + rounds)][1:]
        files = len(list(Path(folder, "delivery_history").rglob("*.parquet")))
    found = median(runs)
    return [
        ("changes in the history", f"{changes:,} of {SHARE_PARTITIONS:,} share partitions"),
        ("files ever written", f"{files:,}"),
        ("acktrail record", f"{found.wall_s:.2f} s wall, {found.cpu_s:.2f} s CPU"),
    ]


def _build(tables: Tables, changes: int) -> tuple[str, ...]:
    """A history as so many steps of the job leave it; a record in the middle of it."""
    history, source = HistoryTables(tables, "benchmark"), np.random.default_rng(7)
    names = _names(source)
    ends = np.zeros(SHARE_PARTITIONS, np.int64)
    for begin in range(0, changes, CHANGES_OF_A_STEP):
        rows = _changes(source, names, ends, begin)
        history.add(rows, {0: begin}, {0: begin + rows.num_rows})
    step = history.holding().step
    history.hold(Holding(rows=HELD_COLUMNS.empty_table(), positions={0: changes}, step=step))
    middle = names.slice(SHARE_PARTITIONS // 2, 1).to_pylist()[0]
    return (middle["group_id"], middle["topic_id"], str(middle["partition"]), str(ends[SHARE_PARTITIONS // 2] // 2))


def _names(source: np.random.Generator) -> pa.Table:
    groups, topics = source.integers(0, 97, SHARE_PARTITIONS), source.integers(0, 200, SHARE_PARTITIONS)
    return pa.table(
        {
            "group_id": [f"group-{number:02d}" for number in groups],
            "topic_id": [f"{number:022d}" for number in topics],
            "partition": pa.array(np.arange(SHARE_PARTITIONS) // 100, pa.int32()),
        }
    )


def _changes(source: np.random.Generator, names: pa.Table, ends: Array, begin: int) -> pa.Table:
    """Changes of ranges one after the other in each share partition, which move `ends` on."""
    count = CHANGES_OF_A_STEP
    owners, lengths = np.sort(source.integers(0, SHARE_PARTITIONS, count)), source.integers(1, 30, count)
    reached = np.cumsum(lengths)
    heads = np.flatnonzero(np.diff(owners, prepend=-1))
    before = np.repeat((reached - lengths)[heads], np.diff(np.append(heads, count)))
    last = ends[owners] + reached - before - 1
    ends[owners] = last + 1
    records = begin + source.permutation(count)
    told = {
        **{name: names[name].take(pa.array(owners)) for name in names.column_names},
        "first_offset": pa.array(last - lengths + 1),
        "last_offset": pa.array(last),
        "before_standing": pa.repeat("unrecorded", count),
        "standing": pa.repeat("recorded", count),
        "delivery_state": pa.array(source.choice([2, 2, 2, 0, 4], count), pa.int8()),
        "delivery_count": pa.array(source.integers(1, 6, count), pa.int16()),
        "cause": pa.repeat("update", count),
        "is_dated": pa.array(np.ones(count, np.bool_)),
        "state_partition": pa.repeat(pa.scalar(0, pa.int32()), count),
        "record_offset": pa.array(records),
        "record_timestamp_ms": pa.array(1_790_000_000_000 + records // 20),
    }
    columns = [told.get(field.name, pa.nulls(count, field.type)) for field in CHANGE_COLUMNS]
    return pa.table(columns, names=CHANGE_COLUMNS.names).cast(CHANGE_COLUMNS)
