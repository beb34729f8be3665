"""What is kept from run to run: read once, equal to everything read again, and a proof that fails when it is not. The
state at any past moment: as if the topic had been read just then."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from drivers.command_line import Done, run
from jobs.world import BEGAN_AT, WRITTEN_MS, World, Written, batch, key_of, live, snapshot, update

from acktrail.config import TablesConfig
from acktrail.format.columns.record_columns import replayed_state_of
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.history.history_tables import HistoryTables
from acktrail.history.replay_resume import states_of_topic, topic_at_time
from acktrail.history.saved_states import HISTORY, REPLAY, read_saved
from acktrail.model.replay import SharePartitionState, replay
from acktrail.model.share_partition import SharePartition
from acktrail.tables.delta.store import Tables
from acktrail_jobs.api import build_history, reconcile, verify


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Written]:
    """Three observations, each reconciled, with its history, and what was written: all kinds of records, damage too.
    Those of a state partition are a millisecond apart. For reading only."""
    world, written = World(tmp_path_factory.mktemp("kept") / "tables"), dict[Any, Any]()
    for seed in range(3):
        live(world, written, seed)
        world.observe(f"r{seed}")
        reconcile(world.config, f"r{seed}", with_history=True)
    return world, written


@pytest.fixture
def copied(kept: tuple[World, Written], tmp_path: Path) -> Tables:
    """A copy of its tables to do harm to."""
    return Tables(TablesConfig(uri=str(shutil.copytree(kept[0].config.uri, tmp_path / "tables"))))


def asked(tables: TablesConfig, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    done = run(capsys, "tables", "verify", "--tables", tables.uri, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.code == (6 if found["differences"] else 0)
    return found


def test_what_runs_left_is_what_the_records_say(
    kept: tuple[World, Written], capsys: pytest.CaptureFixture[str]
) -> None:
    """After several runs, each from what the one before left: everything equals one replay and one build of all."""
    world = kept[0]
    found = asked(world.config, capsys)
    assert found["differences"] == []
    assert found["records"] == world.tables.read("state_records").num_rows
    assert found["changes"] == world.tables.read("delivery_history").num_rows > 100
    assert found["share_partitions"] >= len(world.states)
    text = run(capsys, "tables", "verify", "--tables", world.config.uri)
    assert (text.code, text.stdout.strip().endswith("all as the records say")) == (0, True)


def test_any_number_altered_is_found(copied: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    """One number of one row in each table: table and share partition are named, and nothing else; exit code 6."""
    expected = set()
    for table in ("replay_memory", "held_states", "delivery_history"):
        rows = copied.read(table)
        altered, subject, number = _altered(rows, random.Random(table))
        copied.replace(table, altered, chunk=0 if "chunk" in rows.column_names else None)
        expected.add((table, subject, number))
    found = asked(copied.config, capsys)["differences"]
    assert {(each["table"], each["subject"], each["state_partition"]) for each in found} == expected


def test_bytes_that_say_something_else_are_found(copied: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    """One byte of one raw value, or of a decoded column: state partition and offset are named; exit code 6."""
    rows = copied.read("state_records").to_pylist()
    chosen = random.Random(3).sample([row for row in rows if row["record_type"] == "update"], 2)
    chosen[0]["value"] = chosen[0]["value"][:-2] + bytes([chosen[0]["value"][-2] ^ 1]) + chosen[0]["value"][-1:]
    chosen[1]["snapshot_epoch"] += 1
    with copied.rewritable("state_records"):
        copied.replace("state_records", pa.Table.from_pylist(rows, schema=TABLES["state_records"]))
    found = [each for each in asked(copied.config, capsys)["differences"] if each["table"] == "state_records"]
    first = {row["state_partition"]: row for row in sorted(chosen, key=lambda row: -row["offset"])}
    assert {(each["state_partition"], each["subject"]) for each in found} == {
        (number, f"offset {row['offset']}") for number, row in first.items()
    }


def test_a_table_that_cannot_be_read_is_named(copied: Tables, capsys: pytest.CaptureFixture[str]) -> None:
    """A table that was not read is not called verified: table and file are named, with what writes it again."""
    for file in (Path(copied.root) / "replay_memory").glob("*.parquet"):
        file.unlink()
    done: Done = run(capsys, "tables", "verify", "--tables", copied.config.uri)
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


def expected(written: Written, at_ms: int) -> dict[SharePartition, SharePartitionState]:
    """The fold of all readable records up to a time."""
    early = [record for (_, offset), record in sorted(written.items()) if WRITTEN_MS + offset <= at_ms]
    return replay(record for record in early if not isinstance(record, SharePartition))


def found(world: World, at_ms: int | None) -> dict[SharePartition, SharePartitionState | None]:
    rows = states_of_topic(world.tables, topic_at_time(world.tables, at_ms)).to_pylist()
    states = {
        SharePartition(**{name: row[name] for name in ("group_id", "topic_id", "partition")}): row for row in rows
    }
    assert len(states) == len(rows)
    return {key: replayed_state_of(row) for key, row in states.items() if row["snapshot_epoch"] is not None}


def test_any_moment_is_a_fold_of_what_was_there(kept: tuple[World, Written]) -> None:
    """At, between and beyond the times of the records: exactly the states of a fold up to then."""
    world, written = kept
    longest = max(offset for _, offset in written)
    dice = random.Random(1)
    for at_ms in (WRITTEN_MS - 1, WRITTEN_MS, *(WRITTEN_MS + dice.randrange(longest) for _ in range(6)), 2**60):
        assert found(world, at_ms) == expected(written, at_ms)
    assert found(world, None) == expected(written, 2**60)


def test_times_that_go_back(world: World) -> None:
    """The log is cut before the first record with a later time, also where a record after it has an earlier one."""
    key = key_of("g")
    world.write(snapshot(key, 0, snapshot_epoch=0), update(key, 5, 0, ()), update(key, 7, 0, ()))
    world.export("r1")
    rows = world.tables.read("state_records").to_pylist()
    for row, time in zip(sorted(rows, key=lambda row: row["offset"]), (10, 30, 20), strict=True):
        row["timestamp_ms"] = time
    other = World(world.tables.root + "/other", state_partitions=4)
    other.tables.append("state_records", world._table("state_records", rows))
    other.tables.append("export_ranges", world.tables.read("export_ranges"))
    assert [state.start_offset for at in (9, 10, 25, 30) for state in found(other, at).values() if state] == [0, 0, 7]


def test_records_lost_before_the_moment(world: World) -> None:
    """A gap casts doubt on what comes after it, and not on the time before; at its edge it is unknown."""
    key = key_of("g")
    place, _ = world.write(snapshot(key, 0, snapshot_epoch=0), *(update(key, at, 0, ()) for at in range(1, 8)))
    world.export("r1", at_most=3)
    world.exported[place] = 3
    world.export("r2", lost={place: 5})

    def completeness(at_ms: int) -> str:
        (row,) = states_of_topic(world.tables, topic_at_time(world.tables, at_ms)).to_pylist()
        return str(row["completeness"])

    assert [completeness(WRITTEN_MS + at) for at in (1, 2, 5)] == ["complete", "gap", "gap"]


def state_of(capsys: pytest.CaptureFixture[str], tables: TablesConfig, *arguments: str) -> Done:
    return run(capsys, "record", "state", *arguments, "--tables", tables.uri)


def test_the_command(kept: tuple[World, Written], capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object a share partition, of one group if asked, by name of topic; a table for people."""
    world, written = kept
    at = dt.datetime.fromtimestamp((WRITTEN_MS + 30) / 1_000, dt.UTC).isoformat()
    done = state_of(capsys, world.config, "group-1", "--at", at, "--json")
    states = {key: state for key, state in expected(written, WRITTEN_MS + 30).items() if key.group_id == "group-1"}
    assert {row["group"] for row in done.rows} == {"group-1"}
    told = {(row["topic_id"], row["partition"]): row for row in done.rows if row["batches"] is not None}
    assert {(key.topic_id, key.partition) for key in states} == told.keys()
    for key, state in states.items():
        batches = [[b.first_offset, b.last_offset, b.delivery_state, b.delivery_count] for b in state.batches]
        row = told[key.topic_id, key.partition]
        offsets = [row[name] for name in ("start_offset", "first_unfinished_offset", "end_offset")]
        assert row["batches"] == batches
        assert offsets == [state.start_offset, state.first_unfinished_offset, state.end_offset]
    text = state_of(capsys, world.config)
    assert text.stdout.splitlines()[0].startswith("GROUP")
    assert "time zone" in state_of(capsys, world.config, "--at", "2026-03-01T00:00:00").complaint(2)


def test_a_group_that_no_record_names_is_unknown(
    kept: tuple[World, Written], capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt group is an error with the nearest names, not an empty table."""
    line = state_of(capsys, kept[0].config, "group-").complaint(2)
    assert line.startswith("acktrail: unknown share group 'group-' (did you mean 'group-")


def test_what_the_export_cannot_tell_is_said(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """An export that began in the middle of a log, asked for a time before it; and a time after its end."""
    key = key_of("g")
    place, _ = world.write(*(update(key, at, 0, (batch(at, at),)) for at in range(4)))
    world.exported[place] = 2
    world.export("r1")
    early = state_of(capsys, world.config, "--at", str(WRITTEN_MS), "--json")
    assert (early.code, early.rows) == (0, [])
    assert f"state partitions {place} began after that moment" in early.stderr
    late = state_of(capsys, world.config, "--at", (BEGAN_AT + dt.timedelta(days=1)).isoformat(), "--json")
    assert "before that moment" in late.stderr
    assert [(row["completeness"], row["at_least"]) for row in late.rows] == [("no_snapshot", True)]
    assert [row["notes"] for row in late.rows] == [late.stderr.splitlines()]
    nothing = state_of(capsys, TablesConfig(uri=Tables(world.config).root + "-none"))
    assert "`acktrail run export`" in nothing.complaint(3)
