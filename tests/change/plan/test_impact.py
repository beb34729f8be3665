"""Targets and what they do, against a count offset by offset."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import getitem
from types import NoneType
from typing import Any

import pytest
from change.scenes import CASES, a_plan, a_request, a_snapshot, edited, facts_of, leaves, logs, partition_facts
from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail.change.plan.change_plan import with_hash
from acktrail.change.plan.impact import CountUnit, Impact, Resolution, impact_of, resolve
from acktrail.change.plan.record_counts import passed_range
from acktrail.change.plan.reset_plan import (
    OWN_OFFSETS,
    ResetPlan,
    as_planned,
    changes_since_plan,
    differences,
    own_offsets,
)
from acktrail.change.plan.snapshot_facts import PartitionFacts, PassedFacts, Snapshot, TargetOffset, TargetOffsets
from acktrail.change.request.reset_request import OutOfRange, Strategy, StrategyKind
from acktrail.dataclass_json import from_json_value, to_json_value
from acktrail.errors import AcktrailError
from acktrail.model.batches import TERMINAL_STATES, DeliveryState, StateBatch
from acktrail.model.offset_ranges import joined


def impact(facts: PartitionFacts, target: int) -> Impact:
    found = impact_of(facts, target)
    assert found is not None
    return found


def states(facts: PartitionFacts) -> dict[int, int | None]:
    """The delivery state of each offset that the log holds at or above the start offset; None: no trace."""
    assert facts.state is not None
    found: dict[int, int | None] = dict.fromkeys(range(facts.log_start_offset or 0, facts.log_end_offset or 0))
    for first, last, state, _ in facts.state.batches:
        for offset in range(first, last + 1):
            if offset in found:
                found[offset] = state
    return {o: s for o, s in found.items() if facts.start_offset is not None and o >= facts.start_offset}


@given(logs(), st.data(), st.sets(st.integers(0, 40)))
def test_numbers_are_those_counted_one_by_one(facts: PartitionFacts, data: st.DataObject, hidden: set[int]) -> None:
    """Delivered again, forgotten, skipped, in flight: for any state, log and target, as counted offset by offset.
    Offsets that are no records of the group count nowhere, whatever the state says of them."""
    low, high = facts.log_start_offset or 0, facts.log_end_offset or 0
    facts = replace(facts, hidden=joined((offset, offset) for offset in sorted(hidden)))
    target = data.draw(st.integers(low, high))
    found = impact(facts, target)
    assert found.unit is CountUnit.RECORDS
    assert impact(replace(facts, hidden=None), target).unit is CountUnit.OFFSETS
    if facts.start_offset is None:
        assert found.delivered_again == found.in_flight_discarded == 0
        assert found.skipped == (0 if target == low else None)
        return
    state = {o: s for o, s in states(facts).items() if o not in hidden}
    passed = [o for o in range(low, high) if o < facts.start_offset and o not in hidden]
    done = {o for o, s in state.items() if s in TERMINAL_STATES}

    again = [o for o in passed if o >= target]
    assert found.passed_again == found.passed_unknown == len(again)
    acknowledged = len([o for o in done if o >= target and state[o] == DeliveryState.ACKNOWLEDGED])
    archived = len([o for o in done if o >= target and state[o] == DeliveryState.ARCHIVED])
    assert (found.acknowledgements_known, found.archived_known) == (acknowledged, archived)
    is_known = not again
    assert found.acknowledgements_forgotten == (acknowledged if is_known else None)
    assert found.archived_forgotten == (archived if is_known else None), "below the start offset nobody was asked"
    assert (found.reason is None) is is_known
    assert found.skipped == len([o for o in state if o < target and o not in done])
    assert found.in_flight_discarded == len([o for o, s in state.items() if s is not None and o not in done])
    assert found.to_deliver == len([o for o in range(target, high) if o not in hidden])
    assert found.to_deliver + found.hidden_ahead == high - target
    parts = (found.passed_again, found.acknowledgements_known, found.archived_known)
    assert found.delivered_again == sum(part or 0 for part in parts)


@given(logs(), st.data(), st.booleans())
def test_the_history_adds_what_lies_below_the_start_offset(
    facts: PartitionFacts, data: st.DataObject, is_whole: bool
) -> None:
    """What the history tells of exactly these records is added to what the state has; of others it is no answer."""
    assert facts.log_start_offset is not None
    target = data.draw(st.integers(facts.log_start_offset, facts.log_end_offset))
    span = passed_range(facts, target)
    if span is None:
        return
    count = span[1] - span[0] + 1
    acknowledged = data.draw(st.integers(0, count))
    archived = data.draw(st.integers(0, count - acknowledged))
    passed = PassedFacts(
        first_offset=span[0],
        last_offset=span[1],
        acknowledged=acknowledged,
        archived=archived,
        unknown=0 if is_whole else 1,
        since_ms=7,
        reason=None if is_whole else "a gap",
    )
    without, found = impact(facts, target), impact(replace(facts, passed=passed), target)
    assert without.archived_forgotten is None
    assert found.archived_known == (without.archived_known or 0) + archived
    assert found.acknowledgements_known == (without.acknowledgements_known or 0) + acknowledged
    assert found.archived_forgotten == (found.archived_known if is_whole else None)
    assert found.acknowledgements_forgotten == (found.acknowledgements_known if is_whole else None)
    assert (found.reason, found.known_since_ms) == (passed.reason, 7)
    assert found.delivered_again == without.delivered_again
    other = impact(replace(facts, passed=replace(passed, last_offset=span[1] + 1)), target)
    assert (other.archived_forgotten, other.archived_known) == (None, without.archived_known)


@given(logs(), st.data(), st.sampled_from([None, "READ is missing"]))
def test_a_group_that_does_not_exist_has_finished_nothing(
    facts: PartitionFacts, data: st.DataObject, reason: str | None
) -> None:
    """All below the target are skipped, a known number, also without the state topic; nothing is delivered again."""
    new = replace(facts, start_offset=None, state=None, state_reason=reason, is_described=False, is_new_group=True)
    low, high = new.log_start_offset or 0, new.log_end_offset or 0
    target = data.draw(st.integers(low, high))
    found = impact(new, target)
    assert (found.skipped, found.to_deliver) == (target - low, high - target)
    assert not found.delivered_again
    assert not found.passed_again


def test_an_unknown_state_counts_nothing() -> None:
    """Without the state topic no number is guessed."""
    facts = partition_facts(state=None, state_reason="READ is missing")
    found = impact(facts, 20)

    assert found.to_deliver == 80
    assert (found.delivered_again, found.passed_again, found.in_flight_discarded) == (None, 20, None)
    assert found.skipped == 0, "the target lies below the start offset"
    assert [impact(facts, at).skipped for at in (40, 41)] == [0, None]
    assert found.reason == "READ is missing"


def resolved(kind: str, asked: dict[str, Any], facts: dict[str, Any]) -> Resolution:
    values = {name: value for name, value in asked.items() if name != "out_of_range"}
    out = OutOfRange(asked.get("out_of_range", OutOfRange.CLAMP))
    return resolve(Strategy(kind=StrategyKind(kind), **values), facts_of(facts), out)


@pytest.mark.parametrize(("kind", "asked", "facts", "wanted", "target", "clamp", "note"), CASES["targets"])
def test_targets(
    kind: str, asked: Any, facts: Any, wanted: int, target: int, clamp: str | None, note: str | None
) -> None:
    """R004-01, R004-02, R004-08: each strategy's start offset, clamped to the log, with why."""
    found = resolved(kind, asked, facts)
    assert (found.wanted, found.target, found.clamp) == (wanted, target, clamp)
    assert (found.note and found.note[0]) == note
    assert found.refusal is None


@pytest.mark.parametrize(("kind", "asked", "facts", "rule"), CASES["no targets"])
def test_what_has_no_target_is_refused(kind: str, asked: Any, facts: Any, rule: str) -> None:
    """R004-30: nothing to count from, out of range where that is refused, a log that cannot be asked."""
    found = resolved(kind, asked, facts)
    assert (found.target, found.refusal and found.refusal[0]) == (None, rule)


@given(logs(), st.integers(-60, 60))
def test_a_target_is_always_in_the_log(facts: PartitionFacts, number: int) -> None:
    """Whatever is asked for, what is sent lies in the log: Kafka would not check."""
    for kind in StrategyKind:
        strategy = Strategy(kind=kind, number=number, moment_ms=0)
        found = resolve(
            strategy, replace(facts, given=TargetOffset(offset=abs(number)), offset_at=facts.log_start_offset)
        ).target
        assert found is None or (facts.log_start_offset or 0) <= found <= (facts.log_end_offset or 0)


def test_overlapping_batches_count_once() -> None:
    """A lone snapshot may hold overlaps: the highest count wins, each offset once."""
    found = (
        StateBatch(first_offset=40, last_offset=49, delivery_state=2, delivery_count=1),
        StateBatch(first_offset=45, last_offset=54, delivery_state=0, delivery_count=2),
    )
    seen = impact(partition_facts(40, (0, 100), found), 40)
    assert (seen.acknowledgements_forgotten, seen.in_flight_discarded) == (5, 10)


KINDS = [kind for kind in StrategyKind if kind not in {StrategyKind.BY_DURATION, StrategyKind.TO_SNAPSHOT}]


def sends(plan: ResetPlan) -> tuple[Any, ...]:
    """What a plan asks for, and what forbids it or has to be known."""
    targets = {row.key: row.target_offset for row in plan.executable(partial=True)}
    return targets, {(one.rule, one.group_id, one.topic, one.partition) for one in plan.refusals}


def is_refused(plan: ResetPlan, now: Snapshot, given: TargetOffsets) -> bool:
    rows = plan.executable(partial=True)
    known = {facts.key for facts in now.partitions}
    if any(row.key not in known for row in plan.partitions) or plan.group_ids != ("g",):
        return True  # the snapshot of such a plan is another one
    if changes_since_plan(plan, rows, now):
        return True
    own = own_offsets(plan) if plan.request.strategy.kind in OWN_OFFSETS else given
    return not rows or bool(differences(plan, rows, as_planned(plan, now, own)))


@settings(max_examples=150)
@given(logs(), st.sampled_from(KINDS), st.integers(0, 60), st.data())
def test_an_edited_number_is_refused_or_changes_nothing(facts: Any, kind: StrategyKind, number: int, data: Any) -> None:
    """Whatever number is edited: the plan is refused, or it asks for what the plan of its request, made now, asks for,
    with the same refusals."""
    values = {
        StrategyKind.TO_OFFSET: {"number": number},
        StrategyKind.SHIFT_BY: {"number": number - 30},
        StrategyKind.TO_DATETIME: {"moment_ms": number},
        StrategyKind.TO_HISTORY: {"moment_ms": number},
        StrategyKind.FROM_FILE: {"source": "offsets.csv"},
    }
    request = a_request(strategy=Strategy(kind=kind, **values.get(kind, {})))
    named = TargetOffset(offset=number) if kind in {StrategyKind.FROM_FILE, StrategyKind.TO_HISTORY} else TargetOffset()
    at = number if (facts.log_start_offset or 0) <= number < (facts.log_end_offset or 0) else None
    now = a_snapshot(replace(facts, given=named, offset_at=at))
    given: TargetOffsets = {"g": {("orders", 0): named}}
    plan = a_plan(request, now)
    assert not plan.executable(partial=True) or not is_refused(plan, now, given), "as it was made it stands"
    plain, other = to_json_value(plan), data.draw(st.integers(0, 70))
    numbers = [path for path in leaves(plain) if type(reduce(getitem, path, plain)) in (int, NoneType)]
    path = data.draw(st.sampled_from(numbers))
    try:
        changed = with_hash(from_json_value(ResetPlan, edited(plain, path, lambda _: other)))
    except AcktrailError:  # it is no plan any more
        return
    if is_refused(changed, now, given):
        return
    own = own_offsets(changed) if kind in OWN_OFFSETS else given
    fresh = a_plan(changed.request, as_planned(changed, now, own))
    assert sends(changed) == sends(fresh), path
