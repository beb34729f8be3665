"""Every draft's dialect against the printed schemas and against itself; records spelt with the documents' field names;
``acktrail record decode`` and ``record replay`` on dumps and logs of drafts, and replay by policy ``strict``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from definitions import dialect_rules
from drivers.command_line import run
from extras.copied_logs.dialect_dumps import ODD, ODD_KEY, as_log, dump, snapshot
from extras.copied_logs.drafts.draft_lives import DRAFT_RECORDS, state_logs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples.dump_lines import dump_line
from samples.golden_vectors import wire
from samples.random_records import any_batches
from state_topics.segment_bytes import CONTROL, segment_file
from state_topics.segment_bytes import batch as segment

from acktrail.errors import InputError, MalformedRecord, UnsupportedRecord
from acktrail.format.wire.raw_record import RawRecord
from acktrail.model.batches import StateBatch
from acktrail.model.records import RecordAt
from acktrail_copied_logs.copied_files import dialect_named
from acktrail_copied_logs.dialects import CANDIDATES, KAFKA_4_2, Policy, state_json
from acktrail_copied_logs.drafts.draft_dialects import DRAFTS
from acktrail_copied_logs.drafts.draft_records import (
    finding_json,
)
from acktrail_copied_logs.drafts.strict_replay import replay_strictly
from acktrail_copied_logs.replay_files import replay_records
from acktrail_simulation.drafts.record_encoders import encode_in
from acktrail_simulation.messages.batch_json import batch_fields, read_batches

in_process = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", DRAFTS)
@given(data=st.data(), tail=st.binary(min_size=2, max_size=9))
def test_round_trip(name: str, data: st.DataObject, tail: bytes) -> None:
    """R000-29, R001-39: every record that a dialect has room for decodes from its own bytes. Cut short at any byte they
    are a MalformedRecord that names a byte of them, or another record type whose key ends there (a checkpoint's key
    begins a delta's when the delta is written as version 0). Bytes after the message of a draft are refused: nobody
    specified what they mean."""
    decode = DRAFTS[name].decode
    record = data.draw(DRAFT_RECORDS[name])
    key, value = encode_in(name, record)

    assert decode(key, value) == record
    dialect_rules.every_cut_is_found(DRAFTS[name].decode, (key, value))
    for longer in ((key + tail, value), *([] if value is None else [(key, value + tail)])):
        with pytest.raises(MalformedRecord):
            decode(*longer)


@pytest.mark.parametrize("name", DRAFTS)
@given(key=st.one_of(st.none(), st.binary(max_size=60)), value=st.one_of(st.none(), st.binary(max_size=120)))
def test_random_bytes(name: str, key: bytes | None, value: bytes | None) -> None:
    """Any bytes are a record or an InputError, and a record can be written again."""
    with suppress(InputError):
        record = DRAFTS[name].decode(key, value)
        assert DRAFTS[name].decode(*encode_in(name, record)) == record


def test_a_delta_key_is_read_in_both_versions() -> None:
    """R000-24, ER-3: version 1 is what is written; version 0 with an index byte is the same delta."""
    key, value = wire("W-iii-delta-key-7"), wire("W-iii-delta-value")
    decode = DRAFTS["iii"].decode

    assert decode(b"\x00\x00" + key[2:], value) == decode(key, value)
    with pytest.raises(MalformedRecord):
        decode(key[:-1], value)


@pytest.mark.parametrize(
    ("name", "key", "value", "number"),
    [
        pytest.param("i", "00000004", "W-i-cp-value", 4, id="leader change is no state"),
        pytest.param("ii", "00010005", "W-i-cp-value", 1, id="control key version 1"),
        pytest.param("iii", "0002" + "00" * 30, "W-iii-cp-value", 2, id="iii key version 2"),
    ],
)
def test_unknown_numbers_are_named(name: str, key: str, value: str, number: int) -> None:
    """R000-24: a type or version nobody specified says which one it is."""
    with pytest.raises(UnsupportedRecord) as caught:
        DRAFTS[name].decode(bytes.fromhex(key), wire(value))

    assert caught.value.number == number


@pytest.mark.parametrize("name", DRAFTS)
def test_a_later_value_version_is_unsupported(name: str) -> None:
    """A value version above the known one is named, never guessed at."""
    key = bytes.fromhex("00000005") if name in ("i", "ii") else wire("W-4x-snapshot-key")
    dialect_rules.a_later_version_is_named(DRAFTS[name], key)


@pytest.mark.parametrize("name", DRAFTS)
def test_huge_counts_allocate_nothing(name: str) -> None:
    """A value that announces two thousand million batches is refused at its count."""
    if name in ("i", "ii"):
        value = wire("W-i-cp-value")[:-4] + b"\x7f\xff\xff\xff"
    elif name == "iii":
        value = wire("W-iii-cp-value")[:12] + b"\x7f\xff\xff\xff"
    else:
        value = bytes({"iv": 18, "iv-json": 12}[name]) + b"\xff\xff\xff\xff\x07"
    key = wire("W-i-cp-key") if name in ("i", "ii") else wire("W-4x-snapshot-key")

    with pytest.raises(MalformedRecord, match="announced"):
        DRAFTS[name].decode(key, value)


def test_drafts_are_found_by_name_and_never_probed() -> None:
    """R000-45, R001-02: control types 5 and 6 and the other drafts are read when asked for by name, never found."""
    assert {name: dialect_named(name) for name in DRAFTS} == DRAFTS
    assert not {candidate.name for candidate in CANDIDATES} & set(DRAFTS)


@pytest.mark.parametrize(
    ("name", "key", "value", "at"),
    [
        pytest.param("i", "W-i-cp-key", "W-i-cp-value", 8, id="start offset"),
        pytest.param("i", "W-i-cp-key", "W-i-cp-value", 16, id="end offset"),
        pytest.param("ii", "W-i-delta-key", "W-ii-delta-value", 8, id="back offset"),
    ],
)
def test_control_records_have_real_offsets(name: str, key: str, value: str, at: int) -> None:
    """R000-47, R001-07: no document gives -1 a meaning in a control record, so it is refused at its byte."""
    negative = wire(value)[:at] + b"\xff" * 8 + wire(value)[at + 8 :]

    with pytest.raises(MalformedRecord, match="negative") as caught:
        DRAFTS[name].decode(wire(key), negative)
    assert caught.value.position == at


@given(any_batches, st.randoms(use_true_random=False))
def test_old_and_new_names_mean_the_same(batches: tuple[StateBatch, ...], random: Any) -> None:
    """R002-10, R002-11, ER-5: a batch under any mix of old and new names, or as a list, is the same batch."""
    spelt: list[Any] = []
    for each in batches:
        fields = batch_fields(each)
        for new, old in (("FirstOffset", "BaseOffset"), ("DeliveryState", "State")):
            if random.random() < 0.5:
                fields[old] = fields.pop(new)
        spelt.append(fields if random.random() < 0.7 else list(batch_fields(each).values()))

    assert read_batches({random.choice(("States", "StateBatches")): spelt}) == batches


@pytest.mark.few(4)
@pytest.mark.parametrize("name", DRAFTS)
@in_process
@given(data=st.data())
def test_decode_prints_every_record(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    """Every record that a draft has room for is one line, in their order, with a type and its group."""
    log = as_log(data.draw(st.lists(DRAFT_RECORDS[name], min_size=1, max_size=3)))
    file = dump(tmp_path / "log.jsonl", partial(encode_in, name), log)

    rows = run(capsys, "record", "decode", "--dialect", name, file).rows

    assert [row["decode_status"] for row in rows] == ["decoded"] * len(log)
    assert [row["offset"] for row in rows] == [placed.offset for placed in log]
    for row, placed in zip(rows, log, strict=True):
        assert row["group"] == getattr(placed.record, "key", placed.record).group_id
        assert row["type"].rpartition("_")[2] in type(placed.record).__name__.lower()
        if hasattr(placed.record, "batches"):
            assert len(row["batches"]) == len(placed.record.batches)


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


def test_a_findings_file_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line with the file's name and exit code 2; no state is printed."""
    file = dump(tmp_path / "log.jsonl", KAFKA_4_2.encode, as_log([snapshot(0, 1)]))

    done = run(capsys, "record", "replay", file, "--policy", "strict", "--findings", tmp_path / "none" / "f.jsonl")

    assert (done.code, done.stdout) == (2, "")
    assert "f.jsonl" in done.stderr.splitlines()[-1]


def record(offset: int, key: str, value: str) -> RawRecord:
    return RawRecord(state_partition=5, offset=offset, timestamp_ms=0, key=wire(key), value=wire(value))


def test_control_batches_of_the_drafts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R000-45, R001-02: drafts i and ii lie in control batches of the user's topic; then these are read, and the
    user's records are not."""
    records = [record(4, "W-i-cp-key", "W-i-cp-value"), record(6, "W-i-delta-key", "W-ii-delta-value")]
    users = [record(offset, "W-4x-snapshot-key", "W-42-snapshot-value") for offset in range(4)]
    parts = [segment(users), segment(records[:1], attributes=CONTROL), segment(records[1:], attributes=CONTROL)]
    file = segment_file(tmp_path, *parts, partition="orders-5")

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
