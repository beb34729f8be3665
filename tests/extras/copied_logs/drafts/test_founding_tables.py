"""The twelve-row tables of the founding documents, replayed row by row, in dumps and in memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import run
from extras.copied_logs.dialect_dumps import KEY, as_log, dump
from extras.copied_logs.drafts.draft_lives import windows
from jobs.world import batch
from samples.golden_vectors import SEED, example

from acktrail.model.batches import StateBatch, prune_state_batches
from acktrail.model.records import RecordAt
from acktrail.model.share_partition import GroupId
from acktrail_copied_logs.dialects import Policy
from acktrail_copied_logs.drafts.draft_dialects import DRAFTS
from acktrail_copied_logs.drafts.draft_logs import replay_control_log
from acktrail_copied_logs.drafts.draft_records import (
    Checkpoint,
    ControlCheckpoint,
    Delta,
    DraftSnapshot,
    DraftUpdate,
)
from acktrail_copied_logs.replay_files import replay_records
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.drafts.document_json import read_control_record
from acktrail_simulation.drafts.record_encoders import encode_in
from acktrail_simulation.messages.persister_json import read_request

G1 = GroupId("G1")
TABLES = {
    "i": "EX-i-control-no-back",
    "ii": "EX-ii-control-back-offset",
    "iii": "EX-iii-write-rpc",
    "iv": "EX-iv-write-rpc",
}
CONTROL = [TABLES["i"], TABLES["ii"]]
FORM = (
    *("group", "topic_id", "partition", "state_epoch", "snapshot_epoch", "leader_epoch"),
    *("start_offset", "first_unfinished_offset", "end_offset", "delivery_complete_count", "batches"),
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


def window_of(row: Row) -> tuple[int, int, tuple[StateBatch, ...]]:
    """Effective start and end offset, and what is in flight."""
    after = row["durable_after"]
    found = ([b["first"], b["last"], b["state"], b["delivery_count"]] for b in after["batches"])
    return after["spso_effective"], after["speo_effective"], tuple(batch(*each) for each in found)


def drafted(dialect: str, number: int, write: StateWrite) -> Any:
    """The record of a table's write, of which `number` came before."""
    fields: dict[str, Any] = {"key": KEY, "start_offset": write.start_offset, "batches": write.batches}
    if dialect == "iv":
        return (DraftUpdate if number else DraftSnapshot)(state_epoch=1, snapshot_epoch=0, **fields)
    if number:
        return Delta(delta_index=number - 1, checkpoint_epoch=0, **fields)
    return Checkpoint(checkpoint_epoch=0, **fields)


@pytest.mark.parametrize("dialect", TABLES)
def test_printed_tables_at_the_command_line(dialect: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """R000-01 to R000-03, R000-28, R000-35, R000-38 to R000-43, R000-49, R000-52 to R000-55, R001-05, R001-06, R001-08,
    R001-11 to R001-14, R002-12 to R002-14: a dump of a printed table, replayed row by row, gives each row's recorded
    start offset, SPSO, SPEO and batches in the form of the offline contract, by either policy and without a finding;
    --at a row's last record gives that row."""
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
        assert state["start_offset"] == row["durable_after"]["start_offset_recorded"]
        first = state["first_unfinished_offset"]
        in_flight = prune_state_batches((batch(*each) for each in state["batches"]), first)
        assert (first, state["end_offset"], in_flight) == window_of(row)
        states.append((log[-1].offset, state))
    for offset, state in states:
        done = run(capsys, "record", "replay", "--dialect", dialect, "--at", f"0:{offset}", tmp_path / "log.jsonl")
        assert done.rows == [state]
        assert f"included up to and with 0:{offset};" in done.stderr


@pytest.mark.parametrize("name", CONTROL)
def test_the_tables_as_printed(name: str) -> None:
    """R000-43, R000-54, R001-09, R001-11, R001-13, ER-1: with the misprinted first checkpoint the replay is off by its
    ten offsets, until row 3; then start and end offset are each row's."""
    log: list[RecordAt[Any]] = []
    for row in example(name)["rows"]:
        log += control(row, corrected=False)
        (window,) = windows(replay_control_log(log).states).values()
        assert window == ((110, 110, ()) if row["step"] < 3 else window_of(row))


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
        assert windows(replayed.states) == {G1: (row["spso"], row["speo"], record.batches)}
