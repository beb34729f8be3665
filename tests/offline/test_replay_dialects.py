"""``acktrail record decode`` and ``acktrail record replay`` on dumps of every release's dialect."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import Done, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples.dialect_dumps import (
    KEY,
    ODD,
    ODD_KEY,
    any_moment_is_the_replay_of_what_was_there,
    as_log,
    dump,
    rows_tell,
    snapshot,
)
from samples.dump_lines import dump_line
from samples.golden_vectors import wire
from samples.random_records import records
from samples.released_records import RELEASED_RECORDS

from acktrail.format.wire.dialects import KAFKA_4_2, RELEASED, state_json
from acktrail.format.wire.raw_record import RawRecord
from acktrail.model.records import Tombstone
from acktrail.model.replay import Policy, replay
from acktrail.offline import replay_files
from acktrail.offline.replay_files import replay_records

in_process = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.few(4)
@pytest.mark.parametrize("name", RELEASED_RECORDS)
@in_process
@given(data=st.data())
def test_decode_prints_every_record(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    """Every record that a dialect has room for is one line, with a type and its group."""
    log = as_log(data.draw(st.lists(RELEASED_RECORDS[name], min_size=1, max_size=3)))

    done = run(capsys, "record", "decode", "--dialect", name, dump(tmp_path / "log.jsonl", RELEASED[name].encode, log))

    rows_tell(done.rows, log)


@given(st.lists(records(), max_size=6))
def test_released_records_are_replayed_as_by_a_broker(found: list[Any]) -> None:
    """Policy broker is the plain fold, ordered by its keys."""
    replayed = replay_records(KAFKA_4_2, as_log(found), Policy.BROKER, audited=False)

    assert replayed.states == [state_json(state) for _, state in sorted(replay(found).items())]
    assert (replayed.findings, replayed.differences) == ((), ())


@pytest.mark.parametrize("options", [("--policy", "strict"), ("--findings", "f.jsonl")])
def test_strict_replay_is_refused_where_no_branch_knows_its_rules(
    options: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, exit code 3, and no state: what was asked for cannot be told."""
    monkeypatch.setattr(replay_files, "loaded", lambda _: iter(()))

    file = dump(tmp_path / "log.jsonl", KAFKA_4_2.encode, ODD)
    line = refused(capsys, "record", "replay", file, *options).complaint(3)

    assert "--policy strict and --findings: no installed branch" in line


def test_any_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--at an offset or a time equals the replay of a dump that ends there."""
    replayed = partial(run, capsys, "record", "replay")

    any_moment_is_the_replay_of_what_was_there(replayed, tmp_path, KAFKA_4_2.encode)


def refused(capsys: pytest.CaptureFixture[str], command: str, *arguments: str | Path) -> Done:
    done = run(capsys, command, *arguments)
    assert done.stdout == ""
    return done


def test_the_dialect_is_found_and_never_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R000-45: a dump of 4.0 is read as 4.0, one of 4.1 or 4.2 as 4.2; two dialects in one call are refused,
    unless one is named; there is no other name."""
    old = replace(snapshot(3, 10), create_timestamp_ms=None, write_timestamp_ms=None, delivery_complete_count=None)
    four = dump(tmp_path / "4.0.jsonl", RELEASED["4.0"].encode, as_log([old, Tombstone(key=ODD_KEY)]))
    later = dump(tmp_path / "4.2.jsonl", RELEASED["4.2"].encode, as_log([snapshot(3, 10)]))

    assert run(capsys, "record", "replay", four).rows[0]["start_offset"] == 10
    assert run(capsys, "record", "replay", four).rows == run(capsys, "record", "replay", four, "--dialect", "4.0").rows
    assert (
        run(capsys, "record", "replay", later).rows == run(capsys, "record", "replay", later, "--dialect", "4.4").rows
    )
    line = refused(capsys, "record", "decode", four, later).complaint(3)
    assert "of two dialects, 4.0 and 4.2" in line
    wrong = run(capsys, "record", "decode", later, "--dialect", "4.0").rows
    assert wrong[0]["decode_status"] == "malformed_value"
    assert "'4.2'" in refused(capsys, "record", "decode", later, "--dialect", "4.22").complaint(2)


def test_tombstones_alone_need_no_dialect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty dump, tombstones and damage alone are read: every shipped dialect says the same of them."""
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    damaged = tmp_path / "damaged.jsonl"
    raw = RawRecord(state_partition=0, offset=0, timestamp_ms=0, key=wire("W-4x-update-key"), value=b"\x00\x00\x01")
    damaged.write_text(dump_line(raw) + "\n")

    assert run(capsys, "record", "decode", empty).rows == []
    tombstone = dump(tmp_path / "gone.jsonl", RELEASED["4.2"].encode, as_log([Tombstone(key=KEY)]))
    assert [row["type"] for row in run(capsys, "record", "decode", tombstone).rows] == ["tombstone"]
    assert [row["decode_status"] for row in run(capsys, "record", "decode", damaged).rows] == ["malformed_value"]
