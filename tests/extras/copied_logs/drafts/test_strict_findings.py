"""Logs that no broker could have written, record by record: strict replay names the rule and the record."""

from __future__ import annotations

from typing import Any

import pytest
from extras.copied_logs.dialect_dumps import KEY
from jobs import world
from jobs.world import batch

from acktrail.model.batches import StateBatch
from acktrail.model.records import RecordAt, Tombstone
from acktrail.model.share_partition import GroupId
from acktrail_copied_logs.copied_files import dialect_named
from acktrail_copied_logs.dialects import Policy
from acktrail_copied_logs.drafts.draft_records import Checkpoint, ControlCheckpoint, ControlDelta, Delta, DeltaTombstone
from acktrail_copied_logs.replay_files import replay_records

Batches = tuple[StateBatch, ...]


def control(epoch: int, start: int = 0, end: int = 99) -> ControlCheckpoint:
    """A checkpoint of generations i and ii."""
    return ControlCheckpoint(
        group_id=GroupId("G1"), checkpoint_epoch=epoch, start_offset=start, end_offset=end, batches=()
    )


def changed(epoch: int, *batches: StateBatch, back: int | None = None) -> ControlDelta:
    """A delta of generations i and ii."""
    return ControlDelta(group_id=GroupId("G1"), checkpoint_epoch=epoch, back_offset=back, batches=batches)


def checkpoint(epoch: int, start: int = 0) -> Checkpoint:
    """A checkpoint of generation iii."""
    return Checkpoint(key=KEY, checkpoint_epoch=epoch, start_offset=start, batches=())


def delta(epoch: int, index: int, *batches: StateBatch) -> Delta:
    """A delta of generation iii."""
    return Delta(key=KEY, delta_index=index, checkpoint_epoch=epoch, start_offset=None, batches=batches)


GONE, DELTA_GONE = Tombstone(key=KEY), DeltaTombstone(key=KEY, delta_index=0)
ACKED, AGAIN, ARCHIVING, BELOW = batch(5, 5, 2), batch(5, 5, 0, 2), batch(5, 5, 3), batch(3, 5, 2)
IMPOSSIBLE: dict[str, tuple[str, dict[int, Any], list[tuple[int, str]]]] = {
    "i: deltas without a checkpoint": (
        "i",
        {4: changed(1, ACKED), 5: changed(1)},
        [(4, "delta_has_checkpoint"), (5, "delta_has_checkpoint")],
    ),
    "i: a delta before a checkpoint of an earlier epoch": (
        "i",
        {4: changed(5, ACKED), 6: control(3)},
        [(4, "delta_has_checkpoint")],
    ),
    "i: a finished record is available again": (
        "i",
        {0: control(1), 1: changed(1, ACKED), 2: changed(1, AGAIN)},
        [(2, "delivery_not_undone")],
    ),
    "i: a delta about records below the start offset": (
        "i",
        {0: control(1, start=4), 1: changed(1, BELOW)},
        [(1, "batch_within_window")],
    ),
    "ii: a back offset skips a record": (
        "ii",
        {0: control(1), 1: changed(1, ACKED, back=0), 2: changed(1, back=0)},
        [(2, "chain_unbroken")],
    ),
    "ii: a back offset skips a record before the newest checkpoint": (
        "ii",
        {0: control(1), 1: changed(1, ACKED, back=0), 2: changed(1, back=0), 3: control(2)},
        [(2, "chain_unbroken")],
    ),
    "ii: a checkpoint epoch is left out": ("ii", {0: control(1), 1: control(3)}, [(1, "checkpoint_epoch_step")]),
    "ii: a window ends before it begins": ("ii", {0: control(1, start=9, end=8)}, [(0, "start_le_end")]),
    "ii: a delta of another epoch": (
        "ii",
        {0: control(1), 1: changed(9, back=0), 2: changed(1, ACKED, back=0)},
        [(1, "delta_epoch_matches"), (1, "chain_unbroken")],
    ),
    "ii: a state that is never at rest": (
        "ii",
        {0: control(1), 1: changed(1, ARCHIVING, back=0)},
        [(1, "state_is_durable")],
    ),
    "iii: an index starts again at a checkpoint": (
        "iii",
        {0: checkpoint(0), 1: delta(0, 0), 2: delta(0, 1), 3: checkpoint(1), 4: delta(1, 0)},
        [(4, "delta_index_not_reset")],
    ),
    "iii: the range of the index becomes smaller": (
        "iii",
        {
            0: checkpoint(0),
            **{1 + n: delta(0, n) for n in range(3)},
            4: checkpoint(1),
            **{5 + n: delta(1, n) for n in range(2)},
            7: checkpoint(2),
            8: delta(2, 0),
        },
        [(5, "delta_index_not_reset"), (8, "delta_index_step")],
    ),
    "iii: a delta of the newest epoch is missing in a compacted log": (
        "iii",
        {3: checkpoint(2), 4: delta(2, 7), 6: delta(2, 9)},
        [(6, "delta_index_step")],
    ),
    "iii: a delta after the removal, in a compacted log": (
        "iii",
        {3: checkpoint(2), 4: GONE, 6: delta(2, 9)},
        [(6, "delta_has_checkpoint"), (6, "deletion_complete")],
    ),
    "iii: a delta before a checkpoint of an earlier epoch, in a compacted log": (
        "iii",
        {3: delta(5, 1), 6: checkpoint(2)},
        [(3, "delta_has_checkpoint")],
    ),
    "iii: a finished record is available again": (
        "iii",
        {0: checkpoint(0), 1: delta(0, 0, ACKED), 2: delta(0, 1, AGAIN)},
        [(2, "delivery_not_undone")],
    ),
    "4.0: a state that came with 4.3": (
        "4.0",
        {0: world.snapshot(KEY, 0, (ARCHIVING,), snapshot_epoch=0)},
        [(0, "state_is_durable")],
    ),
    "4.2: a count that no configuration allows": (
        "4.2",
        {0: world.snapshot(KEY, 0, (batch(5, 5, 0, 26),), snapshot_epoch=0)},
        [(0, "delivery_count_range")],
    ),
}
"""By name: the dialect, the records by offset, the rules that they break."""
POSSIBLE: dict[str, tuple[str, dict[int, Any]]] = {
    "i: what a cleaner left before a checkpoint": ("i", {4: changed(1, ACKED), 6: control(2), 9: control(5)}),
    "ii: what a cleaner left before a checkpoint": (
        "ii",
        {4: changed(1, ACKED, back=3), 5: changed(1, back=4), 6: control(2)},
    ),
    "iii: an index goes on over a checkpoint": (
        "iii",
        {0: checkpoint(0), 1: delta(0, 0), 2: checkpoint(1), 3: delta(1, 1)},
    ),
    "iii: a range whose end is known ends at a checkpoint": (
        "iii",
        {
            0: checkpoint(0),
            1: delta(0, 0),
            2: delta(0, 1),
            3: checkpoint(1),
            4: delta(1, 2),
            5: delta(1, 0),
            6: delta(1, 1),
            7: checkpoint(2),
            8: delta(2, 2),
            9: checkpoint(3),
            10: delta(3, 0),
        },
    ),
    "iii: a share partition that came back begins at 0": (
        "iii",
        {0: checkpoint(0), 1: delta(0, 0), 2: GONE, 3: DELTA_GONE, 4: checkpoint(0), 5: delta(0, 0)},
    ),
    "4.4: archiving": ("4.4", {0: world.snapshot(KEY, 0, (ARCHIVING,), snapshot_epoch=0)}),
}


def found(name: str, log: dict[int, Any]) -> list[tuple[object, object]]:
    records = [RecordAt(partition=0, offset=offset, record=record) for offset, record in log.items()]
    replayed = replay_records(dialect_named(name), records, Policy.STRICT, audited=True)
    return [(finding["offset"], finding["rule"]) for finding in replayed.findings]


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_a_log_that_no_broker_wrote_is_found(case: str) -> None:
    """R000-15, R000-16, R000-18, R000-19, R000-29, R001-07, R001-10, R002-74: each record that its writer could not
    have put there is a finding, and no other record is."""
    name, log, rules = IMPOSSIBLE[case]

    assert found(name, log) == rules


@pytest.mark.parametrize("case", POSSIBLE)
def test_a_log_that_a_broker_or_cleaner_left_is_not_blamed(case: str) -> None:
    """R000-20, R000-58: what looks alike and is legal is no finding."""
    assert found(*POSSIBLE[case]) == []
