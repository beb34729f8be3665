"""What is kept from run to run: read once, equal to everything read again, and a proof that fails when it is not."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivers.command_line import Done, run
from jobs.test_history import Written, live
from jobs.world import World, key_of, snapshot

from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.reconcile.past.history_tables import HistoryTables
from acktrail.reconcile.past.saved_states import HISTORY, REPLAY, read_saved
from acktrail.tables.delta.store import Tables
from acktrail_jobs.commands.pipeline_commands import build_history, reconcile, verify


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Two observations, each reconciled, with its history; all kinds of records, damage too. For reading only."""
    world, written = World(tmp_path_factory.mktemp("kept") / "tables"), dict[Any, Any]()
    for seed in range(2):
        live(world, written, seed)
        world.observe(f"r{seed}")
        reconcile(world.config, f"r{seed}", with_history=True)
    return world


def asked(tables: TablesConfig, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    done = run(capsys, "tables", "verify", "--tables", tables.uri, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.code == (6 if found["differences"] else 0)
    return found


def test_what_runs_left_is_what_the_records_say(kept: World, capsys: pytest.CaptureFixture[str]) -> None:
    """After several runs, each from what the one before left: everything equals one replay and one build of all."""
    found = asked(kept.config, capsys)
    assert found["differences"] == []
    assert found["records"] == kept.tables.read("state_records").num_rows
    assert found["changes"] == kept.tables.read("delivery_history").num_rows > 100
    assert found["share_partitions"] >= len(kept.states)
    text = run(capsys, "tables", "verify", "--tables", kept.config.uri)
    assert (text.code, text.stdout.strip().endswith("all as the records say")) == (0, True)


def test_any_number_altered_is_found(kept: World, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One number of one row in each table: table and share partition are named, and nothing else; exit code 6."""
    tables = Tables(TablesConfig(uri=str(shutil.copytree(kept.config.uri, tmp_path / "tables"))))
    expected = set()
    for table in ("replay_memory", "held_states", "delivery_history"):
        rows = tables.read(table)
        altered, subject, number = _altered(rows, random.Random(table))
        tables.replace(table, altered, chunk=0 if "chunk" in rows.column_names else None)
        expected.add((table, subject, number))
    found = asked(tables.config, capsys)["differences"]
    assert {(each["table"], each["subject"], each["state_partition"]) for each in found} == expected


def test_bytes_that_say_something_else_are_found(
    kept: World, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One byte of one raw value, or of a decoded column: state partition and offset are named; exit code 6."""
    tables = Tables(TablesConfig(uri=str(shutil.copytree(kept.config.uri, tmp_path / "tables"))))
    rows = tables.read("state_records").to_pylist()
    chosen = random.Random(3).sample([row for row in rows if row["record_type"] == "update"], 2)
    chosen[0]["value"] = chosen[0]["value"][:-2] + bytes([chosen[0]["value"][-2] ^ 1]) + chosen[0]["value"][-1:]
    chosen[1]["snapshot_epoch"] += 1
    with tables.rewritable("state_records"):
        tables.replace("state_records", pa.Table.from_pylist(rows, schema=TABLES["state_records"]))
    found = [each for each in asked(tables.config, capsys)["differences"] if each["table"] == "state_records"]
    first = {row["state_partition"]: row for row in sorted(chosen, key=lambda row: -row["offset"])}
    assert {(each["state_partition"], each["subject"]) for each in found} == {
        (number, f"offset {row['offset']}") for number, row in first.items()
    }


def test_a_table_that_cannot_be_read_is_named(kept: World, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A table that was not read is not called verified: table and file are named, with what writes it again."""
    folder = Path(shutil.copytree(kept.config.uri, tmp_path / "tables"))
    for file in (folder / "replay_memory").glob("*.parquet"):
        file.unlink()
    done: Done = run(capsys, "tables", "verify", "--tables", str(folder))
    complaint = done.complaint(3)
    assert "replay_memory" in complaint
    assert "acktrail run reconcile" in complaint


def _altered(rows: pa.Table, dice: random.Random) -> tuple[pa.Table, str, int]:
    """One of the rows with another number in it, the share partition and the state partition that it is of."""
    names = ("delivery_count", "start_offset", "last_offset", "archived_offset")
    values = rows.to_pylist()
    row, name = dice.choice([(row, name) for row in values for name in names if row.get(name) is not None])
    row[name] ^= 1
    subject = f"{row['group_id']}:{row['topic_id']}:{row['partition']}"
    return pa.Table.from_pylist(values, schema=rows.schema), subject, row["state_partition"]


def test_nothing_to_verify(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the first run: what to do, exit code 3, nothing written."""
    world.write(snapshot(key_of("a")))
    world.observe("r1")
    done: Done = run(capsys, "tables", "verify", "--tables", world.config.uri)
    assert "run `acktrail run reconcile`" in done.complaint(3)
    assert not world.tables.exists("delivery_history")


def test_a_run_that_died_between_replay_and_history_is_continued(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The states of the replay are saved, those of the history are older: each continues where its own end."""
    written: Written = {}
    for seed in range(3):
        live(world, written, seed)
        world.observe(f"r{seed}")
        with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
            if seed == 1:
                patched.setattr(HistoryTables, "save", _interrupted)
            reconcile(world.config, f"r{seed}", with_history=True)
        saved = [read_saved(world.tables, table) for table in (REPLAY, HISTORY)]
        assert (saved[0].positions == saved[1].positions) is (seed != 1)
    assert verify(world.config).differences == ()
    assert reconcile(world.config, "r2", with_history=True).replayed_all is None
    assert capsys.readouterr().err == ""


def _interrupted(*_arguments: object) -> None:
    raise KeyboardInterrupt


def test_a_history_alone_is_verified(world: World) -> None:
    """Without a reconciliation, the history is compared with the records."""
    written: Written = {}
    live(world, written, 1)
    world.export("r1")
    build_history(world.config)
    found = verify(world.config)
    assert (found.share_partitions, found.differences) == (0, ())
    assert found.changes > 0
