"""The vectors derived from the founding documents: chains, roll-over, tombstones, cleaning, fencing, invariants."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from extras.copied_logs.dialect_dumps import KEY, as_log
from samples.golden_vectors import SEED, vector

from acktrail.model.batches import StateBatch
from acktrail.model.records import RecordAt, Tombstone
from acktrail.model.share_partition import GroupId, SharePartition, state_partition_of
from acktrail_copied_logs.dialects import Policy
from acktrail_copied_logs.drafts.draft_dialects import DRAFTS
from acktrail_copied_logs.drafts.draft_logs import (
    CheckpointTrack,
    advance_track,
    is_delta_index_step,
    replay_checkpoint_log,
    replay_control_log,
)
from acktrail_copied_logs.drafts.draft_records import (
    Checkpoint,
    ControlCheckpoint,
    ControlDelta,
    ControlRecord,
    Delta,
    DeltaTombstone,
    Rule,
    window_violations,
)
from acktrail_simulation.drafts.back_chains import head_index, replay_back_chains
from acktrail_simulation.drafts.checkpoint_coordinator import next_delta_index
from acktrail_simulation.drafts.compaction import compact
from acktrail_simulation.drafts.control_log_cleaner import (
    checkpoint_offsets,
    clean,
    cleaning,
    earliest_checkpoint_offset,
    missing_records,
)
from acktrail_simulation.drafts.document_json import read_checkpoint_record
from acktrail_simulation.drafts.record_encoders import encode_in
from acktrail_simulation.messages.batch_json import read_batches

G1 = GroupId("G1")


def batches(numbers: list[list[int]]) -> tuple[StateBatch, ...]:
    return read_batches({"StateBatches": numbers})


def keyed(record: dict[str, Any]) -> Checkpoint | Delta:
    return read_checkpoint_record({"StartOffset": -1 if "DeltaIndex" in record else 0, **record}, KEY)


def checkpoint(epoch: int, group: str = G1, **more: Any) -> ControlCheckpoint:
    own: dict[str, Any] = {"start_offset": 0, "end_offset": 0, "batches": (), **more}
    return ControlCheckpoint(group_id=GroupId(group), checkpoint_epoch=epoch, **own)


def delta(epoch: int, group: str = G1, back: int | None = None, batches: tuple[StateBatch, ...] = ()) -> ControlDelta:
    return ControlDelta(group_id=GroupId(group), checkpoint_epoch=epoch, back_offset=back, batches=batches)


@pytest.mark.parametrize("case", vector("DV-delta-index-rollover")["cases"], ids=str)
def test_delta_index_steps(case: dict[str, Any]) -> None:
    """R000-18, R000-19, R000-20: 0 to 255, one more each time, back to 0 at 255 or at the end of a shorter range."""
    assert is_delta_index_step(case["prev"], case["next"]) == case["verdict"].startswith("ok")


def sequence() -> tuple[RecordAt[Any], ...]:
    records = SEED["record_sequences"][0]["records"]
    return as_log([keyed({k: r[k] for k in ("CheckpointEpoch", "DeltaIndex") if k in r}) for r in records], first=1)


def test_the_record_sequence() -> None:
    """R000-15, R000-16, R000-19, R000-21, R000-30, R000-31: of the six records the compacted log keeps and applies
    what the document's example implies, and the index goes on at 3."""
    derived = SEED["record_sequences"][0]["derived"]
    log = sequence()
    survivors = compact(log)
    full, left = replay_checkpoint_log(log), replay_checkpoint_log(survivors)

    assert [found.offset for found in survivors] == derived["survivors_of_compaction"]
    tracks = [CheckpointTrack()]
    for found in survivors:
        tracks.append(advance_track(tracks[-1], found.record))
    steps = zip(survivors, pairwise(tracks), strict=True)
    applied = [found.offset for found, (before, after) in steps if before.state is not after.state]
    assert applied == derived["applied_by_replay"]
    assert [found.offset for found in survivors if found.offset not in applied] == derived["ignored_epoch_mismatch"]
    assert full.violations == left.violations == ()
    assert full.states == left.states
    assert (left.tracks[KEY].last_delta_index, next_delta_index(left.tracks[KEY].last_delta_index)) == (
        derived["max_delta_index"],
        derived["next_delta_index"],
    )


def test_delta_indices_do_not_choose_the_state_partition() -> None:
    """R000-11, R000-27: the state partition follows from group, topic id and partition; one key never has two."""
    for case in SEED["wire_vectors"]["state_partition"]:
        key = SharePartition(group_id=case["group"], topic_id=case["topic_id"], partition=case["partition"])
        assert state_partition_of(key, 50) == case["state_topic_partition_of_50"]
    keys = {encode_in("iii", found.record)[0] for found in sequence()}
    assert len({key[2:26] for key in keys}) == 1

    log = sequence()
    moved = [*log[:-1], RecordAt(partition=1, offset=6, record=log[-1].record)]
    assert [found.rule for found in replay_checkpoint_log(moved).violations] == [Rule.ONE_STATE_PARTITION_PER_KEY]


def test_an_index_used_twice_loses_data() -> None:
    """R000-14, R000-29: compaction of a log with a reused index changes the state, and replay says so beforehand."""
    case = vector("DV-delta-index-reuse-loses-data")
    log = as_log([keyed(record) for record in case["records"]])
    full, left = replay_checkpoint_log(log), replay_checkpoint_log(compact(log))

    assert full.states[KEY].batches == batches(case["replay_full_log"])
    assert left.states[KEY].batches == batches(case["replay_after_compaction"])
    assert Rule.DELTA_INDEX_NOT_REUSED in {found.rule for found in full.violations}


def test_a_delta_of_another_epoch_is_skipped() -> None:
    """R000-16, R000-30: it changes nothing and is a finding with its address."""
    case = vector("DV-epoch-mismatch-delta")
    replayed = replay_checkpoint_log(as_log([keyed(record) for record in case["records"]], first=7))

    state = replayed.states[KEY]
    assert (state.start_offset, list(state.batches)) == (case["state"]["start_offset"], case["state"]["batches"])
    assert [(found.rule, found.offset) for found in replayed.violations] == [(Rule.DELTA_EPOCH_MATCHES, 8)]


def test_tombstones_in_order() -> None:
    """R000-36, R000-37: the checkpoint's tombstone removes the state; what the interrupted removal left is pending,
    and a removal brought to its end leaves no finding."""
    case = vector("DV-tombstone-order")
    epochs = {"key": KEY, "checkpoint_epoch": 0, "start_offset": 0, "batches": ()}
    records: list[Any] = [
        Checkpoint(**epochs),
        Delta(delta_index=0, **epochs),
        Delta(delta_index=1, **epochs),
        Tombstone(key=KEY),
        DeltaTombstone(key=KEY, delta_index=0),
    ]
    replayed = replay_checkpoint_log(as_log(records))

    assert replayed.states.get(KEY) is case["state"]
    assert list(replayed.tracks[KEY].pending_delta_tombstones) == case["pending_delta_tombstones"]
    assert [found.rule for found in replayed.violations] == [Rule.DELETION_COMPLETE]
    finished = replay_checkpoint_log(as_log([*records, DeltaTombstone(key=KEY, delta_index=1)]))
    assert (finished.states, finished.violations) == ({}, ())
    early = replay_checkpoint_log(as_log([*records[:3], DeltaTombstone(key=KEY, delta_index=0)]))
    assert [found.rule for found in early.violations] == [Rule.DELETION_ORDER]


def cleaner_log() -> list[RecordAt[ControlRecord]]:
    case = vector("DV-sco-eso")
    found: list[RecordAt[ControlRecord]] = []
    for group, offsets in case["control_record_offsets"].items():
        epoch = 0
        for offset in offsets:
            one, is_checkpoint = batches([[offset, offset, 2, 1]]), offset in case["checkpoints"][group]
            epoch += is_checkpoint
            complete = checkpoint(epoch, group, end_offset=offset + 1, batches=one)
            record = complete if is_checkpoint else delta(epoch, group, batches=one)
            found.append(RecordAt(partition=0, offset=offset, record=record))
    return sorted(found, key=lambda placed: placed.offset)


def test_what_the_cleaner_may_remove() -> None:
    """R000-56, R000-57, R000-58, R001-16 to R001-20: checkpoint offsets, the cut-off, three kinds of records."""
    case, log = vector("DV-sco-eso"), cleaner_log()
    found = cleaning(log)

    assert checkpoint_offsets(log) == case["sco"]
    assert earliest_checkpoint_offset(log) == case["eso"]
    assert {g: list(c.below_earliest) for g, c in found.items()} == case["cleanable_by_eso"]
    assert {g: list(c.below_own) for g, c in found.items()} == case["cleanable_by_sco_only"]
    assert {g: list(c.needed) for g, c in found.items()} == case["must_keep"]
    left = clean(log)
    assert {placed.offset for placed in log} - {placed.offset for placed in left} == {90, 91, 130, 131}
    assert replay_control_log(left) == replay_control_log(log)
    assert missing_records(log, left) == ()


def test_what_the_cleaner_must_not_remove() -> None:
    """R000-58, R001-19: every record at or above its group's checkpoint that is missing is a finding, no other is."""
    case, log = vector("DV-sco-eso"), cleaner_log()
    needed = {offset for offsets in case["must_keep"].values() for offset in offsets}
    for gone in log:
        left = [placed for placed in log if placed is not gone]
        found = missing_records(log, left)

        assert {f.rule for f in found} <= {Rule.NO_MISSING_AT_OR_ABOVE_CHECKPOINT}
        assert [f.offset for f in found] == ([gone.offset] if gone.offset in needed else [])


@pytest.mark.parametrize("name", ["i", "ii"])
def test_a_recorded_end_offset_counts(name: str) -> None:
    """R000-43, R000-47, R000-54: the end offset of a checkpoint is that of the state, though no batch reaches it; a
    delta raises it when its batches go further, and a later checkpoint may take it back."""
    one, far = batches([[100, 109, 2, 1]]), batches([[110, 129, 0, 1]])
    log = as_log(
        [
            checkpoint(1, start_offset=100, end_offset=121, batches=one),
            delta(1, back=0, batches=batches([[110, 112, 2, 1]])),
            delta(1, back=1, batches=far),
            checkpoint(2, start_offset=113, end_offset=120),
        ]
    )
    ends = [DRAFTS[name].replay(log[: length + 1], Policy.STRICT).states[0]["end_offset"] for length in range(len(log))]

    assert ends == [121, 121, 130, 120]


@pytest.mark.parametrize("case", vector("DV-back-offset-chain")["cases"], ids=lambda case: case["verdict"])
def test_back_offset_chains(case: dict[str, Any]) -> None:
    """R001-03, R001-07, R001-10: a chain is whole, or what broke it is named, at the record whose link it is, and the
    scan's state given."""
    log: list[RecordAt[ControlRecord]] = []
    for r in case["records"]:
        record = checkpoint(r["e"]) if r["t"] == "CP" else delta(r["e"], back=r["b"])
        log.append(RecordAt(partition=0, offset=r["o"], record=record))
    replayed, scanned = replay_back_chains(log, {G1: case["head"]})[G1], replay_control_log(log)
    broken = [(f.offset, f.detail) for f in scanned.violations if f.rule is Rule.CHAIN_UNBROKEN]

    assert replayed.state == scanned.states.get(G1)
    assert (replayed.broken is None) == (case["verdict"] == "ok") == (broken == [])
    if replayed.broken is None:
        assert list(replayed.offsets) == case["chain"]
    else:
        assert f"broken: {replayed.broken}" == case["verdict"]
        assert broken == [(case["head"], case["verdict"])]


def test_chains_do_not_cross_groups() -> None:
    """R001-01, R001-07: a back offset that leads to another group's record, or a head that is not there, is broken."""
    log = as_log([checkpoint(1, "G2"), delta(1, back=5)], first=5)

    broken = [replay_back_chains(log, {G1: head})[G1].broken for head in (6, 7)]
    assert broken == ["5 belongs to another group", "7 missing"]
    assert head_index(log) == {"G2": 5, "G1": 6}


OLD_NAMES = {"spso_le_speo": "start_le_end"}


@pytest.mark.parametrize("case", vector("DV-invariants")["cases"], ids=lambda case: case["name"])
def test_invariants(case: dict[str, Any]) -> None:
    """R000-02, R000-47, R000-65, R002-14, R002-59, R002-71, R002-74: each window breaks exactly the rules named."""
    start, end = (None if case[name] == -1 else case[name] for name in ("spso", "speo"))
    broken = window_violations(start, end, batches(case["batches"]))

    assert [rule.value for rule in broken] == [OLD_NAMES.get(n, n) for n in case["violations"]]


@pytest.mark.parametrize(("first", "last"), [(109, 111), (118, 120), (120, 121)])
def test_batches_lie_inside_the_window(first: int, last: int) -> None:
    """R000-47, R002-65: an offset below the start, or at or above the end, is outside; the window's own ends are
    inside."""
    edges = batches([[110, 110, 0, 1], [119, 119, 2, 1]])
    outside = batches([[first, last, 2, 1]])

    assert window_violations(110, 120, edges) == ()
    assert window_violations(110, 120, outside) == (Rule.BATCH_WITHIN_WINDOW,)


def test_a_control_delta_of_another_epoch_is_skipped() -> None:
    """R001-14: what follows the checkpoint with another epoch, or comes before any, is found and changes nothing."""
    first, stale = checkpoint(1, end_offset=5), delta(2, batches=batches([[0, 4, 2, 1]]))
    left = delta(1, batches=batches([[0, 4, 2, 1]]))

    replayed = replay_control_log(as_log([stale, first, stale]))
    assert (replayed.states[G1].batches, replayed.states[G1].first_unfinished_offset) == ((), 0)
    assert [(found.rule, found.offset) for found in replayed.violations] == [
        (Rule.DELTA_HAS_CHECKPOINT, 0),
        (Rule.DELTA_EPOCH_MATCHES, 2),
    ]
    assert replay_control_log(as_log([left, checkpoint(2)])).violations == ()
