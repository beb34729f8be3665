"""Logs that no broker could have written, record by record: strict replay names the rule and the record."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest
from extras.copied_logs.dialect_dumps import KEY
from jobs import world
from jobs.world import batch

from acktrail.model.batches import StateBatch
from acktrail.model.records import RecordAt, ShareSnapshot, Tombstone
from acktrail.model.rules.catalogue import parse_rules
from acktrail.model.share_partition import GroupId
from acktrail_copied_logs.copied_files import dialect_named
from acktrail_copied_logs.dialects import Policy
from acktrail_copied_logs.drafts.draft_records import Checkpoint, ControlCheckpoint, ControlDelta, Delta, DeltaTombstone
from acktrail_copied_logs.replay_files import replay_records


def control(epoch: int, start: int = 0, end: int = 99) -> ControlCheckpoint:
    """A checkpoint of generations i and ii."""
    offsets: dict[str, Any] = {"start_offset": start, "end_offset": end, "batches": ()}
    return ControlCheckpoint(group_id=GroupId("G1"), checkpoint_epoch=epoch, **offsets)


def changed(epoch: int, *batches: StateBatch, back: int | None = None) -> ControlDelta:
    """A delta of generations i and ii."""
    return ControlDelta(group_id=GroupId("G1"), checkpoint_epoch=epoch, back_offset=back, batches=batches)


def checkpoint(epoch: int) -> Checkpoint:
    """A checkpoint of generation iii."""
    return Checkpoint(key=KEY, checkpoint_epoch=epoch, start_offset=0, batches=())


def delta(epoch: int, index: int, *batches: StateBatch) -> Delta:
    """A delta of generation iii."""
    return Delta(key=KEY, delta_index=index, checkpoint_epoch=epoch, start_offset=None, batches=batches)


def released(one: StateBatch) -> ShareSnapshot:
    """A snapshot of a release, with one batch."""
    return world.snapshot(KEY, 0, (one,), snapshot_epoch=0)


def epoch(number: int, *indices: int) -> list[Any]:
    """Generation iii: a checkpoint and its deltas."""
    return [checkpoint(number), *(delta(number, index) for index in indices)]


GONE, DELTA_GONE = Tombstone(key=KEY), DeltaTombstone(key=KEY, delta_index=0)
ACKED, AGAIN, ARCHIVING, TOO_OFTEN = batch(5, 5, 2), batch(5, 5, 0, 2), batch(5, 5, 3), batch(5, 5, 0, 26)
Log = dict[int, Any] | list[Any]
"""Records by offset, or from offset 0 on."""
SHRUNK = [*epoch(0, 0, 1, 2), *epoch(1, 0, 1), *epoch(2, 0)]
KNOWN_END = [*epoch(0, 0, 1), *epoch(1, 2, 0, 1), *epoch(2, 2), *epoch(3, 0)]
IMPOSSIBLE: dict[str, tuple[str, Log, dict[int, str]]] = {
    "a delta without a checkpoint": ("i", {4: changed(1, ACKED)}, {4: "delta_has_checkpoint"}),
    "a later epoch before its checkpoint": ("i", {4: changed(5), 6: control(3)}, {4: "delta_has_checkpoint"}),
    "a record is available again": (
        "i",
        [control(1), changed(1, ACKED), changed(1, AGAIN)],
        {2: "delivery_not_undone"},
    ),
    "a record below the start offset": ("i", [control(1, start=6), changed(1, ACKED)], {1: "batch_within_window"}),
    "a link skips a record": ("ii", [control(1), changed(1, ACKED, back=0), changed(1, back=0)], {2: "chain_unbroken"}),
    "an older link skips a record": (
        "ii",
        [control(1), changed(1, ACKED, back=0), changed(1, back=0), control(2)],
        {2: "chain_unbroken"},
    ),
    "an epoch is left out": ("ii", [control(1), control(3)], {1: "checkpoint_epoch_step"}),
    "the end lies before the start": ("ii", [control(1, start=9, end=8)], {0: "start_le_end"}),
    "another epoch": ("ii", [control(1), changed(9, back=0)], {1: "chain_unbroken delta_epoch_matches"}),
    "a state that is never at rest": ("ii", [control(1), changed(1, ARCHIVING, back=0)], {1: "state_is_durable"}),
    "an index begins again at a checkpoint": ("iii", [*epoch(0, 0, 1), *epoch(1, 0)], {4: "delta_index_not_reset"}),
    "an index is left out": ("iii", epoch(0, 0, 2), {2: "delta_index_step"}),
    "an index comes twice": ("iii", epoch(0, 0, 1, 1), {3: "delta_index_not_reused delta_index_step"}),
    "a delta is removed first": ("iii", [*epoch(0, 0), DELTA_GONE], {2: "deletion_order"}),
    "a checkpoint without a start": ("iii", [replace(checkpoint(0), start_offset=None)], {0: "checkpoint_has_start"}),
    "the range of the index shrinks": ("iii", SHRUNK, {5: "delta_index_not_reset", 8: "delta_index_step"}),
    "compacted: an index of the newest epoch is missing": (
        "iii",
        {3: checkpoint(2), 4: delta(2, 7), 6: delta(2, 9)},
        {6: "delta_index_step"},
    ),
    "compacted: a delta after the removal": (
        "iii",
        {3: checkpoint(2), 4: GONE, 6: delta(2, 9)},
        {6: "deletion_complete delta_has_checkpoint"},
    ),
    "compacted: a later epoch first": ("iii", {3: delta(5, 1), 6: checkpoint(2)}, {3: "delta_has_checkpoint"}),
    "iii: available again": ("iii", [*epoch(0), delta(0, 0, ACKED), delta(0, 1, AGAIN)], {2: "delivery_not_undone"}),
    "4.0: a state that came with 4.3": ("4.0", [released(ARCHIVING)], {0: "state_is_durable"}),
    "a count that no configuration allows": ("4.2", [released(TOO_OFTEN)], {0: "delivery_count_range"}),
}
"""By name: the dialect, the records, and the rules that they break, by offset."""
POSSIBLE: dict[str, tuple[str, Log]] = {
    "i, cleaned": ("i", {4: changed(1, ACKED), 6: control(2), 9: control(5)}),
    "ii, cleaned": ("ii", {4: changed(1, ACKED, back=3), 5: changed(1, back=4), 6: control(2)}),
    "an index continues over a checkpoint": ("iii", [*epoch(0, 0), *epoch(1, 1)]),
    "the end of the range is known": ("iii", KNOWN_END),
    "a share partition came back": ("iii", [*epoch(0, 0), GONE, DELTA_GONE, *epoch(0, 0)]),
    "4.4: archiving": ("4.4", [released(ARCHIVING)]),
}


def found(name: str, log: Log) -> dict[Any, str]:
    offsets = log.items() if isinstance(log, dict) else enumerate(log)
    records = [RecordAt(partition=0, offset=offset, record=record) for offset, record in offsets]
    rules: dict[Any, list[str]] = {}
    for finding in replay_records(dialect_named(name), records, Policy.STRICT, audited=True).findings:
        rules.setdefault(finding["offset"], []).append(str(finding["rule"]))
    return {offset: " ".join(sorted(broken)) for offset, broken in rules.items()}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_log_that_no_broker_wrote_is_found(case: str) -> None:
    """R000-15, R000-16, R000-18, R000-19, R000-28, R000-29, R001-07, R001-10, R002-74: each record that its
    writer could not have put there is a finding, and no other record is."""
    name, log, rules = IMPOSSIBLE[case]

    assert found(name, log) == rules


@pytest.mark.parametrize("case", POSSIBLE)
def test_a_log_that_a_broker_or_cleaner_left_is_not_blamed(case: str) -> None:
    """R000-20, R000-58: what looks alike and is legal is no finding."""
    assert found(*POSSIBLE[case]) == {}


def test_every_rule_of_the_drafts_has_a_log_that_breaks_it() -> None:
    """A new rule needs one, too; what a cleaner removed shows only beside the whole log (test_vectors.py)."""
    catalogue = parse_rules(files("acktrail_copied_logs").joinpath("rules.toml").read_text("utf-8"), "rules.toml")
    broken = {rule for *_, rules in IMPOSSIBLE.values() for names in rules.values() for rule in names.split()}

    assert {rule.id for rules in catalogue.values() for rule in rules} - broken == {"no_missing_at_or_above_checkpoint"}
