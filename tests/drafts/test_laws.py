"""The laws of replay, over logs such as each generation's machinery would write: leaders and coordinators write, roll
over, remove and crash, and cleaners thin out what they wrote."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

import pytest
from definitions.batch_laws import in_order
from drafts.draft_lives import (
    GROUPS,
    KEYS,
    LIVES,
    RETENTION_MS,
    CheckpointWalk,
    ControlWalk,
    Truth,
    delivery_steps,
    draft_logs,
    lived_logs,
    placed,
    state_logs,
    told,
)
from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_calls import Step, coordinator, scripts, take
from samples.random_records import batches

from acktrail.model.batches import DeliveryState, StateBatch, combine_state_batches, prune_state_batches
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate, Tombstone
from acktrail.model.replay import Policy, replay
from acktrail.model.rules.catalogue import RULE_BY_ID, QualitySeverity
from acktrail.model.share_partition import GroupId
from acktrail_drafts.dialects import DRAFTS
from acktrail_drafts.draft_logs import head_index, replay_back_chains, replay_checkpoint_log, replay_control_log
from acktrail_drafts.draft_records import (
    DIFFERING_RULES,
    Checkpoint,
    ControlCheckpoint,
    Delta,
    DeltaTombstone,
    DraftSnapshot,
    DraftUpdate,
    Rule,
    batch_violations,
    draft_state_json,
    effective_window,
    first_unfinished_offset,
    overlay_state_batches,
)
from acktrail_drafts.strict_replay import replay_draft_log, replay_strictly
from acktrail_simulation.clock import SimulatedClock
from acktrail_simulation.coordinator.release_rules import KAFKA_4_4, KAFKA_TRUNK, CoordinatorRules
from acktrail_simulation.coordinator.state_write import StateWrite
from acktrail_simulation.drafts.checkpoint_coordinator import CheckpointCoordinator
from acktrail_simulation.drafts.compaction import LogCompaction
from acktrail_simulation.drafts.complete_records import snapshot_of
from acktrail_simulation.drafts.control_log_cleaner import checkpoint_offsets, cleaning, missing_records
from acktrail_simulation.drafts.record_encoders import encode_in
from acktrail_simulation.drafts.record_log import RecordLog
from acktrail_simulation.leader.persisted_batches import durable_batches

starts = st.one_of(st.none(), st.integers(0, 45))
seeds = st.integers(0, 2**32)
lengths = st.integers(1, 40)
short = st.integers(1, 20)
ranges = st.sampled_from((1, 2, 3, 255))


def pointwise(found: tuple[StateBatch, ...]) -> dict[int, tuple[int, int]]:
    """State and count of every offset, the last batch winning."""
    return {
        offset: (batch.delivery_state, batch.delivery_count)
        for batch in found
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }


@given(batches(), batches(), starts)
def test_overlay_is_the_last_writer_at_every_offset(
    so_far: tuple[StateBatch, ...], new: tuple[StateBatch, ...], start: int | None
) -> None:
    """R000-17: offset by offset the overlay is what the last batch says; it is ascending, disjoint and joined."""
    result = overlay_state_batches(so_far, new, start)
    expected = {o: s for o, s in pointwise((*so_far, *new)).items() if start is None or o >= start}

    assert pointwise(result) == expected
    for one, other in pairwise(result):
        assert one.last_offset < other.first_offset
        joined = one.last_offset + 1 == other.first_offset
        assert not (joined and pointwise((one,))[one.last_offset] == pointwise((other,))[other.first_offset])


@given(delivery_steps())
def test_both_mergings_agree_on_what_a_leader_writes(steps: list[tuple[StateBatch, ...]]) -> None:
    """R000-14: where counts never fall and terminal offsets stay, last writer and combiner give the same batches."""
    overlaid: tuple[StateBatch, ...] = ()
    combined: tuple[StateBatch, ...] = ()
    for step in steps:
        overlaid = overlay_state_batches(overlaid, step, None)
        combined = combine_state_batches(combined, step, None)
    assert pointwise(overlaid) == pointwise(combined)


@given(batches(), st.integers(0, 45))
def test_the_effective_start_stops_at_the_first_undone_offset(found: tuple[StateBatch, ...], start: int) -> None:
    """R000-42: every offset between start and effective start is terminal, the next one is not."""
    ordered = overlay_state_batches((), found, None)
    effective = first_unfinished_offset(start, ordered)
    states = pointwise(ordered)

    assert effective is not None
    assert all(states[offset][0] in (2, 4) for offset in range(start, effective))
    assert states.get(effective, (0, 0))[0] not in (2, 4)
    window = effective_window(start, ordered)
    assert window.end_offset is not None
    assert window.end_offset >= effective
    assert window.batches == prune_state_batches(ordered, effective)
    assert effective_window(None, ()).start_offset is None


@given(batches())
def test_locks_are_not_written(live: tuple[StateBatch, ...]) -> None:
    """R000-02, R000-49, R001-06: acquired with count n becomes available with count n - 1; all else stays as it is."""
    for before, after in zip(live, durable_batches(live), strict=True):
        if before.delivery_state == DeliveryState.ACQUIRED:
            assert (after.delivery_state, after.delivery_count) == (0, max(0, before.delivery_count - 1))
        else:
            assert after == before


def windows(states: Any) -> dict[Any, Any]:
    return {key: state.window for key, state in states.items()}


@given(log=lived_logs("ii"), data=st.data())
def test_a_lost_link_is_found(log: tuple[RecordAt[Any], ...], data: st.DataObject) -> None:
    """R001-10: without one record of a chain the chain is broken and says so; the scan's state stands in."""
    whole = replay_back_chains(log, head_index(log))
    linked = sorted({offset for chain in whole.values() for offset in chain.offsets})
    if not linked:
        return
    gone = data.draw(st.sampled_from(linked))
    left = [found for found in log if found.offset != gone]
    for group, found in replay_back_chains(left, head_index(log)).items():
        if gone in whole[group].offsets:
            assert found.broken is not None
            assert str(gone) in found.violations[0].detail
        else:
            assert found == whole[group]


@given(log=lived_logs("iii", highest=st.sampled_from((2, 4, 255))))
def test_only_the_log_orders_deltas(log: tuple[RecordAt[Any], ...]) -> None:
    """R000-17: renaming the indices changes no state, for their order means nothing."""
    renamed = [
        replace(found, record=replace(found.record, delta_index=255 - found.record.delta_index))
        if isinstance(found.record, Delta)
        else found
        for found in log
    ]

    assert replay_checkpoint_log(renamed).states == replay_checkpoint_log(log).states


@pytest.mark.parametrize("policy", list(Policy))
@given(log=draft_logs(), data=st.data())
def test_any_update_may_be_a_snapshot(policy: Policy, log: tuple[RecordAt[Any], ...], data: st.DataObject) -> None:
    """R002-12: an update replaced by the snapshot of its state leaves every window as it was, by either policy."""
    updates = [index for index, found in enumerate(log) if isinstance(found.record, DraftUpdate)]
    if not updates:
        return
    chosen = data.draw(st.sampled_from(updates))
    record = log[chosen].record
    state = replay_draft_log(log[: chosen + 1], policy=policy).states[record.key]
    changed = [
        replace(found, record=replace(found.record, snapshot_epoch=found.record.snapshot_epoch + 1))
        if index > chosen and found.record.key == record.key
        else found
        for index, found in enumerate(log)
    ]
    changed[chosen] = replace(log[chosen], record=snapshot_of(state, record.snapshot_epoch + 1))

    replayed = replay_draft_log(changed, policy=policy)
    assert {found.rule for found in replayed.violations} <= {Rule.START_MONOTONIC_WITHIN_STATE_EPOCH}
    assert windows(replayed.states) == windows(replay_draft_log(log, policy=policy).states)


@given(log=draft_logs())
def test_both_policies_agree_on_a_draft_log_without_violations(log: tuple[RecordAt[Any], ...]) -> None:
    """R002-12: where epochs match, strict and broker are one and nothing is found."""
    strict, broker = (replay_draft_log(log, policy=policy) for policy in (Policy.STRICT, Policy.BROKER))

    assert strict == broker
    assert strict.violations == ()


def test_policies_differ_only_where_epochs_differ() -> None:
    """R002-12: an update of another snapshot epoch is a finding by both policies; only the broker's applies it."""
    one = StateBatch(first_offset=5, last_offset=9, delivery_state=2, delivery_count=1)
    log = placed(
        [
            DraftSnapshot(key=KEYS[0], state_epoch=1, snapshot_epoch=3, start_offset=5, batches=()),
            DraftUpdate(key=KEYS[0], state_epoch=1, snapshot_epoch=2, start_offset=None, batches=(one,)),
        ]
    )
    strict, broker = (replay_draft_log(log, policy=policy) for policy in (Policy.STRICT, Policy.BROKER))

    assert [found.rule for found in strict.violations] == [Rule.UPDATE_EPOCH_MATCHES]
    assert strict.violations == broker.violations
    assert (strict.states[KEYS[0]].batches, broker.states[KEYS[0]].batches) == ((), (one,))


@given(log=state_logs())
def test_strict_is_the_broker_without_the_records_it_names(log: tuple[RecordAt[Any], ...]) -> None:
    """R002-12: whatever is in a log, strict replay equals the broker's replay of the records that it did not report as
    a difference. An update is one exactly when the newest record of its key that is no update is not the snapshot whose
    epoch it names; nothing else is one."""
    strict = replay_strictly(log)
    passed_over = {found.offset for found in strict.violations if found.rule in DIFFERING_RULES}

    assert strict.states == replay(found.record for found in log if found.offset not in passed_over)
    base: dict[Any, int | None] = {}
    for found in log:
        is_update, names = isinstance(found.record, ShareUpdate), getattr(found.record, "snapshot_epoch", None)
        assert (found.offset in passed_over) == (is_update and base.get(found.record.key) != names)
        if not is_update:
            base[found.record.key] = names


def snapshot(**changes: Any) -> ShareSnapshot:
    one = StateBatch(first_offset=50, last_offset=59, delivery_state=2, delivery_count=1)
    before = ShareSnapshot(
        key=KEYS[0],
        snapshot_epoch=4,
        state_epoch=9,
        leader_epoch=2,
        start_offset=50,
        delivery_complete_count=10,
        create_timestamp_ms=1,
        write_timestamp_ms=2,
        batches=(one,),
    )
    return replace(before, **changes)


BACK: dict[str, tuple[dict[str, Any], list[Rule]]] = {
    "the next snapshot": ({}, []),
    "an epoch skipped": ({"snapshot_epoch": 7}, [Rule.SNAPSHOT_EPOCH_STEP]),
    "an older group epoch": ({"state_epoch": 8}, [Rule.STATE_EPOCH_MONOTONIC]),
    "an older leader": ({"leader_epoch": 1}, [Rule.LEADER_EPOCH_MONOTONIC]),
    "start goes back": ({"start_offset": 40}, [Rule.START_MONOTONIC_WITHIN_STATE_EPOCH]),
    "start goes back with a new group epoch": ({"state_epoch": 10, "start_offset": 40}, []),
    "a reset, up to Kafka 4.4": (
        {"leader_epoch": 0, "start_offset": 0, "batches": (), "delivery_complete_count": 0},
        [],
    ),
    "a batch below the start": ({"start_offset": 55}, [Rule.BATCH_WITHIN_WINDOW]),
    "batches, no start": ({"start_offset": None}, [Rule.UNINITIALISED_HAS_NO_BATCHES]),
}
"""What differs from the next snapshot, and the rules that break."""


@pytest.mark.parametrize("case", BACK)
def test_an_epoch_that_goes_back_is_a_violation(case: str) -> None:
    """R002-06, R002-12: each way in which epochs and start offset may not go is a finding of its own, at its record."""
    changes, rules = BACK[case]
    after = snapshot(**{"snapshot_epoch": 5, **changes})
    replayed = replay_strictly(placed([snapshot(), after]))

    assert [found.rule for found in replayed.violations] == rules
    assert all(found.offset == 1 for found in replayed.violations)
    assert replayed.states == replay([after])


def test_epochs_of_checkpoints_start_and_step() -> None:
    """R000-15, R000-48, R001-39: generation iii starts at 0, i and ii at 1, then one more each time; what
    follows 65,535 nobody specified, so it is found."""

    def keyed(epoch: int) -> Checkpoint:
        return Checkpoint(key=KEYS[0], checkpoint_epoch=epoch, start_offset=0, batches=())

    def control(epoch: int) -> ControlCheckpoint:
        return ControlCheckpoint(
            group_id=GroupId("G1"), checkpoint_epoch=epoch, start_offset=0, end_offset=0, batches=()
        )

    def iii(*epochs: int, **how: bool) -> list[int]:
        violations = replay_checkpoint_log(placed([keyed(e) for e in epochs]), **how).violations
        assert {found.rule for found in violations} <= {Rule.CHECKPOINT_EPOCH_STEP}
        return [found.offset for found in violations]

    def i(*epochs: int, **how: bool) -> list[int]:
        return [found.offset for found in replay_control_log(placed([control(e) for e in epochs]), **how).violations]

    assert (iii(0, 1, 2), i(1, 2, 3)) == ([], [])
    assert (iii(1), i(0), iii(0, 2), i(1, 1)) == ([0], [0], [1], [1])
    assert (iii(3, 7, compacted=True), i(3, 7, cleaned=True)) == ([], [])
    assert (iii(65_535, 0, compacted=True), i(65_535, 0, cleaned=True)) == ([1], [1])


def test_a_checkpoint_without_start_is_found() -> None:
    """R000-28: only a delta may leave the start offset out."""
    log = placed([Checkpoint(key=KEYS[0], checkpoint_epoch=0, start_offset=None, batches=())])
    assert [found.rule for found in replay_checkpoint_log(log).violations] == [Rule.CHECKPOINT_HAS_START]


def test_every_rule_has_a_severity() -> None:
    """What breaks a broker's load is critical; what a deletion leaves is a warning."""
    assert all(rule in RULE_BY_ID for rule in Rule)
    assert not RULE_BY_ID["chain_unbroken"].stops_gate
    assert RULE_BY_ID[Rule.BATCH_FIRST_LE_LAST].severity is QualitySeverity.CRITICAL
    assert RULE_BY_ID[Rule.DELETION_COMPLETE].severity is QualitySeverity.WARNING
    assert RULE_BY_ID[Rule.UPDATE_EPOCH_MATCHES].severity is QualitySeverity.ERROR


@given(batches())
def test_the_rules_of_order_are_the_order_of_batches(found: tuple[StateBatch, ...]) -> None:
    """Batches break none of the three rules exactly when they are ascending and disjoint."""
    rules = {Rule.BATCH_FIRST_LE_LAST, Rule.BATCHES_ASCENDING, Rule.BATCHES_NON_OVERLAPPING}

    assert rules.isdisjoint(batch_violations(found)) == in_order(found)


@pytest.mark.parametrize("name", LIVES)
@given(seed=seeds, steps=lengths, highest=ranges, every=st.integers(0, 5))
def test_memory_is_what_the_log_says(name: str, seed: int, steps: int, highest: int, every: int) -> None:
    """R000-14, R000-30, R000-44, R000-47, R000-51, R000-58, R001-07, R001-14, R001-38: after every record, cleaning,
    compaction, roll-over, removal and restart, memory and the dialect's replay of what is left of the log both say what
    was done to every offset, and what is there breaks no rule. All is in its bytes: generation ii alone is chained."""
    life = LIVES[name](random.Random(seed), every=every, **{"highest": highest} if name == "iii" else {})
    for _ in range(steps):
        life.live()
        replayed = DRAFTS[name].replay(life.log.records, Policy.STRICT)
        there = {getattr(key, "group_id", key) for key in life.states}
        rows = [row for row in replayed.states if name == "iii" or row["group"] in there]
        expected = [draft_state_json(state, 0) for state in life.states.values()]
        assert sorted(rows, key=itemgetter("group")) == sorted(expected, key=itemgetter("group"))
        assert told(life.states.items()) == life.truth.told()
        rules = {found["rule"] for found in replayed.findings if name == "iii" or found["group"] in there}
        assert rules <= ({Rule.DELTA_HAS_CHECKPOINT} if name == "iii" else set())
    records = [found.record for found in life.log.records]
    assert [DRAFTS[name].decode(*encode_in(name, record)) for record in records] == records


@pytest.mark.parametrize("name", LIVES)
@given(seed=seeds, steps=lengths, often=st.integers(0, 3), seldom=st.integers(4, 99))
def test_how_often_checkpoints_are_written_does_not_matter(
    name: str, seed: int, steps: int, often: int, seldom: int
) -> None:
    """R000-22, R000-53: where one writes a checkpoint and another a delta, for the same changes, they stand at the same
    windows after every record."""
    widest = {"highest": 255} if name == "iii" else {}
    lives = [LIVES[name](random.Random(seed), every=every, without="clean", **widest) for every in (often, seldom)]
    for _ in range(steps):
        one, other = (windows(life.live().states) for life in lives)
        assert one == other


@given(seeds, lengths)
def test_a_leaders_crash_loses_what_was_never_written(seed: int, steps: int) -> None:
    """R000-55, R001-14: a leader that begins with the log as it was after any record knows all that was written up to
    there, and goes on from it."""
    life = ControlWalk(random.Random(seed), without="leave").live(steps)
    for end_offset in range(life.cleaned_to, life.leader.log.end_offset + 1):
        expected = life.true_at(end_offset)
        after = life.leader.succeeded(end_offset=end_offset)
        assert told(after.states.items()) == expected
        for group in after.states:
            after.write(group, ())
        replayed = replay_control_log(after.log.records, cleaned=True)
        assert told(replayed.states.items()) == expected
        assert replayed.violations == ()


@given(seeds, lengths)
def test_the_cleaner_takes_nothing_that_counts(seed: int, steps: int) -> None:
    """R000-58, R001-18 to R001-20: at whatever moment the cleaner runs, replay of what it leaves is replay of the log,
    for every group that is subscribed; nothing from a group's own checkpoint on is missing, and the cut is the earliest
    of the checkpoints, so that records of others between the two stay."""
    life = ControlWalk(random.Random(seed), without="clean")
    for _ in range(steps):
        life.live()
        leader = life.leader.succeeded()
        before = leader.log.records
        needed = [placed for placed in before if placed.record.group_id in leader.states]
        leader.clean()
        left = leader.log.records
        after = replay_control_log(left, cleaned=True).states
        assert {group: after[group] for group in leader.states} == leader.states
        assert missing_records(needed, [placed for placed in left if placed in needed]) == ()
        stay = {offset for kinds in cleaning(needed).values() for offset in (*kinds.below_own, *kinds.needed)}
        assert stay <= {placed.offset for placed in left}
        known = [offset for offset in checkpoint_offsets(needed).values() if offset is not None]
        assert all(placed.offset >= min(known) for placed in left if known)


@given(seeds, lengths)
def test_an_old_share_snapshot_file_is_enough(seed: int, steps: int) -> None:
    """R001-03, R001-04, R001-07, R001-10, R001-14: from a share snapshot file of any age and what the log holds since,
    each chain leads back to its checkpoint, over no more records than are written between two checkpoints, and gives
    the leader's own state; also after the cleaner, and for groups that joined since."""
    life = ControlWalk(random.Random(seed), without="leave")
    for _ in range(steps):
        life.live()
        leader = life.leader
        heads = life.file.caught_up(leader.log.records)
        assert heads == leader.heads
        chains = replay_back_chains(leader.log.records, heads)
        assert {group: found.state for group, found in chains.items()} == leader.states
        assert {found.broken for found in chains.values()} <= {None}
        assert all(len(found.offsets) <= leader.deltas_per_checkpoint + 1 for found in chains.values())


def test_checkpoints_bound_what_is_read() -> None:
    """R000-55: no more deltas than asked for lie between two checkpoints, and epochs count checkpoints from 1."""
    life = ControlWalk(random.Random(3), without="clean leave succeed").live(150)
    for group in GROUPS:
        own = [placed.record for placed in life.leader.log.records if placed.record.group_id == group]
        kinds = "".join("C" if isinstance(record, ControlCheckpoint) else "d" for record in own)
        assert "dddd" not in kinds
        assert "ddd" in kinds
        epochs = [record.checkpoint_epoch for record in own if isinstance(record, ControlCheckpoint)]
        assert epochs == list(range(1, len(epochs) + 1))


@given(seeds, lengths, ranges)
def test_what_it_writes_breaks_no_rule(seed: int, steps: int, highest: int) -> None:
    """R000-15 to R000-20, R000-37: without a cleaner every epoch, index and tombstone is where the rules want it, over
    roll-overs, longer ranges and removals; no index is used twice in an epoch."""
    life = CheckpointWalk(random.Random(seed), highest=highest, without="clean restart").live(steps)
    assert replay_checkpoint_log(life.coordinator.log.records).violations == ()


@given(seeds, short, ranges)
def test_compaction_at_any_moment_changes_no_state(seed: int, steps: int, highest: int) -> None:
    """R000-14, R000-29, R000-30: replay(compact(log)) = replay(log), however far the cleaner gets and whenever it runs,
    with tombstones there or gone; and each record key is left once below where it got to."""
    life = CheckpointWalk(random.Random(seed), highest=highest, without="clean").live(steps)
    log = life.coordinator.log
    whole = replay_checkpoint_log(log.records).states
    for end_offset in range(log.end_offset + 1):
        copy = RecordLog(records=log.records, end_offset=log.end_offset)
        compaction = LogCompaction(log=copy, clock=life.clock, tombstone_retention_ms=RETENTION_MS)
        for _ in range(3):
            compaction.run(end_offset)
            assert replay_checkpoint_log(copy.records, compacted=True).states == whole
            life.clock.advance(RETENTION_MS)
        closed = [placed.record for placed in copy.records if placed.offset < end_offset]
        keys = [(record.key, getattr(record, "delta_index", None)) for record in closed]
        assert len(keys) == len(set(keys))
        assert not any(isinstance(record, Tombstone | DeltaTombstone) for record in closed)


@given(seeds, short, ranges)
def test_a_coordinators_crash_loses_what_was_never_written(seed: int, steps: int, highest: int) -> None:
    """R000-30, R000-37: a coordinator that starts with the log as it was after any record knows all that was written up
    to there; a removal counts from its first tombstone on, and is finished, wherever it was interrupted."""
    life = CheckpointWalk(random.Random(seed), highest=highest).live(steps)
    end = life.coordinator.log.end_offset
    for end_offset in range(life.compaction.cleaned_to, end + 1):
        expected = life.true_at(end_offset)
        after = life.coordinator.restarted(end_offset=end_offset)
        assert told(after.states.items()) == expected
        assert all(track.state is not None or not track.live_delta_indices for track in after.tracks.values())
        replayed = replay_checkpoint_log(after.log.records, compacted=True)
        assert Rule.DELETION_COMPLETE not in {found.rule for found in replayed.violations}


def test_an_interrupted_removal_is_finished_without_its_first_tombstone() -> None:
    """R000-37: even where the checkpoint's tombstone was cleaned away, which takes its time, before the deltas' were
    written, the next coordinator takes away the deltas and begins the share partition afresh."""
    coordinator = CheckpointCoordinator(RecordLog(), deltas_per_checkpoint=9)
    truth = Truth(random.Random(1))
    request = StateWrite(key=KEYS[0], state_epoch=None, start_offset=truth.begin(KEYS[0]), batches=())
    for _ in range(5):
        coordinator.write(request)
        request = StateWrite(key=KEYS[0], state_epoch=None, start_offset=None, batches=truth.step(KEYS[0]))
    deltas = [placed.record.delta_index for placed in coordinator.log.records if isinstance(placed.record, Delta)]
    assert deltas
    end = coordinator.log.end_offset
    assert coordinator.delete(KEYS[0]) == 1 + len(set(deltas))

    log = coordinator.log.cut(end + 1)
    clock = SimulatedClock()
    compaction = LogCompaction(log=log, clock=clock, tombstone_retention_ms=RETENTION_MS)
    for wait_ms in (0, RETENTION_MS - 1, 1):
        clock.advance(wait_ms)
        assert isinstance(log.records[-1].record, Tombstone)
        compaction.run(log.end_offset)
    assert all(isinstance(placed.record, Delta) for placed in log.records)
    after = CheckpointCoordinator(log, deltas_per_checkpoint=9)
    gone = [placed.record.delta_index for placed in after.log.records if isinstance(placed.record, DeltaTombstone)]
    assert gone == sorted(set(deltas))
    assert after.states == {}
    assert after.delete(KEYS[0]) == 0
    after.write(StateWrite(key=KEYS[0], state_epoch=None, start_offset=7, batches=()))
    assert after.states[KEYS[0]].window.start_offset == 7


@given(scripts(prune=False), st.integers(0, 3), st.sampled_from((KAFKA_4_4, KAFKA_TRUNK)))
def test_its_log_breaks_no_rule(steps: list[Step], limit: int, rules: CoordinatorRules) -> None:
    """R002-06, R002-12: epochs step, updates name their snapshot, start offsets do not go back, batches are in order:
    strict replay of what Kafka 4.4 writes finds nothing but states that the leader chose to write."""
    found = coordinator(limit=limit, rules=rules)
    for step in steps:
        take(found, step)
    placed = [RecordAt(partition=0, offset=e.offset, record=e.record) for e in found.log.entries]
    strict = replay_strictly(placed)

    assert {finding.rule.value for finding in strict.violations} <= {"uninitialised_has_no_batches"}
    assert strict.states == found.memory.states
