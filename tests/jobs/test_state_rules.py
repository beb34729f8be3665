"""What holds of every state that a broker writes."""

from __future__ import annotations

import pytest
from definitions.state_rules import broken_rules
from hypothesis import given
from hypothesis import strategies as st
from jobs.world import batch, key_of, snapshot, update
from samples.random_records import disjoint_batches

from acktrail.model.batches import StateBatch
from acktrail.model.replay import SharePartitionState, replay
from acktrail.reconcile.derived_columns import STATE_RULES

KEY = key_of("g")


def state_with(start: int | None, done: int | None, *batches: StateBatch) -> SharePartitionState:
    record = snapshot(KEY, start, batches, delivery_complete_count=done)
    return replay([record])[KEY]


@given(disjoint_batches(start=5), st.lists(disjoint_batches(start=5), max_size=3))
def test_what_a_broker_writes_breaks_no_rule(first: tuple[StateBatch, ...], more: list[tuple[StateBatch, ...]]) -> None:
    """A snapshot and merges onto it, with the count a broker keeps, pass every rule."""
    state = replay([snapshot(KEY, 5, first), *(update(KEY, 5, 10_000, batches) for batches in more)])[KEY]
    assert broken_rules(state) == ()


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        (state_with(0, 0, batch(5, 4, 0)), "batch_first_le_last"),
        (state_with(0, 20, batch(5, 9), batch(0, 3)), "batches_ascending"),
        (state_with(0, 20, batch(0, 5), batch(5, 9)), "batches_non_overlapping"),
        (state_with(3, 20, batch(2, 5)), "batches_not_below_start"),
        (state_with(0, 0, batch(0, 5, state=1)), "delivery_state_allowed"),
        (state_with(0, 6, batch(0, 5, count=26)), "delivery_count_possible"),
        (state_with(0, 6, batch(0, 5, count=-1)), "delivery_count_possible"),
        (state_with(None, None, batch(0, 5)), "uninitialized_without_batches"),
        (state_with(0, 5, batch(0, 5)), "delivery_complete_count_covers"),
    ],
)
def test_each_rule_can_be_broken_alone(state: SharePartitionState, rule: str) -> None:
    """One rule, one way to break it: the others do not answer for it."""
    assert broken_rules(state) == (rule,)
    assert rule in STATE_RULES
