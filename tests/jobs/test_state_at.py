"""The state at any past moment: as if the topic had been read just then."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest
from drivers.command_line import Done, run
from jobs.test_history import Written, live
from jobs.world import BEGAN_AT, WRITTEN_MS, World, batch, key_of, snapshot, update

from acktrail.config import TablesConfig
from acktrail.format.columns.model_values import replayed_state_of
from acktrail.model.replay import SharePartitionState, replay
from acktrail.model.share_partition import SharePartition
from acktrail.reconcile.replay_resume import states_of_topic, topic_at_time
from acktrail.tables.delta.store import Tables


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Written]:
    """Groups at work over three exports; the records of a state partition are a millisecond apart."""
    world, written = World(tmp_path_factory.mktemp("moment") / "tables"), dict[Any, Any]()
    for seed in range(3):
        live(world, written, seed, records=70)
        world.export(f"r{seed}")
    return world, written


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


def test_any_moment_is_a_fold_of_what_was_there(lived: tuple[World, Written]) -> None:
    """At, between and beyond the times of the records: exactly the states of a fold up to then."""
    world, written = lived
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
    world.write(snapshot(key, 0, snapshot_epoch=0), *(update(key, at, 0, ()) for at in range(1, 8)))
    (place,) = {number for number, log in world.logs.items() if log}
    world.export("r1", at_most=3)
    world.exported[place] = 3
    world.export("r2", lost={place: 5})

    def completeness(at_ms: int) -> str:
        (row,) = states_of_topic(world.tables, topic_at_time(world.tables, at_ms)).to_pylist()
        return str(row["completeness"])

    assert [completeness(WRITTEN_MS + at) for at in (1, 2, 5)] == ["complete", "gap", "gap"]


def asked(capsys: pytest.CaptureFixture[str], tables: TablesConfig, *arguments: str) -> Done:
    return run(capsys, "record", "state", *arguments, "--tables", tables.uri)


def test_the_command(lived: tuple[World, Written], capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object a share partition, of one group if asked, by name of topic; a table for people."""
    world, written = lived
    at = dt.datetime.fromtimestamp((WRITTEN_MS + 30) / 1_000, dt.UTC).isoformat()
    done = asked(capsys, world.config, "group-1", "--at", at, "--json")
    states = {key: state for key, state in expected(written, WRITTEN_MS + 30).items() if key.group_id == "group-1"}
    assert {row["group"] for row in done.rows} == {"group-1"}
    told = {(row["topic_id"], row["partition"]): row for row in done.rows if row["batches"] is not None}
    assert {(key.topic_id, key.partition) for key in states} == told.keys()
    for key, state in states.items():
        batches = [[b.first_offset, b.last_offset, b.delivery_state, b.delivery_count] for b in state.batches]
        row = told[key.topic_id, key.partition]
        assert (row["batches"], row["start_offset"]) == (batches, state.start_offset)
    text = asked(capsys, world.config)
    assert text.stdout.splitlines()[0].startswith("GROUP")
    assert "time zone" in asked(capsys, world.config, "--at", "2026-03-01T00:00:00").complaint(2)


def test_a_group_that_no_record_names_is_unknown(
    lived: tuple[World, Written], capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt group is an error with the nearest names, not an empty table."""
    line = asked(capsys, lived[0].config, "group-").complaint(2)
    assert line.startswith("acktrail: unknown share group 'group-' (did you mean 'group-")


def test_what_the_export_cannot_tell_is_said(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """An export that began in the middle of a log, asked for a time before it; and a time after its end."""
    key = key_of("g")
    world.write(*(update(key, at, 0, (batch(at, at),)) for at in range(4)))
    (place,) = {number for number, log in world.logs.items() if log}
    world.exported[place] = 2
    world.export("r1")
    early = asked(capsys, world.config, "--at", str(WRITTEN_MS), "--json")
    assert (early.code, early.rows) == (0, [])
    assert f"state partitions {place} began after that moment" in early.stderr
    late = asked(capsys, world.config, "--at", (BEGAN_AT + dt.timedelta(days=1)).isoformat(), "--json")
    assert "before that moment" in late.stderr
    assert [(row["completeness"], row["at_least"]) for row in late.rows] == [("no_snapshot", True)]
    assert [row["notes"] for row in late.rows] == [late.stderr.splitlines()]
    nothing = asked(capsys, TablesConfig(uri=Tables(world.config).root + "-none"))
    assert "run `acktrail run export`" in nothing.complaint(3)
