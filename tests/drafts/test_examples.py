"""The twelve-row tables of the founding documents, replayed row by row."""

from __future__ import annotations

from typing import Any

import pytest
from samples.golden_vectors import SEED, example

from acktrail.model.batches import DeliveryState, StateBatch
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, StateRecord
from acktrail.model.replay import replay
from acktrail.model.share_partition import GroupId, SharePartition, TopicId
from acktrail_drafts.draft_logs import head_index, replay_back_chains, replay_control_log
from acktrail_drafts.draft_records import (
    ControlCheckpoint,
    OffsetWindow,
    effective_window,
    window_violations,
)
from acktrail_drafts.strict_replay import replay_strictly
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.drafts.document_json import read_control_record
from acktrail_simulation.messages.persister_json import read_request

G1 = GroupId("G1")
KEY = SharePartition(group_id=G1, topic_id=TopicId("topic_uuid"), partition=0)
DEFAULT_LIMIT = 5


def control(row: dict[str, Any], *, corrected: bool) -> list[RecordAt[Any]]:
    found = []
    for printed in row["written"]:
        fields = {**printed, **(printed.get("corrected", {}) if corrected else {})}
        found.append(RecordAt(partition=0, offset=printed["offset"], record=read_control_record(fields)))
    return found


def window_of(row: dict[str, Any]) -> OffsetWindow:
    after = row["durable_after"]
    return OffsetWindow(
        start_offset=after["spso_effective"],
        end_offset=after["speo_effective"],
        batches=tuple(
            StateBatch(
                first_offset=b["first"],
                last_offset=b["last"],
                delivery_state=b["state"],
                delivery_count=b["delivery_count"],
            )
            for b in after["batches"]
        ),
    )


def test_the_chained_table_backwards() -> None:
    """R001-03, R001-04, R001-07, R001-08, R001-10: from the head index alone, link by link, each row gives the same."""
    table = example("EX-ii-control-back-offset")
    log: list[RecordAt[Any]] = []
    for row in table["rows"]:
        log += control(row, corrected=True)
        found = replay_back_chains(log, head_index(log))[G1]

        assert (found.chain.broken, found.violations) == (None, ())
        assert found.state is not None
        assert found.state.window == window_of(row)
    assert list(found.chain.offsets) == table["chain"]["walk"]


@pytest.mark.parametrize("name", ["EX-i-control-no-back", "EX-ii-control-back-offset"])
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


@pytest.mark.parametrize("name", ["EX-i-control-no-back", "EX-ii-control-back-offset"])
def test_the_alternative_last_record(name: str) -> None:
    """R000-52, R000-53, R001-12: a checkpoint of epoch 2 instead of the last delta gives the same window."""
    table = example(name)
    log = [found for row in table["rows"] for found in control(row, corrected=True)]
    other = table["alternative_last_record"]
    instead = RecordAt(partition=0, offset=other["offset"], record=read_control_record(other))

    replayed = replay_control_log([*log[:-1], instead])

    assert replayed.violations == ()
    assert replayed.states[G1].window == replay_control_log(log).states[G1].window


def test_notes_on_the_end_offset() -> None:
    """R000-43, R000-54, R001-11, R001-13: the SPEO that the documents' notes give for the control records."""
    table = example("EX-i-control-no-back")
    log: list[RecordAt[Any]] = []
    ends = {}
    for row in table["rows"]:
        log += control(row, corrected=True)
        ends[row["step"]] = replay_control_log(log).states[G1].window.end_offset

    assert {note["after_step"]: note["speo_in_control_records"] for note in table["speo_notes"]}.items() <= ends.items()


def test_checkpoint_pictures() -> None:
    """R000-47, R000-48, R000-50, R001-05: the pictured checkpoints break no rule and hold the rows they picture; equal
    neighbours stay apart."""
    rows = example("EX-i-control-no-back")["rows"]
    for picture in SEED["checkpoint_pictures"]:
        record = read_control_record(picture["record"])
        assert isinstance(record, ControlCheckpoint)
        row = rows[picture["of_step"] - 1]
        replayed = replay_control_log([RecordAt(partition=0, offset=1, record=record)])

        assert replayed.violations == ()
        window = replayed.states[G1].window
        assert (window.start_offset, window.end_offset) == (row["spso"], row["speo"])
        assert window.batches == record.batches


def writes(table: str) -> list[tuple[dict[str, Any], list[StateWrite]]]:
    return [
        (row, [write for request in row["written"] for write in read_request(StateWrite, request)])
        for row in example(table)["rows"]
    ]


def as_shipped(write: StateWrite, *, first: bool) -> StateRecord:
    if first:
        return ShareSnapshot(
            key=KEY,
            snapshot_epoch=0,
            state_epoch=1,
            leader_epoch=0,
            start_offset=write.start_offset,
            delivery_complete_count=None,
            create_timestamp_ms=None,
            write_timestamp_ms=None,
            batches=write.batches,
        )
    return ShareUpdate(
        key=KEY,
        snapshot_epoch=0,
        leader_epoch=0,
        start_offset=write.start_offset,
        delivery_complete_count=None,
        batches=write.batches,
    )


@pytest.mark.parametrize("table", ["EX-iii-write-rpc", "EX-iv-write-rpc"])
def test_shipped_replay_of_the_tables(table: str) -> None:
    """R002-13: the same requests as shipped records give the same rows by policy broker and by policy strict."""
    log: list[RecordAt[StateRecord]] = []
    for row, requests in writes(table):
        for write in requests:
            log.append(RecordAt(partition=0, offset=len(log), record=as_shipped(write, first=not log)))
        strict = replay_strictly(log)

        assert strict.violations == ()
        assert strict.states == replay(found.record for found in log)
        state = strict.states[KEY]
        assert effective_window(state.start_offset, state.batches) == window_of(row)
        assert (state.first_unfinished_offset, state.end_offset) == (
            window_of(row).start_offset,
            window_of(row).end_offset,
        )


def test_gaps_in_iv_and_none_in_iii() -> None:
    """R000-40, R002-14: acknowledging 119 writes 111 to 118 in generation iii and leaves them out in iv."""
    filled = [write for _, found in writes("EX-iii-write-rpc") for write in found][3]
    left = [write for _, found in writes("EX-iv-write-rpc") for write in found][3]

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
