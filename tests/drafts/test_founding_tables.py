"""The twelve-row tables of the founding documents, replayed row by row, in dumps and in memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import run
from samples.dialect_dumps import KEY, as_log, dump
from samples.golden_vectors import SEED, example

from acktrail.model.batches import DeliveryState, StateBatch
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate
from acktrail.model.replay import Policy, replay
from acktrail.model.share_partition import GroupId
from acktrail.offline.replay_files import replay_records
from acktrail_drafts.dialects import DRAFTS
from acktrail_drafts.draft_logs import head_index, replay_back_chains, replay_control_log
from acktrail_drafts.draft_records import (
    Checkpoint,
    ControlCheckpoint,
    Delta,
    DraftSnapshot,
    DraftUpdate,
    OffsetWindow,
    effective_window,
    window_violations,
)
from acktrail_drafts.strict_replay import replay_strictly
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.drafts.document_json import read_control_record
from acktrail_simulation.drafts.record_encoders import encode_in
from acktrail_simulation.messages.persister_json import read_request

G1 = GroupId("G1")
DEFAULT_LIMIT = 5
TABLES = {
    "i": "EX-i-control-no-back",
    "ii": "EX-ii-control-back-offset",
    "iii": "EX-iii-write-rpc",
    "iv": "EX-iv-write-rpc",
}
CONTROL = [TABLES["i"], TABLES["ii"]]
FORM = (
    *("group", "topic_id", "partition", "state_epoch", "snapshot_epoch", "leader_epoch", "start_offset"),
    *("delivery_complete_count", "batches"),
)
Row = dict[str, Any]


def control(row: Row, *, corrected: bool = True) -> list[RecordAt[Any]]:
    found = []
    for printed in row["written"]:
        fields = {**printed, **(printed.get("corrected", {}) if corrected else {})}
        found.append(RecordAt(partition=0, offset=printed["offset"], record=read_control_record(fields)))
    return found


def writes(row: Row) -> list[StateWrite]:
    return [write for request in row["written"] for write in read_request(StateWrite, request)]


def batches_of(row: Row) -> list[list[int]]:
    return [[b["first"], b["last"], b["state"], b["delivery_count"]] for b in row["durable_after"]["batches"]]


def window_of(row: Row) -> OffsetWindow:
    after, fields = row["durable_after"], ("first_offset", "last_offset", "delivery_state", "delivery_count")
    return OffsetWindow(
        start_offset=after["spso_effective"],
        end_offset=after["speo_effective"],
        batches=tuple(StateBatch(**dict(zip(fields, each, strict=True))) for each in batches_of(row)),
    )


def drafted(dialect: str, number: int, write: StateWrite) -> Any:
    """The record of a table's write, of which `number` came before."""
    fields: dict[str, Any] = {"key": KEY, "start_offset": write.start_offset, "batches": write.batches}
    if dialect == "iv":
        return (DraftUpdate if number else DraftSnapshot)(state_epoch=1, snapshot_epoch=0, **fields)
    if number:
        return Delta(delta_index=number - 1, checkpoint_epoch=0, **fields)
    return Checkpoint(checkpoint_epoch=0, **fields)


def shipped(number: int, write: StateWrite) -> ShareSnapshot | ShareUpdate:
    own: dict[str, Any] = {"key": KEY, "snapshot_epoch": 0, "leader_epoch": 0, "delivery_complete_count": None}
    own |= {"start_offset": write.start_offset, "batches": write.batches}
    if number:
        return ShareUpdate(**own)
    return ShareSnapshot(state_epoch=1, create_timestamp_ms=None, write_timestamp_ms=None, **own)


@pytest.mark.parametrize("dialect", TABLES)
def test_printed_tables_at_the_command_line(dialect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R000-01 to R000-03, R000-28, R000-35, R000-38 to R000-43, R000-49, R000-52 to R000-55, R001-05, R001-06, R001-08,
    R001-11 to R001-14, R002-12 to R002-14: a dump of a printed table, replayed row by row, gives each row's SPSO and
    batches in the form of the offline contract, by either policy and without a finding; --at a row's last record gives
    that row."""
    log, states = list[RecordAt[Any]](), list[tuple[int, Row]]()
    for row in example(TABLES[dialect])["rows"]:
        if dialect in ("i", "ii"):
            log += control(row)
        else:
            written = [drafted(dialect, number, write) for number, write in enumerate(writes(row), start=len(log))]
            log = as_log([*(each.record for each in log), *written])
        file = dump(tmp_path / "log.jsonl", partial(encode_in, dialect), log)
        (state,) = run(capsys, "record", "replay", "--dialect", dialect, file).rows
        strict = replay_records(DRAFTS[dialect], log, Policy.STRICT, audited=True)
        assert (strict.states, strict.findings) == ([state], [])

        assert tuple(state) == FORM
        assert state["start_offset"] == row["durable_after"]["spso_effective"]
        assert state["batches"] == batches_of(row)
        states.append((log[-1].offset, state))
    for offset, state in states:
        done = run(capsys, "record", "replay", "--dialect", dialect, "--at", f"0:{offset}", tmp_path / "log.jsonl")
        assert done.rows == [state]
        assert f"included up to and with 0:{offset};" in done.stderr


def test_the_chained_table_backwards() -> None:
    """R001-03, R001-04, R001-07, R001-08, R001-10: from the head index alone, link by link, each row gives the same."""
    table = example(TABLES["ii"])
    log: list[RecordAt[Any]] = []
    for row in table["rows"]:
        log += control(row)
        found = replay_back_chains(log, head_index(log))[G1]

        assert (found.broken, found.violations) == (None, ())
        assert found.state is not None
        assert found.state.window == window_of(row)
    assert list(found.offsets) == table["chain"]["walk"]


@pytest.mark.parametrize("name", CONTROL)
def test_the_tables_as_printed(name: str) -> None:
    """R001-09, ER-1: with the misprinted first checkpoint the replay is off by its ten offsets, until row 3."""
    log: list[RecordAt[Any]] = []
    for row in example(name)["rows"]:
        log += control(row, corrected=False)
        window = replay_control_log(log).states[G1].window
        if row["step"] < 3:
            assert (window.start_offset, window.end_offset) == (110, 110)
        else:
            assert window == window_of(row)


@pytest.mark.parametrize("name", CONTROL)
def test_the_alternative_last_record(name: str) -> None:
    """R000-52, R000-53, R001-12: a checkpoint of epoch 2 instead of the last delta gives the same window."""
    table = example(name)
    log = [found for row in table["rows"] for found in control(row)]
    other = table["alternative_last_record"]
    instead = RecordAt(partition=0, offset=other["offset"], record=read_control_record(other))

    replayed = replay_control_log([*log[:-1], instead])

    assert replayed.violations == ()
    assert replayed.states[G1].window == replay_control_log(log).states[G1].window


def test_notes_on_the_end_offset() -> None:
    """R000-43, R000-54, R001-11, R001-13: the SPEO that the documents' notes give for the control records."""
    table = example(TABLES["i"])
    log: list[RecordAt[Any]] = []
    ends = {}
    for row in table["rows"]:
        log += control(row)
        ends[row["step"]] = replay_control_log(log).states[G1].window.end_offset

    assert {note["after_step"]: note["speo_in_control_records"] for note in table["speo_notes"]}.items() <= ends.items()


def test_checkpoint_pictures() -> None:
    """R000-47, R000-48, R000-50, R001-05: the pictured checkpoints break no rule and hold the rows they picture; equal
    neighbours stay apart."""
    rows = example(TABLES["i"])["rows"]
    for picture in SEED["checkpoint_pictures"]:
        record = read_control_record(picture["record"])
        assert isinstance(record, ControlCheckpoint)
        row = rows[picture["of_step"] - 1]
        replayed = replay_control_log([RecordAt(partition=0, offset=1, record=record)])

        assert replayed.violations == ()
        window = replayed.states[G1].window
        assert (window.start_offset, window.end_offset) == (row["spso"], row["speo"])
        assert window.batches == record.batches


@pytest.mark.parametrize("dialect", ["iii", "iv"])
def test_shipped_replay_of_the_tables(dialect: str) -> None:
    """R002-13: the same requests as shipped records give the same rows by policy broker and by policy strict."""
    records: list[ShareSnapshot | ShareUpdate] = []
    for row in example(TABLES[dialect])["rows"]:
        records += [shipped(number, write) for number, write in enumerate(writes(row), start=len(records))]
        strict = replay_strictly(as_log(records))

        assert strict.violations == ()
        assert strict.states == replay(records)
        state = strict.states[KEY]
        assert effective_window(state.start_offset, state.batches) == window_of(row)
        assert (state.first_unfinished_offset, state.end_offset) == (
            window_of(row).start_offset,
            window_of(row).end_offset,
        )


def test_gaps_in_iv_and_none_in_iii() -> None:
    """R000-40, R002-14: acknowledging 119 writes 111 to 118 in generation iii and leaves them out in iv."""
    filled, left = (
        [write for row in example(TABLES[name])["rows"] for write in writes(row)][3] for name in ("iii", "iv")
    )

    assert [(b.first_offset, b.last_offset, b.delivery_count) for b in filled.batches] == [(111, 118, 0), (119, 119, 1)]
    assert [(b.first_offset, b.last_offset) for b in left.batches] == [(119, 119)]


def test_every_durable_window_of_the_tables_is_sound() -> None:
    """R000-65, R001-25, R002-65, R002-74: no window of any table breaks a rule, nor the limit of delivery attempts."""
    for table in SEED["examples"]:
        for row in table["rows"]:
            window = window_of(row)
            assert window_violations(window.start_offset, window.end_offset, window.batches) == (), (
                table["id"],
                row["step"],
            )
            assert all(0 <= b.delivery_count <= DEFAULT_LIMIT for b in window_of(row).batches)


def test_no_acquired_state_is_written() -> None:
    """R000-65, R002-74: codes 0, 2 and 4 rest; 1 is a lock and is never written (R000-02)."""
    names = {int(number): text.split(" ")[0].upper() for number, text in SEED["delivery_states"].items()}

    assert {state.value: state.name for state in DeliveryState} == names
    written = {
        b["State"] for t in SEED["examples"] for r in t["rows"] for w in r["written"] for b in w.get("States", [])
    }
    assert written <= {0, 2, 4}
