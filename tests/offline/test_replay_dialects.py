"""``acktrail decode`` and ``acktrail replay`` on dumps of every dialect."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import Done, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples.dialect_random_records import RECORDS
from samples.dump_lines import dump_line
from samples.generation_random_logs import checkpoint_logs, control_logs, draft_logs, state_logs
from samples.golden_vectors import example, wire

from acktrail.drafts.dialects import DIALECTS
from acktrail.drafts.draft_records import Checkpoint, Delta, DraftSnapshot, DraftUpdate
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, Tombstone
from acktrail.model.replay import replay
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail.model.strict.strict_replay import replay_strictly
from acktrail.model.strict.violations import Policy
from acktrail.offline.record_json import state_json
from acktrail.offline.replay_dialects import replay_records
from acktrail.wire.raw_record import RawRecord
from acktrail_simulation.drafts.record_encoders import encode_in
from acktrail_simulation.messages.document_json import read_control_record, read_write_request

KEY = SharePartition(group_id=GroupId("G1"), topic_id=TopicId("AAECAwQFBgcICQoLDA0ODw"), partition=0)
FORM = (
    *("group", "topic_id", "partition", "state_epoch", "snapshot_epoch", "leader_epoch", "start_offset"),
    *("delivery_complete_count", "batches"),
)
in_process = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def dump(file: Path, dialect: str, log: Sequence[RecordAt[Any]]) -> Path:
    """A dump of `log` in `dialect`; a record's timestamp is ten times its offset."""
    with file.open("w", encoding="utf-8") as lines:
        for placed in log:
            key, value = encode_in(dialect, placed.record)
            raw = RawRecord(
                state_partition=placed.partition,
                offset=placed.offset,
                timestamp_ms=10 * placed.offset,
                key=key,
                value=value,
            )
            lines.write(dump_line(raw) + "\n")
    return file


def as_log(records: Sequence[Any]) -> list[RecordAt[Any]]:
    return [RecordAt(partition=0, offset=offset, record=record) for offset, record in enumerate(records)]


def table_records(name: str) -> list[tuple[dict[str, Any], list[Any]]]:
    """The rows of a printed table with the records that each wrote."""
    rows = example(name)["rows"]
    if name.startswith(("EX-i-", "EX-ii-")):
        return [(row, [_control(printed) for printed in row["written"]]) for row in rows]
    number, found = 0, []
    for row in rows:
        written: list[Any] = []
        for write in (w for request in row["written"] for w in read_write_request(request)):
            fields: dict[str, Any] = {"key": KEY, "start_offset": write.start_offset, "batches": write.batches}
            if name == "EX-iv-write-rpc":
                kind: Any = DraftUpdate if number else DraftSnapshot
                written.append(kind(state_epoch=1, snapshot_epoch=0, **fields))
            elif number:
                written.append(Delta(delta_index=number - 1, checkpoint_epoch=0, **fields))
            else:
                written.append(Checkpoint(checkpoint_epoch=0, **fields))
            number += 1
        found.append((row, written))
    return found


def _control(printed: dict[str, Any]) -> Any:
    fields = {**printed, **printed.get("corrected", {})}
    return RecordAt(partition=0, offset=printed["offset"], record=read_control_record(fields))


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        ("i", "EX-i-control-no-back"),
        ("ii", "EX-ii-control-back-offset"),
        ("iii", "EX-iii-write-rpc"),
        ("iv", "EX-iv-write-rpc"),
    ],
)
def test_printed_tables_at_the_command_line(
    dialect: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R000-38, R000-52, R001-08, R002-13: a dump of a printed table, replayed row by row, gives each row's SPSO and
    batches in the form of the offline contract; --at a row's last record gives that row."""
    log: list[RecordAt[Any]] = []
    rows = table_records(name)
    for row, written in rows:
        log += [r if isinstance(r, RecordAt) else RecordAt(partition=0, offset=len(log), record=r) for r in written]
        (state,) = run(capsys, "replay", "--dialect", dialect, dump(tmp_path / "log.jsonl", dialect, log)).rows

        after = row["durable_after"]
        assert tuple(state) == FORM
        assert state["start_offset"] == after["spso_effective"]
        expected = [[b["first"], b["last"], b["state"], b["delivery_count"]] for b in after["batches"]]
        assert state["batches"] == expected
        row["state"], row["offset"] = state, log[-1].offset
    for row, _ in rows:
        done = run(capsys, "replay", "--dialect", dialect, "--at", str(row["offset"]), tmp_path / "log.jsonl")
        assert done.rows == [row["state"]]
        assert f"included up to and with 0:{row['offset']};" in done.stderr


@pytest.mark.few(4)
@pytest.mark.parametrize("name", DIALECTS)
@in_process
@given(data=st.data())
def test_decode_prints_every_record(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    """Every record that a dialect has room for is one line, with a type and its group."""
    log = as_log(data.draw(st.lists(RECORDS[name], min_size=1, max_size=3)))

    done = run(capsys, "decode", "--dialect", name, dump(tmp_path / "log.jsonl", name, log))

    assert [row["decode_status"] for row in done.rows] == ["decoded"] * len(log)
    assert [row["offset"] for row in done.rows] == [placed.offset for placed in log]
    for row, placed in zip(done.rows, log, strict=True):
        assert row["group"] == getattr(placed.record, "key", placed.record).group_id
        kind = type(placed.record).__name__.lower()
        assert row["type"].rpartition("_")[2] in kind
        if hasattr(placed.record, "batches"):
            assert len(row["batches"]) == len(placed.record.batches)


@given(st.one_of(state_logs(), state_logs().map(lambda log: log[1:])))
def test_policies_on_shipped_records(log: Sequence[RecordAt[Any]]) -> None:
    """Policy broker is the plain fold; strict is the fold of what the documents let count, and the differences are its
    findings. Both find the same when asked."""
    broker = replay_records(DIALECTS["4.2"], log, Policy.BROKER)
    strict = replay_records(DIALECTS["4.2"], log, Policy.STRICT)

    assert list(broker.states) == [state_json(s) for _, s in sorted(replay(p.record for p in log).items())]
    assert list(strict.states) == [state_json(s) for _, s in sorted(replay_strictly(log).states.items())]
    assert broker.violations == strict.violations == replay_strictly(log).violations
    assert (broker.differences, strict.differences) == ((), replay_strictly(log).differences)
    assert replay_records(DIALECTS["4.2"], log, Policy.BROKER, audited=False).states == broker.states
    if not strict.differences:
        assert strict.states == broker.states


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "logs"),
    [
        ("i", control_logs(chained=False)),
        ("ii", control_logs(chained=True)),
        ("iii", checkpoint_logs()),
        ("iv", draft_logs()),
    ],
)
@given(data=st.data())
def test_what_the_machinery_writes_has_no_finding(name: str, logs: Any, data: st.DataObject) -> None:
    """A log such as each draft's machinery writes replays without a finding, by either policy to the same states."""
    log = data.draw(logs)

    strict = replay_records(DIALECTS[name], log, Policy.STRICT)

    assert [found for found in strict.violations if found.rule.value != "deletion_complete"] == []
    assert replay_records(DIALECTS[name], log, Policy.BROKER).states == strict.states


def update(epoch: int, start: int, *, key: SharePartition = KEY) -> ShareUpdate:
    return ShareUpdate(
        key=key, snapshot_epoch=epoch, leader_epoch=1, start_offset=start, delivery_complete_count=0, batches=()
    )


def snapshot(epoch: int, start: int) -> ShareSnapshot:
    return ShareSnapshot(
        key=KEY,
        snapshot_epoch=epoch,
        state_epoch=1,
        leader_epoch=1,
        start_offset=start,
        delivery_complete_count=0,
        create_timestamp_ms=1_700_000_000_000,
        write_timestamp_ms=1_700_000_000_000,
        batches=(),
    )


ODD_KEY = replace(KEY, group_id=GroupId("odd\x1b[2J\n'group'"))
ODD = [update(0, 5, key=ODD_KEY), snapshot(0, 10), update(0, 20), update(7, 30), snapshot(2, 40), update(2, 50)]


def test_strict_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each difference is a line on stderr, every finding a JSON object in the file; stdout stays the contract's, and a
    hostile group cannot steer the terminal."""
    file, findings = dump(tmp_path / "log.jsonl", "4.2", as_log(ODD)), tmp_path / "findings.jsonl"

    strict = run(capsys, "replay", file, "--policy", "strict", "--findings", findings)
    rows = [json.loads(line) for line in findings.read_text("utf-8").splitlines()]
    broker = run(capsys, "replay", file)

    assert [(s["group"], s["start_offset"]) for s in strict.rows] == [("G1", 50)]
    assert [(s["group"], s["start_offset"]) for s in broker.rows] == [("G1", 50), (ODD_KEY.group_id, 5)]
    assert [(r["rule"], r["offset"], r["changes_state"]) for r in rows] == [
        ("update_has_snapshot", 0, True),
        ("update_epoch_matches", 3, True),
        ("snapshot_epoch_step", 4, False),
    ]
    assert rows[0]["group"] == ODD_KEY.group_id
    said = [line for line in strict.stderr.splitlines() if line.startswith("finding: ")]
    assert len(said) == sum(row["changes_state"] for row in rows) == 2
    assert "\x1b" not in strict.stderr
    assert "finding" not in broker.stderr


@pytest.mark.parametrize("policy", ["broker", "strict"])
def test_any_moment_is_the_replay_of_what_was_there(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--at an offset or a time equals the replay of a dump that ends there."""
    log = as_log(ODD)
    whole = dump(tmp_path / "log.jsonl", "4.2", log)
    for end in range(1, len(log) + 1):
        part = run(capsys, "replay", "--policy", policy, dump(tmp_path / "part.jsonl", "4.2", log[:end]))
        epoch_ms = 10 * (end - 1)
        time = f"1970-01-01T00:00:00.{epoch_ms:03d}Z"
        for moment in (f"{end - 1}", f"0:{end - 1}", time):
            then = run(capsys, "replay", "--policy", policy, whole, "--at", moment)
            assert then.stdout == part.stdout, moment
            assert f"{len(log) - end} later records left out" in then.stderr


def test_a_findings_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line with the file's name and exit code 2; no state is printed."""
    file = dump(tmp_path / "log.jsonl", "4.2", as_log([snapshot(0, 1)]))

    done = run(capsys, "replay", file, "--policy", "strict", "--findings", tmp_path / "none" / "f.jsonl")

    assert (done.code, done.stdout) == (2, "")
    assert "f.jsonl" in done.stderr.splitlines()[-1]


def refused(capsys: pytest.CaptureFixture[str], command: str, *arguments: str | Path) -> Done:
    done = run(capsys, command, *arguments)
    assert done.stdout == ""
    return done


def test_the_dialect_is_found_and_never_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R000-45: a dump of 4.0 is read as 4.0, one of 4.1 or 4.2 as 4.2; two dialects in one call are refused
    with a reading of each, unless one is named; there is no other name."""
    old = replace(snapshot(3, 10), create_timestamp_ms=None, write_timestamp_ms=None, delivery_complete_count=None)
    four = dump(tmp_path / "4.0.jsonl", "4.0", as_log([old, Tombstone(key=ODD_KEY)]))
    later = dump(tmp_path / "4.2.jsonl", "4.2", as_log([snapshot(3, 10)]))

    assert run(capsys, "replay", four).rows[0]["start_offset"] == 10
    assert run(capsys, "replay", four).rows == run(capsys, "replay", four, "--dialect", "4.0").rows
    assert run(capsys, "replay", later).rows == run(capsys, "replay", later, "--dialect", "4.4").rows
    line = refused(capsys, "decode", four, later).complaint(3)
    assert "as 4.0, such as snapshot" in line
    assert "as 4.2, such as snapshot" in line
    wrong = run(capsys, "decode", later, "--dialect", "4.0").rows
    assert wrong[0]["decode_status"] == "malformed_value"
    assert "'4.2'" in refused(capsys, "decode", later, "--dialect", "4.22").complaint(2)


def test_ambiguity_is_refused_with_both_readings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A record that both layouts read to its last byte decides nothing: one line with both readings, exit code 3."""
    key = wire("W-4x-update-key")
    batch = bytes.fromhex("0001010510000000") + bytes.fromhex("0001010510000009") + b"\x02\x00\x01\x00"
    value = bytes.fromhex("0000 0003 00000002 000000000000006e 02") + batch + b"\x00"
    file = tmp_path / "log.jsonl"
    raw = RawRecord(state_partition=0, offset=0, timestamp_ms=0, key=key, value=value)
    file.write_text(dump_line(raw) + "\n")

    line = refused(capsys, "replay", file).complaint(3)

    assert "4.0 reads update" in line
    assert "4.2 reads update" in line
    by_name = [run(capsys, "decode", file, "--dialect", name).rows[0]["snapshot_epoch"] for name in ("4.0", "4.2")]
    assert by_name == [3, 196608]


def test_tombstones_alone_need_no_dialect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty dump, tombstones and damage alone are read: every shipped dialect says the same of them."""
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    damaged = tmp_path / "damaged.jsonl"
    raw = RawRecord(state_partition=0, offset=0, timestamp_ms=0, key=wire("W-4x-update-key"), value=b"\x00\x00\x01")
    damaged.write_text(dump_line(raw) + "\n")

    assert run(capsys, "decode", empty).rows == []
    tombstone = dump(tmp_path / "gone.jsonl", "4.2", as_log([Tombstone(key=KEY)]))
    assert [row["type"] for row in run(capsys, "decode", tombstone).rows] == ["tombstone"]
    assert [row["decode_status"] for row in run(capsys, "decode", damaged).rows] == ["malformed_value"]
