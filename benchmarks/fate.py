"""`acktrail record show` on a history of 10,000,000 changes: the table's order and statistics must do the work."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from measure import median, run
from table import Row

from acktrail.config import TablesConfig
from acktrail.format.columns.record_columns import CHANGE_COLUMNS, HELD_COLUMNS
from acktrail.history.history_tables import HistoryTables, history_rows
from acktrail.history.saved_states import HISTORY, SavedStates, SourceVersion, with_cluster
from acktrail.tables.delta.delta_log_writer import WRITTEN_FILES, write_data_file
from acktrail.tables.delta.store import Tables

Array = npt.NDArray[Any]


def compare(
    changes: int = 10_000_000, share_partitions: int = 5_000, changes_of_a_step: int = 250_000, rounds: int = 5
) -> list[Row]:
    """The table's rows: medians of `rounds` after one that does not count."""
    acktrail = str(Path(sys.executable).with_name("acktrail"))
    with tempfile.TemporaryDirectory() as folder:
        asked = _build(Tables(TablesConfig(uri=folder)), changes, share_partitions, changes_of_a_step)
        runs = [run([acktrail, "record", "show", *asked, "--tables", folder]) for _ in range(1 + rounds)][1:]
        files = len(list(Path(folder, "delivery_history").rglob("*.parquet")))
    found = median(runs)
    return [
        Row(
            what=f"record, of {changes:,} changes",
            ours=str(found),
            beside=f"{share_partitions:,} share partitions, {files:,} files ever written",
        )
    ]


def _build(tables: Tables, changes: int, share_partitions: int, step: int) -> tuple[str, ...]:
    """A history as so many steps of the job leave it; a record in the middle of it."""
    history, source = HistoryTables(tables, "benchmark"), np.random.default_rng(7)
    names = _names(source, share_partitions)
    ends = np.zeros(share_partitions, np.int64)
    for begin in range(0, changes, step):
        rows = _changes(source, names, ends, begin, min(step, changes - begin))
        made = history_rows(rows, "benchmark")
        history.add(made, WRITTEN_FILES.empty_table(), {0: begin}, {0: begin + rows.num_rows})
    source = SourceVersion(records_table="", state_topic_id=None, dialect=None, rules_version=HISTORY.rules_version)
    held = with_cluster(_held(names), HISTORY, "benchmark")
    saved = SavedStates(table=HISTORY, positions={0: changes}, source=source)
    history.save(saved, write_data_file(tables.place(HISTORY.name), held), {0: held.num_rows})
    owner = int(np.argmax(ends))
    named = names.slice(owner, 1).to_pylist()[0]
    return (named["group_id"], named["topic_id"], str(named["partition"]), str(ends[owner] // 2))


def _names(source: np.random.Generator, count: int) -> pa.Table:
    groups, topics = source.integers(0, 97, count), source.integers(0, 200, count)
    return pa.table(
        {
            "group_id": [f"group-{number:02d}" for number in groups],
            "topic_id": [f"{number:022d}" for number in topics],
            "partition": pa.array(np.arange(count) // 100, pa.int32()),
        }
    )


def _held(names: pa.Table) -> pa.Table:
    """Every share partition, as deleted meanwhile."""
    known = {
        "held": pa.repeat("absent", names.num_rows),
        "state_partition": pa.array(np.zeros(names.num_rows, np.int32)),
    }
    columns = {**{name: names[name] for name in names.column_names}, **known}
    missing = {field.name: pa.nulls(names.num_rows, field.type) for field in HELD_COLUMNS}
    return pa.table([{**missing, **columns}[name] for name in HELD_COLUMNS.names], names=HELD_COLUMNS.names)


def _changes(source: np.random.Generator, names: pa.Table, ends: Array, begin: int, count: int) -> pa.Table:
    """Changes of ranges one after the other in each share partition, which move `ends` on."""
    owners, lengths = np.sort(source.integers(0, names.num_rows, count)), source.integers(1, 30, count)
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
