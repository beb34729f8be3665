"""Positions of logs moved by a person: forward they become a recorded gap, back they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
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


def test_moved_forward_is_a_gap_and_back_is_refused(tmp_path: Path) -> None:
    """One commit moves all positions, and what is skipped is a gap with its reason; a reading goes on behind it. Back
    or away nothing moves, also when another position of the same call could be moved."""
    tables, sink = Tables(TablesConfig(uri=str(tmp_path))), DeltaSinkConnector({"tables": str(tmp_path)})
    logs = [MemoryLog(pairs=PAIRS, partition=number, end_offset=5) for number in range(2)]
    read(tables, *logs)
    targets = {named(log): 5 + skip for log, skip in zip(logs, (0, 3), strict=True)}
    sink.alter_positions("a", targets)
    for log in logs:
        log.end_offset = 10
    read(tables, *logs)
    ensure_whole(tables)
    rows = tables.read("state_records").to_pylist()
    for log, skip in zip(logs, (0, 3), strict=True):
        own = sorted(row["offset"] for row in rows if row["state_partition"] == log.partition)
        assert own == [*range(5), *range(5 + skip, 10)]
    ranges = tables.read("export_ranges").to_pylist()
    gaps = [(row["state_partition"], row["gap_first"], row["gap_last"], row["gap_reason"]) for row in ranges]
    assert [gap for gap in gaps if gap[1] is not None] == [(1, 5, 7, SKIPPED_BY_REQUEST)]
    for position in (None, 4, {"offset": 9}):
        with pytest.raises(InputError, match="would double them"):
            sink.alter_positions("a", {named(logs[0]): 18, named(logs[1]): position})
    assert sink.positions("a", list(targets)) == dict.fromkeys(targets, 10)
