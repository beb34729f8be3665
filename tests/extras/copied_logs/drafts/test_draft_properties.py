"""The laws of batches and of replay: how states of offsets are merged, cut off and written; what a log of each
generation says, and which rules it breaks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from definitions.batch_rules import in_order
from extras.copied_logs.dialect_dumps import as_log
from extras.copied_logs.drafts.draft_lives import (
    KEYS,
    delivery_steps,
    draft_logs,
    lived_logs,
    pointwise,
    state_logs,
    windows,
)
from hypothesis import given
from hypothesis import strategies as st
from jobs import world
from samples.coordinator_random_calls import Step, coordinator, scripts, take
from samples.random_records import batches

from acktrail.model.batches import DeliveryState, StateBatch, combine_state_batches, end_offset, first_unfinished_offset
from acktrail.model.records import RecordAt, ShareSnapshot, ShareUpdate
from acktrail.model.replay import replay
from acktrail.model.share_partition import GroupId
from acktrail_copied_logs.dialects import Policy
from acktrail_copied_logs.drafts.draft_logs import (
    replay_checkpoint_log,
    replay_control_log,
)
from acktrail_copied_logs.drafts.draft_records import (
    DIFFERING_RULES,
    Checkpoint,
    ControlCheckpoint,
    Delta,
    DraftSnapshot,
    DraftUpdate,
    Rule,
    batch_violations,
    overlay_state_batches,
)
from acktrail_copied_logs.drafts.strict_replay import replay_draft_log, replay_strictly
from acktrail_simulation.coordinator.release_rules import KAFKA_4_4, KAFKA_TRUNK, CoordinatorRules
from acktrail_simulation.drafts.back_chains import head_index, replay_back_chains
from acktrail_simulation.drafts.complete_records import snapshot_of
from acktrail_simulation.leader.persisted_batches import durable_batches

starts = st.one_of(st.none(), st.integers(0, 45))


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
    """R000-42: every offset between start and first unfinished offset is terminal, the next one is not; the end lies
    past all of them."""
    ordered = overlay_state_batches((), found, start)
    effective, end = first_unfinished_offset(start, ordered), end_offset(start, ordered)
    states = pointwise(ordered)

    assert effective is not None
    assert all(states[offset][0] in (2, 4) for offset in range(start, effective))
    assert states.get(effective, (0, 0))[0] not in (2, 4)
    assert end == max([start, *(offset + 1 for offset in states)])
    assert first_unfinished_offset(None, ordered) is None
    assert end_offset(None, ()) is None


@given(batches())
def test_locks_are_not_written(live: tuple[StateBatch, ...]) -> None:
    """R000-02, R000-49, R001-06: acquired with count n becomes available with count n - 1; all else stays as it is."""
    for before, after in zip(live, durable_batches(live), strict=True):
        if before.delivery_state == DeliveryState.ACQUIRED:
            assert (after.delivery_state, after.delivery_count) == (0, max(0, before.delivery_count - 1))
        else:
            assert after == before


@given(log=lived_logs("ii"), data=st.data())
def test_a_lost_link_is_found(log: tuple[RecordAt[Any], ...], data: st.DataObject) -> None:
    """R001-10: without one record of a chain the chain is broken and says so, as does the scan at the record whose link
    is broken; the scan's state stands in. Where the whole chain says nothing, nor does the scan."""
    whole = replay_back_chains(log, head_index(log))
    linked = sorted({offset for chain in whole.values() for offset in chain.offsets})
    if not linked:
        return
    gone = data.draw(st.sampled_from(linked))
    left = [found for found in log if found.offset != gone]
    scan = replay_control_log(left)
    broken = {found.subject: found for found in scan.violations if found.rule is Rule.CHAIN_UNBROKEN}
    assert replay_control_log(log).violations == ()
    for group, found in replay_back_chains(left, head_index(log)).items():
        if gone in whole[group].offsets:
            assert found.broken == f"{gone} missing"
            assert found.state == scan.states.get(group)
            if gone != head_index(log)[group]:
                assert broken[group].detail == f"broken: {gone} missing"
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
    one = world.batch(5, 9)
    whole = DraftSnapshot(key=KEYS[0], state_epoch=1, snapshot_epoch=3, start_offset=5, batches=())
    part = DraftUpdate(key=KEYS[0], state_epoch=1, snapshot_epoch=2, start_offset=None, batches=(one,))
    log = as_log([whole, part])
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
    epochs = {"snapshot_epoch": 4, "state_epoch": 9, "leader_epoch": 2}
    return replace(world.snapshot(KEYS[0], 50, (world.batch(50, 59),), **epochs), **changes)


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
    replayed = replay_strictly(as_log([snapshot(), after]))

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

    def iii(*epochs: int, first: int = 0) -> list[int]:
        violations = replay_checkpoint_log(as_log([keyed(e) for e in epochs], first=first)).violations
        assert {found.rule for found in violations} <= {Rule.CHECKPOINT_EPOCH_STEP}
        return [found.offset for found in violations]

    def i(*epochs: int) -> list[int]:
        return [found.offset for found in replay_control_log(as_log([control(e) for e in epochs])).violations]

    assert (iii(0, 1, 2), i(1, 2, 3)) == ([], [])
    assert (iii(1), i(0), iii(0, 2), i(1, 3), i(1, 1)) == ([0], [0], [1], [1], [1])
    assert (iii(3, 7, first=5), i(3, 7)) == ([], [])
    assert (iii(65_535, 0, first=5), i(65_535, 0)) == ([6], [1])


@given(batches())
def test_the_rules_of_order_are_the_order_of_batches(found: tuple[StateBatch, ...]) -> None:
    """Batches break none of the three rules exactly when they are ascending and disjoint."""
    rules = {Rule.BATCH_FIRST_LE_LAST, Rule.BATCHES_ASCENDING, Rule.BATCHES_NON_OVERLAPPING}

    assert rules.isdisjoint(batch_violations(found)) == in_order(found)


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
