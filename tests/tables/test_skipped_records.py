"""Positions of logs moved by a person: forward they become a recorded gap, back they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples.memory_source import MemoryLog, MemoryTask

from acktrail.config import TablesConfig
from acktrail.connect.runtime.task_execution import FlushPolicy, TaskExecution
from acktrail.connect.source_batches import SKIPPED_BY_REQUEST, SourcePartition
from acktrail.errors import InputError
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.continuity import ensure_whole
from acktrail.tables.exported.delta_connector import DeltaSinkConnector
from acktrail.tables.exported.delta_sink import DeltaSink

PAIRS: list[Any] = [(b"\x00\x00\x00\x01g" + bytes(20), None), (b"\x00\x07", b"")]


def read(tables: Tables, *logs: MemoryLog) -> None:
    source = MemoryTask(logs, cluster_id="state/c1", batch_rows=4)
    TaskExecution(source, DeltaSink(tables, cluster_id="c1", run_id="run"), policy=FlushPolicy(rows=5)).run()


def named(log: MemoryLog) -> SourcePartition:
    return SourcePartition(f"state/c1/{log.topic_id}/{log.partition}")


def sink_at(folder: Path) -> tuple[Tables, DeltaSinkConnector]:
    return Tables(TablesConfig(uri=str(folder))), DeltaSinkConnector({"tables": str(folder)})


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ends=st.lists(st.integers(1, 6), min_size=2, max_size=2), skips=st.lists(st.integers(0, 5), min_size=2, max_size=2)
)
def test_moved_forward_is_a_gap(tmp_path_factory: Any, ends: list[int], skips: list[int]) -> None:
    """Every offset is in exactly one row or in one gap with its reason, whatever was read before and skipped then; one
    commit moves all positions; the tables are whole, and a reading goes on at the new ones."""
    tables, sink = sink_at(tmp_path_factory.mktemp("tables"))
    logs = [MemoryLog(pairs=PAIRS, partition=number, end_offset=end) for number, end in enumerate(ends)]
    read(tables, *logs)
    targets = {named(log): log.end_offset + skip for log, skip in zip(logs, skips, strict=True)}
    sink.alter_positions("a", targets)
    assert sink.positions("a", list(targets)) == targets
    for log, skip in zip(logs, skips, strict=True):
        log.end_offset += skip + 3
    read(tables, *logs)
    ensure_whole(tables)
    rows, ranges = tables.read("state_records").to_pylist(), tables.read("export_ranges").to_pylist()
    for log, end, skip in zip(logs, ends, skips, strict=True):
        gap = [*range(end, end + skip)]
        own = sorted(row["offset"] for row in rows if row["state_partition"] == log.partition)
        assert own == [*range(end), *range(end + skip, end + skip + 3)]
        gaps = [row for row in ranges if row["state_partition"] == log.partition and row["gap_first"] is not None]
        assert [offset for row in gaps for offset in range(row["gap_first"], row["gap_last"] + 1)] == gap
        assert {row["gap_reason"] for row in gaps} <= {SKIPPED_BY_REQUEST}


@pytest.mark.parametrize("position", [None, 0, 4, {"offset": 9}])
def test_moved_back_is_refused_and_nothing_moves(tmp_path: Path, position: Any) -> None:
    """Also when another position of the same call could be moved."""
    tables, sink = sink_at(tmp_path / "tables")
    logs = [MemoryLog(pairs=PAIRS, partition=number, end_offset=5) for number in range(2)]
    read(tables, *logs)
    before = sink.positions("a", [*map(named, logs)])
    with pytest.raises(InputError, match="would double them"):
        sink.alter_positions("a", {named(logs[0]): 8, named(logs[1]): position})
    assert sink.positions("a", [*map(named, logs)]) == before
    assert all(row["gap_first"] is None for row in tables.read("export_ranges").to_pylist())
