"""Maintenance of what connectors write: the same rows and positions in few files, whatever is under way."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from servers.s3_server import S3

from acktrail.config import TablesConfig
from acktrail.connect.contract import SinkTaskContext
from acktrail.connect.source_batches import SourceBatch, SourcePartition, all_dead
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.delta_connector import AnyTableSink
from acktrail.tables.sinks.connector_positions import ConnectorPositions
from acktrail.tables.upkeep.maintenance import MaintenancePolicy, TableUpkeep, maintain, preview

PART, OTHER = SourcePartition("folder/a"), SourcePartition("folder/b")
AT_ONCE = MaintenancePolicy(small_files=1, vacuum_after_ms=0)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def sink_of(config: TablesConfig, *, dead: str | None = "letters") -> AnyTableSink:
    return AnyTableSink(Tables(config), SinkTaskContext(connector="files", run_id="run", dead_letter_table=dead))


def rows_at(number: int) -> pa.Table:
    """A row with every kind of column."""
    row = {
        "number": number,
        "text": f"é{number}",
        "ratio": number / 7,
        "day": NOON.date() + dt.timedelta(days=number),
        "at": NOON + dt.timedelta(seconds=number),
        "bytes": bytes([number]),
        "is_odd": number % 2 == 1,
        "nested": [{"name": "a", "values": [number, None]}],
    }
    return pa.Table.from_pylist([row])


def put(sink: AnyTableSink, number: int, part: SourcePartition = PART, table: str = "orders") -> None:
    sink.put(SourceBatch(source_partition=part, rows={table: rows_at(number)}, position={"line": number}))


def content(config: TablesConfig, name: str) -> list[dict[str, Any]]:
    """The rows of a table, by number where they have one."""
    rows: list[dict[str, Any]] = pa.table(
        DeltaTable(f"{config.uri}/{name}", storage_options=dict(config.options)).to_pyarrow_table()
    ).to_pylist()
    return sorted(rows, key=lambda row: (str(row.get("position")), int(row.get("number") or 0)))


def of(tables: tuple[TableUpkeep, ...], name: str) -> TableUpkeep:
    (own,) = (each for each in tables if each.table == name)
    return own


@pytest.fixture
def config(tmp_path: Path) -> TablesConfig:
    return TablesConfig(uri=str(tmp_path / "tables"))


def test_tables_of_connectors_are_kept_small(config: TablesConfig) -> None:
    """Many commits with rows and dead letters become one file a table, with the same rows; of the positions those that
    count are left; connectors continue; a table that someone else put there is not touched."""
    theirs = Path(config.uri, "theirs")
    for _ in range(4):
        write_deltalake(str(theirs), pa.table({"a": [1]}), mode="append")
    sink = sink_of(config)
    for number in range(6):
        put(sink, number)
        put(sink, number, OTHER, "clients")
        sink.put(
            all_dead(SourceBatch(source_partition=PART, rows={"x": rows_at(number)}, position=number), "w", "letters")
        )
        sink.flush()
    before = {name: content(config, name) for name in ("orders", "clients", "letters")}
    positions = ConnectorPositions(Tables(config), "files").positions()
    untouched = DeltaTable(str(theirs)).version(), sorted(file.name for file in theirs.rglob("*"))

    assert {"orders", "clients", "letters"} <= {each.table for each in preview(config, AT_ONCE).tables}
    done = maintain(config, AT_ONCE).tables

    assert {name: content(config, name) for name in before} == before
    assert [(of(done, name).files, of(done, name).files_after) for name in before] == [(6, 1)] * 3
    assert all(len(list(Path(config.uri, name).glob("*.parquet"))) == 1 for name in before)
    assert [(row["source_partition"], row["number"]) for row in content(config, "connector_positions")] == [
        (str(PART), 6),
        (str(OTHER), 6),
    ]
    assert of(done, "connector_positions").rows_dropped == 10
    assert (DeltaTable(str(theirs)).version(), sorted(file.name for file in theirs.rglob("*"))) == untouched
    assert ConnectorPositions(Tables(config), "files").positions() == positions
    for each in (sink, sink_of(config)):  # one that stayed up, and a new one
        put(each, 7 if each is sink else 8)
        each.flush()
    assert [row["number"] for row in content(config, "orders")] == [*range(6), 7, 8]


def test_what_is_under_way_is_kept(config: TablesConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A maintenance between a position that was written ahead and its rows, and after a crash there: the rows land
    once, and the position that counts is the same."""
    sink = sink_of(config)
    for number in range(3):
        put(sink, number)
        sink.flush()
    own = AnyTableSink._append

    def maintained_first(self: AnyTableSink, *arguments: Any) -> int:
        maintain(config, AT_ONCE)
        return own(self, *arguments)

    with monkeypatch.context() as between:
        between.setattr(AnyTableSink, "_append", maintained_first)
        put(sink, 3)
        sink.flush()
    put(sink, 4)
    with monkeypatch.context() as broken:
        broken.setattr(AnyTableSink, "_append", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sink.flush()
    maintain(config, AT_ONCE)
    again = sink_of(config)
    assert again.position(PART) == {"line": 3}
    put(again, 4)
    again.flush()
    assert [row["number"] for row in content(config, "orders")] == [*range(5)]


def test_dead_letters_of_a_crash_outlast_a_maintenance(config: TablesConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a crash left beside their position are delivered by the next start, once."""
    sink = sink_of(config)
    put(sink, 0)
    sink.flush()
    sink.put(all_dead(SourceBatch(source_partition=PART, rows={"x": rows_at(1)}, position=1), "wrong", "letters"))
    with monkeypatch.context() as broken:
        broken.setattr(ConnectorPositions, "deliver", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sink.flush()
    maintain(config, AT_ONCE)
    for _ in range(2):
        assert sink_of(config).position(PART) == 1
        maintain(config, AT_ONCE)
    assert len(content(config, "letters")) == 1


@pytest.mark.full
def test_tables_in_a_bucket_are_found(s3: S3) -> None:
    """The same on object storage, where folders are only parts of names."""
    config = s3.bucket("connectors")
    sink = sink_of(config)
    for number in range(3):
        put(sink, number)
        sink.flush()
    before = content(config, "orders")
    done = maintain(config, AT_ONCE).tables
    assert (of(done, "orders").files, of(done, "orders").files_after) == (3, 1)
    assert content(config, "orders") == before
    assert sink_of(config).position(PART) == {"line": 2}
