"""Plain Parquet files have what Delta tables have, and survive a kill at every step."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from samples.memory_source import MemoryLog, MemoryTask

from acktrail.config import TablesConfig
from acktrail.connect.contract import SinkTaskContext
from acktrail.connect.runtime.task_execution import FlushPolicy, TaskExecution
from acktrail.connect.source_batches import SourceBatch, SourcePartition, all_dead
from acktrail.errors import DamagedTables, RowsRefused
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_sink import DeltaSink
from acktrail_plugins.parquet.parquet_files import FolderFiles
from acktrail_plugins.parquet.parquet_sink import ParquetSinkTask

PART = SourcePartition("p")
LOGS = SinkTaskContext(connector="c", run_id="run", cluster_id="memory", reads_logs=True)
ROWS = SinkTaskContext(connector="c", run_id="run", dead_letter_table="dead")


def a_task(root: Path, context: SinkTaskContext) -> ParquetSinkTask:
    return ParquetSinkTask(FolderFiles(root), context)


def stored(root: Path, table: str) -> pa.Table:
    rows = ds.dataset(root / table, partitioning="hive").to_table()
    return rows.select([name for name in rows.column_names if name != "source_partition"])


def some_logs() -> list[MemoryLog]:
    pairs: Sequence[tuple[bytes | None, bytes | None]] = [(b"\x00\x09", b"x"), (b"\x00\x08", None)]
    return [MemoryLog(pairs=pairs, partition=number, start_offset=7 * number, end_offset=40) for number in range(3)]


def test_files_and_delta_tables_have_the_same_rows(tmp_path: Path) -> None:
    """The same logs, pruned meanwhile, through both sinks: records and ranges, gaps among them, are equal."""
    logs, later = some_logs(), some_logs()
    later[1].start_offset, later[1].end_offset = 55, 60
    delta = Tables(TablesConfig(uri=str(tmp_path / "delta")))
    for each in (logs, later):
        for sink in (DeltaSink(delta, cluster_id="memory", run_id="run"), a_task(tmp_path / "files", LOGS)):
            TaskExecution(MemoryTask(each, batch_rows=9), sink, policy=FlushPolicy(rows=20)).run()

    for table, order in (("state_records", "offset"), ("export_ranges", "log_end_offset")):
        own = stored(tmp_path / "files", table)
        kept = delta.read(table)
        by = [("state_partition", "ascending"), (order, "ascending")]
        if table == "export_ranges":  # files are by source partition: a flush may cut ranges elsewhere
            gaps = [
                rows.filter(pc.is_valid(rows["gap_first"])).select(["gap_first", "gap_last"]) for rows in (own, kept)
            ]
            assert gaps[0].to_pylist() == gaps[1].to_pylist() == [{"gap_first": 40, "gap_last": 54}]
            assert pc.sum(own["records_read"]) == pc.sum(kept["records_read"])
        else:
            assert own.sort_by(by).to_pylist() == kept.sort_by(by).to_pylist()


@pytest.mark.few(1)
@pytest.mark.parametrize("step", ["create", "_sync", "link"])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path, step: str, nth: int) -> None:
    """The process ends at the nth call of a step, then the export runs again: every offset and range once."""
    child = f"""
import os, sys
sys.path[:0] = {json.dumps(sys.path)}
from pathlib import Path
from typing import Any
from acktrail.connect.runtime.task_execution import FlushPolicy, TaskExecution
from acktrail_plugins.parquet import parquet_files as files
from plugins.test_parquet_sink import LOGS, MemoryTask, a_task, some_logs
calls = 0
def killing(own):
    def call(*arguments, **named):
        global calls
        calls += 1
        if calls == {nth}:
            os._exit(9)
        return own(*arguments, **named)
    return call
owner = {{"create": files.FolderFiles, "_sync": files, "link": files.os}}[{step!r}]
setattr(owner, {step!r}, killing(getattr(owner, {step!r})))
sink = a_task(Path({str(tmp_path)!r}), LOGS)
TaskExecution(MemoryTask(some_logs(), batch_rows=5), sink, policy=FlushPolicy(rows=10)).run()
"""
    assert subprocess.run([sys.executable, "-c", child], check=False).returncode == 9
    TaskExecution(MemoryTask(some_logs(), batch_rows=5), a_task(tmp_path, LOGS)).run()
    records, ranges = stored(tmp_path, "state_records"), stored(tmp_path, "export_ranges")
    found = sorted(zip(records["state_partition"].to_pylist(), records["offset"].to_pylist(), strict=True))
    assert found == [(number, offset) for number in range(3) for offset in range(7 * number, 40)]
    assert pc.sum(ranges["records_read"]).as_py() == records.num_rows


def test_rows_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    """Names that leave the folder, a second table, a changed type, rows without a position."""
    sink = a_task(tmp_path / "files", ROWS)

    def put(table: str, column: list[Any], at: int | None = 1) -> None:
        sink.put(SourceBatch(source_partition=PART, rows={table: pa.table({"a": column})}, position=at))

    put("t", [1])
    for table, column in (("../x", [1]), ("T", [1]), ("u", [1]), ("t", ["x"])):
        with pytest.raises(RowsRefused):
            put(table, column)
    with pytest.raises(RowsRefused, match="doubled"):
        put("t", [1], None)
    sink.flush()
    assert stored(tmp_path / "files", "t").num_rows == 1


def test_dead_letters_follow_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are held until there is a table, and delivered once, also when a crash comes between."""
    sink = a_task(tmp_path, ROWS)
    bad = SourceBatch(source_partition=PART, rows={"t": pa.table({"a": ["x", "y"]})}, position={"n": 1})
    sink.put(all_dead(bad, "why", "dead"))
    assert not sink.flush().positions
    sink.put(SourceBatch(source_partition=PART, rows={"t": pa.table({"a": [1]})}, position={"n": 2}))
    with monkeypatch.context() as broken:
        broken.setattr(ParquetSinkTask, "_complete", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sink.flush()
    assert not (tmp_path / "dead").exists()
    for _ in range(2):
        assert a_task(tmp_path, ROWS).position(PART) == {"n": 2}
    assert stored(tmp_path, "dead")["reason"].to_pylist() == ["why", "why"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """A file without a footer stops the sink before anything is written."""
    sink = a_task(tmp_path, ROWS)
    sink.put(SourceBatch(source_partition=PART, rows={"t": pa.table({"a": [1]})}, position=1))
    sink.flush()
    (file,) = tmp_path.rglob("*.parquet")
    file.write_bytes(b"PAR1")
    with pytest.raises(DamagedTables, match=file.name):
        a_task(tmp_path, ROWS).start()
