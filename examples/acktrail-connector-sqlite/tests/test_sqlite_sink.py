"""The sink keeps what every sink promises, and refuses what it cannot keep."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from acktrail.errors import ConfigurationError, RetryableError, RowsRefused
from acktrail.model.log_positions import SourcePartition
from acktrail_connect.source_batches import SourceBatch
from acktrail_connect.testing import SinkSuite
from acktrail_connector_sqlite import sqlite_sink
from acktrail_connector_sqlite.sqlite_sink import SqliteSink, SqliteTask


class TestSqliteSink(SinkSuite):
    """Everything that ``acktrail_connect.testing`` asks of a sink."""

    connector_class = SqliteSink
    examples = 3

    @property
    def file(self) -> Path:
        return self.folder / "rows.sqlite"

    def config(self) -> Mapping[str, str]:
        return {"file": str(self.file)}

    def numbers(self, source_partition: SourcePartition) -> list[int]:
        text = "SELECT content FROM acktrail_rows WHERE source_partition = ?"
        with closing(sqlite3.connect(self.file)) as database:
            return sorted(json.loads(row)["number"] for (row,) in database.execute(text, [source_partition]))


def batch(**columns: object) -> SourceBatch:
    return SourceBatch(source_partition=SourcePartition("a"), rows={"t": pa.table(columns)}, position=1)


def test_rows_that_are_no_json_are_refused(tmp_path: Path) -> None:
    """In ``put``, with nothing of them taken; so are rows without a position."""
    task = SqliteTask(tmp_path / "rows.sqlite", "c")
    task.start()
    task.position(SourcePartition("a"))
    for rows in (batch(a=[b"bytes"]), SourceBatch(source_partition=SourcePartition("a"), rows=batch(a=[1]).rows)):
        with pytest.raises(RowsRefused):
            task.put(rows)
    assert task.pending_rows == 0
    task.stop()


def test_a_locked_database_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error lets the worker try again, and nothing is pending then; a file that is no database is an error of the
    configuration."""
    monkeypatch.setattr(sqlite_sink, "_PATIENCE_S", 0.01)
    file = tmp_path / "rows.sqlite"
    task = SqliteTask(file, "c")
    task.start()
    task.position(SourcePartition("a"))
    task.put(batch(a=[1]))
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(RetryableError):
            task.flush()
    assert task.pending_rows == 0
    task.stop()
    (tmp_path / "text").write_text("no database, but more than a header of text" * 10)
    with pytest.raises(ConfigurationError):
        SqliteTask(tmp_path / "text", "c").start()
