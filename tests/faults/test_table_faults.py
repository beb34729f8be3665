"""What happens to the tables and to the machine under a worker: others maintain them, newer releases write to them, the
disk is full, the clock jumps."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from faults.conftest import Export, OpenExport, writing
from servers.moving_clock import MovingClock
from servers.small_disk import small_disk

from acktrail.config import TablesConfig
from acktrail.embedded import EmbeddedBroker
from acktrail.errors import ConfigurationError, DamagedTables
from acktrail.tables.delta.store import Tables

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_others_maintain_the_table(running: Export, broker: EmbeddedBroker, counts: Any) -> None:
    """OPTIMIZE, a checkpoint and a vacuum by somebody else in between do not disturb the export."""
    runs, outages = running.worker.runs, running.outages()
    with writing(broker):
        for _ in range(3):
            running.grows()
            table = DeltaTable(f"{running.tables.uri}/state_records")
            table.optimize.compact()
            table.create_checkpoint()
            table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    counts(rows=running.complete(), restarts=running.worker.runs - runs, outages=running.outages()[0] - outages[0])


def test_a_table_of_a_newer_release(running: Export, broker: EmbeddedBroker, counts: Any, tmp_path: Path) -> None:
    """A column that this release does not know is left alone, and rows are added beside it. A table that asks its
    writers for what this release cannot do is refused with words that say so, and stays as it is."""
    with writing(broker):
        running.grows()
        assert running.worker.stop() == 0
        DeltaTable(f"{running.tables.uri}/state_records").alter.add_columns(
            Field("of_a_release_to_come", PrimitiveType("string"), nullable=True)
        )
        running.worker.start()
        running.grows()
    counts(rows=running.complete())
    copied = tmp_path / "tables"
    shutil.copytree(running.tables.uri, copied)
    ask_for_unknown_feature(copied / "state_records")
    store = Tables(TablesConfig(uri=str(copied)))
    before = sorted(copied.rglob("*"))
    with pytest.raises(ConfigurationError, match="newer") as raised:
        store.append("state_records", store.read("state_records").slice(0, 1), transactions={"one": 1})
    assert not isinstance(raised.value, DamagedTables)
    assert sorted(file for file in copied.rglob("*") if file.suffix == ".json") == [
        file for file in before if file.suffix == ".json"
    ]


def ask_for_unknown_feature(table: Path) -> None:
    """A commit, as another writer makes it, after which writers need a feature of the future."""
    version = DeltaTable(str(table)).version() + 1
    features = ["appendOnly", "invariants", "ofTheFuture"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    (table / "_delta_log" / f"{version:020d}.json").write_text(json.dumps({"protocol": protocol}) + "\n")


def test_the_disk_is_full(broker: EmbeddedBroker, export: OpenExport, tmp_path: Path, counts: Any) -> None:
    """A full disk is an outage: one line when it begins, and one after there is room again. What was written half is in
    no table, and nothing is written twice."""
    with small_disk(tmp_path / "disk", 16) as disk:
        running = export(TablesConfig(uri=str(disk.folder / "tables")))
        with writing(broker):
            running.grows()
            for number in range(3):
                disk.fill()
                running.pauses(number)
                disk.make_room()
                running.continues()
        counts(rows=running.complete(), outages=running.outages()[0])
        assert running.worker.stop() == 0
    assert running.outages() == (3, 3)
    assert any("the storage is full" in line for line in running.worker.said)


def test_the_clock_jumps(running: Export, broker: EmbeddedBroker, clock: MovingClock | str, counts: Any) -> None:
    """Hours forward and back are no event: commits come as often as before, the lease stays, no line is said, and only
    `exported_at` shows what the clock did."""
    if isinstance(clock, str):
        pytest.skip(clock)
    said, runs = len(running.worker.said), running.worker.runs
    jumps = (5.0, -10.0, 24.0 * 400, 0.0)
    with writing(broker):
        for hours in jumps:
            running.grows()
            clock.move(hours)
            running.grows(50)
    rows = running.complete()
    counts(rows=rows, jumps=len(jumps))
    assert (running.worker.said[said:], running.worker.runs) == ([], runs)
    now = dt.datetime.now(dt.UTC)
    instants = Tables(running.tables).read("export_ranges", columns=["exported_at"])["exported_at"].to_pylist()
    assert min(instants) < now - dt.timedelta(hours=9)
    assert max(instants) > now + dt.timedelta(days=390)
