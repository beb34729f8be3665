"""The log of the simulated share coordinator, by the rules of the founding documents."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from samples.coordinator_random_calls import Step, coordinator, scripts, take

from acktrail.model.records import RecordAt
from acktrail_drafts.strict_replay import replay_strictly
from acktrail_simulation.coordinator.release_rules import KAFKA_4_4, KAFKA_TRUNK, CoordinatorRules


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
