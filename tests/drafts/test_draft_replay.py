"""``acktrail record decode`` and ``record replay`` on dumps and logs of drafts, and replay by policy ``strict``."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drafts.random_drafts import DRAFT_RECORDS
from drafts.random_walks import CheckpointWalk, ControlWalk, checkpoint_logs, control_logs, draft_logs, state_logs
from drivers.command_line import run
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
from samples.golden_vectors import example, wire
from state_topics.segment_bytes import CONTROL, batch

from acktrail.format.wire.dialects import KAFKA_4_2, state_json
from acktrail.format.wire.raw_record import RawRecord
from acktrail.model.records import RecordAt
from acktrail.model.replay import Policy
from acktrail.offline.replay_files import replay_records
from acktrail_drafts.dialects import DRAFTS
from acktrail_drafts.draft_records import Checkpoint, Delta, DraftSnapshot, DraftUpdate, finding_json
from acktrail_drafts.strict_replay import replay_strictly
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.drafts.document_json import read_control_record
from acktrail_simulation.drafts.record_encoders import encode_in
from acktrail_simulation.messages.persister_json import read_request

FORM = (
    *("group", "topic_id", "partition", "state_epoch", "snapshot_epoch", "leader_epoch", "start_offset"),
    *("delivery_complete_count", "batches"),
)
in_process = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def table_records(name: str) -> list[tuple[dict[str, Any], list[Any]]]:
    """The rows of a printed table with the records that each wrote."""
    rows = example(name)["rows"]
    if name.startswith(("EX-i-", "EX-ii-")):
        return [(row, [_control(printed) for printed in row["written"]]) for row in rows]
    number, found = 0, []
    for row in rows:
        written: list[Any] = []
        for write in (w for request in row["written"] for w in read_request(StateWrite, request)):
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
    """R000-01 to R000-03, R000-28, R000-35, R000-38 to R000-43, R000-49, R000-52 to R000-55, R001-05, R001-06, R001-08,
    R001-11 to R001-14, R002-12 to R002-14: a dump of a printed table, replayed row by row, gives each row's SPSO and
    batches in the form of the offline contract, by either policy and without a finding; --at a row's last record gives
    that row."""
    log: list[RecordAt[Any]] = []
    rows = table_records(name)
    for row, written in rows:
        log += [r if isinstance(r, RecordAt) else RecordAt(partition=0, offset=len(log), record=r) for r in written]
        file = dump(tmp_path / "log.jsonl", partial(encode_in, dialect), log)
        (state,) = run(capsys, "record", "replay", "--dialect", dialect, file).rows
        strict = replay_records(DRAFTS[dialect], log, Policy.STRICT, audited=True)
        assert (strict.states, strict.findings) == ([state], [])

        after = row["durable_after"]
        assert tuple(state) == FORM
        assert state["start_offset"] == after["spso_effective"]
        expected = [[b["first"], b["last"], b["state"], b["delivery_count"]] for b in after["batches"]]
        assert state["batches"] == expected
        row["state"], row["offset"] = state, log[-1].offset
    for row, _ in rows:
        at = f"0:{row['offset']}"
        done = run(capsys, "record", "replay", "--dialect", dialect, "--at", at, tmp_path / "log.jsonl")
        assert done.rows == [row["state"]]
        assert f"included up to and with 0:{row['offset']};" in done.stderr


@pytest.mark.few(4)
@pytest.mark.parametrize("name", DRAFTS)
@in_process
@given(data=st.data())
def test_decode_prints_every_record(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    """Every record that a dialect has room for is one line, with a type and its group."""
    log = as_log(data.draw(st.lists(DRAFT_RECORDS[name], min_size=1, max_size=3)))

    done = run(
        capsys, "record", "decode", "--dialect", name, dump(tmp_path / "log.jsonl", partial(encode_in, name), log)
    )

    rows_tell(done.rows, log)


@given(st.one_of(state_logs(), state_logs().map(lambda log: log[1:])))
def test_policies_on_released_records(log: Sequence[RecordAt[Any]]) -> None:
    """Policy broker is the plain fold; strict is the fold of what the documents let count, and the differences are its
    findings. Both find the same when asked."""
    broker, strict = (replay_records(KAFKA_4_2, log, policy, audited=True) for policy in Policy)
    expected = replay_strictly(log)

    assert broker.states == replay_records(KAFKA_4_2, log, Policy.BROKER, audited=False).states
    assert strict.states == [state_json(state) for _, state in sorted(expected.states.items())]
    assert broker.findings == strict.findings == [*map(finding_json, expected.violations)]
    assert broker.differences == []
    assert strict.differences == [finding for finding in strict.findings if finding["changes_state"]]
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

    strict = replay_records(DRAFTS[name], log, Policy.STRICT, audited=True)

    assert [found for found in strict.findings if found["rule"] != "deletion_complete"] == []
    assert replay_records(DRAFTS[name], log, Policy.BROKER, audited=True).states == strict.states


def test_strict_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each difference is a line on stderr, every finding a JSON object in the file; stdout stays the contract's, and a
    hostile group cannot steer the terminal."""
    file, findings = dump(tmp_path / "log.jsonl", KAFKA_4_2.encode, ODD), tmp_path / "findings.jsonl"

    strict = run(capsys, "record", "replay", file, "--policy", "strict", "--findings", findings)
    rows = [json.loads(line) for line in findings.read_text("utf-8").splitlines()]
    broker = run(capsys, "record", "replay", file)

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


def test_any_moment_by_policy_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--at an offset or a time equals the replay of a dump that ends there."""
    replayed = partial(run, capsys, "record", "replay", "--policy", "strict")

    any_moment_is_the_replay_of_what_was_there(replayed, tmp_path, KAFKA_4_2.encode)


def test_a_findings_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line with the file's name and exit code 2; no state is printed."""
    file = dump(tmp_path / "log.jsonl", KAFKA_4_2.encode, as_log([snapshot(0, 1)]))

    done = run(capsys, "record", "replay", file, "--policy", "strict", "--findings", tmp_path / "none" / "f.jsonl")

    assert (done.code, done.stdout) == (2, "")
    assert "f.jsonl" in done.stderr.splitlines()[-1]


LIVES: dict[str, Any] = {
    "ii": lambda source: ControlWalk(source, chained=True),
    "i": lambda source: ControlWalk(source, chained=False),
    "iii": CheckpointWalk,
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dialect", LIVES)
def test_draft_logs_replay_to_what_was_acknowledged(
    dialect: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R000-14, R000-44, R000-58, R001-38: after crashes, cleanings, compactions, roll-overs and removals the bytes that
    are left replay to what was done to every offset, whatever was written about it and is gone."""
    life = LIVES[dialect](random.Random(seed))
    for _ in range(120):
        life.step()
    log = (life.leader if dialect != "iii" else life.coordinator).log
    file = tmp_path / "log.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for placed in log.records:
            key, value = encode_in(dialect, placed.record)
            raw = RawRecord(state_partition=0, offset=placed.offset, timestamp_ms=5, key=key, value=value)
            lines.write(dump_line(raw) + "\n")

    states = {row["group"]: row for row in run(capsys, "record", "replay", "--dialect", dialect, file).rows}
    truth = {getattr(key, "group_id", key): told for key, told in life.truth.told().items()}
    assert truth
    for group, (start, offsets) in truth.items():
        assert states[group]["start_offset"] == start
        batches = states[group]["batches"]
        assert {o: (state, count) for first, last, state, count in batches for o in range(first, last + 1)} == offsets


def record(offset: int, key: str, value: str) -> RawRecord:
    return RawRecord(state_partition=5, offset=offset, timestamp_ms=0, key=wire(key), value=wire(value))


def test_control_batches_of_the_drafts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R000-45, R001-02: drafts i and ii lie in control batches of the user's topic; then these are read, and the
    user's records are not."""
    records = [record(4, "W-i-cp-key", "W-i-cp-value"), record(6, "W-i-delta-key", "W-ii-delta-value")]
    users = [record(offset, "W-4x-snapshot-key", "W-42-snapshot-value") for offset in range(4)]
    folder = tmp_path / "orders-5"
    folder.mkdir()
    file = folder / "00.log"
    parts = [batch(users), batch(records[:1], attributes=CONTROL), batch(records[1:], attributes=CONTROL)]
    file.write_bytes(b"".join(parts))

    done = run(capsys, "record", "decode", "--dialect", "ii", file)

    assert [(row["type"], row["offset"], row["partition"]) for row in done.rows] == [
        ("checkpoint", 4, 5),
        ("delta", 6, 5),
    ]


def test_the_tables_take_no_drafts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They have no columns for them."""
    file = tmp_path / "later.jsonl"
    file.write_text(dump_line(record(1, "W-4x-snapshot-key", "W-42-snapshot-value")) + "\n")

    done = run(capsys, "tables", "import", file, "--tables", tmp_path / "iv", "--cluster", "c1", "--dialect", "iv")

    assert "never shipped" in done.complaint(2)
