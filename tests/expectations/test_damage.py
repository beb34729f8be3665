"""Each kind of damage is caught by the expectation that is meant for it and by no other."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from expectations.sample_damage import (
    CLUSTER,
    EXPORTED,
    FIRST,
    LATER,
    OBSERVED,
    RANGE_DAMAGE,
    RANGES,
    RECONCILIATION_DAMAGE,
    RECONCILIATIONS,
    RECORD_DAMAGE,
    RECORDS,
    STATE_DAMAGE,
    STATE_PARTITION_DAMAGE,
    STATES,
    at,
    batches,
    failing,
    failing_ranges,
    failing_state_partitions,
    moved_away,
    record_frame,
)
from expectations.sample_tables import (
    NOW,
    changed,
    cluster,
    logs,
    no_gaps,
    row_where,
    without,
)
from state_topics.coordinator_log import TOPIC, Coordinator, batch, share_partition

from acktrail.model.rules.catalogue import QUALITY_RULES, RULE_BY_ID
from acktrail_expectations.gx.suite_check import SuiteCheck, evaluate
from acktrail_expectations.inputs.observed_cluster import ObservedCluster
from acktrail_expectations.row_labels import SHARE_PARTITION, STATE_PARTITION, STATE_RECORD
from acktrail_expectations.suites import export_ranges as range_suite
from acktrail_expectations.suites import reconciliations as reconciliation_suite
from acktrail_expectations.suites import share_partition_states as state_suite
from acktrail_expectations.suites import state_partitions as state_partition_suite
from acktrail_expectations.suites import state_records as record_suite
from acktrail_expectations.suites.reconciliations import reconciliations_frame
from acktrail_expectations.suites.share_partition_states import share_partition_states_frame
from acktrail_expectations.suites.state_partitions import state_partitions_frame
from acktrail_expectations.suites.state_records import StateRecordFrames


def test_snapshot_epochs_begin_at_0_after_a_tombstone() -> None:
    """A snapshot with another epoch than 0 right after a tombstone means that one before it is missing."""
    life = Coordinator()
    life.initialize(share_partition())
    life.delete(share_partition())
    life.initialize(share_partition())
    checks = record_suite.state_record_checks(CLUSTER)

    assert failing("state_records", checks, record_frame(life.table())) == set()
    harmed = changed(life.table(), 2, snapshot_epoch=1)
    assert failing("state_records", checks, record_frame(harmed)) == {"snapshot_epoch_step"}


@pytest.mark.parametrize("damage", RECORD_DAMAGE)
def test_damaged_state_records(damage: str) -> None:
    """Damage to state records makes exactly its own expectations fail."""
    harm, expected = RECORD_DAMAGE[damage]

    found = failing("state_records", record_suite.state_record_checks(CLUSTER), record_frame(harm(RECORDS)))

    assert expected == found


@pytest.mark.parametrize("damage", STATE_DAMAGE)
def test_damaged_states(damage: str) -> None:
    """Damage to replayed states makes exactly its own expectations fail."""
    harm, expected = STATE_DAMAGE[damage]
    frame = share_partition_states_frame(harm(STATES), cluster=CLUSTER)

    found = failing("share_partition_states", state_suite.share_partition_state_checks(CLUSTER), frame)

    assert expected == found - {"terminal_prefix_absorbed"}


def test_a_start_offset_below_the_log_start() -> None:
    """Retention that went ahead of a group is a rule of its own: legal, and said."""
    observed = cluster(offsets=logs(ends={(TOPIC, 0): (2, 100)}))
    frame = share_partition_states_frame(STATES, cluster=observed)

    found = failing("share_partition_states", state_suite.share_partition_state_checks(observed), frame)

    assert found == {"start_offset_ge_log_start", "terminal_prefix_absorbed"}


@pytest.mark.parametrize("damage", RECONCILIATION_DAMAGE)
def test_damaged_reconciliations(damage: str) -> None:
    """Damage to reconciliations makes exactly its own expectations fail."""
    harm, expected = RECONCILIATION_DAMAGE[damage]

    found = failing(
        "reconciliations", reconciliation_suite.RECONCILIATION_CHECKS, reconciliations_frame(harm(RECONCILIATIONS))
    )

    assert expected == found


def test_values_that_moved_need_not_be_the_same() -> None:
    """A match of values that moved, or a lag at a log that grew, says only that they lie between."""
    moved = changed(RECONCILIATIONS, FIRST, durable_start_offset=3, durable_lag=3, moved=True)
    grown = changed(RECONCILIATIONS, FIRST, durable_lag=3, log_end_offset_before=90)

    for table in (moved, grown):
        assert (
            failing("reconciliations", reconciliation_suite.RECONCILIATION_CHECKS, reconciliations_frame(table))
            == set()
        )


@pytest.mark.parametrize("damage", RANGE_DAMAGE)
def test_damaged_ranges(damage: str) -> None:
    """Damage to export ranges makes exactly its own expectations fail."""
    harm, expected = RANGE_DAMAGE[damage]

    assert expected == failing_ranges(harm(RANGES), None)


def test_a_record_that_is_not_stored() -> None:
    """A commit that says more records than the table holds in its offsets is caught, also where it lost its first
    records, or all of a state partition's."""
    lost = (
        without(RECORDS, row_where(RECORDS, state_partition=1, offset=3)),
        without(RECORDS, row_where(RECORDS, state_partition=1, offset=0)),
        RECORDS.filter(pc.field("state_partition") != 1),
    )

    for addresses in lost:
        assert failing_ranges(RANGES, addresses) == {"records_stored"}
    assert failing_ranges(RANGES, RECORDS) == set()


def many_updates(count: int) -> pa.Table:
    life = Coordinator(limit=1_000)
    life.initialize(share_partition())
    for offset in range(count):
        life.write(share_partition(), offset, batch(offset, offset))
    return life.table()


@pytest.mark.few(2)
@pytest.mark.parametrize(("dead_letters", "most"), [(False, 501), (True, 500)])
def test_a_missed_snapshot(dead_letters: bool, most: int) -> None:
    """More updates than a broker's configuration can allow; one more is tolerated where an older release did it. The
    count continues from piece to piece of a log."""
    observed = replace(CLUSTER, has_dead_letters=dead_letters)
    records = many_updates(most + 1)
    checks = record_suite.state_record_checks(observed)

    assert failing("state_records", checks, record_frame(records.slice(0, most + 1))) == set()
    assert failing("state_records", checks, record_frame(records)) == {"snapshot_cadence"}
    frames = StateRecordFrames(gaps=no_gaps(), cluster=observed)
    pieces = [frames.add(records.slice(at, 200), since={}) for at in range(0, records.num_rows, 200)]
    assert [failing("state_records", checks, piece) for piece in pieces] == [set(), set(), {"snapshot_cadence"}]


@pytest.mark.parametrize("damage", STATE_PARTITION_DAMAGE)
def test_damaged_state_partitions(damage: str) -> None:
    """An export that is behind, old, or of another number of state partitions fails exactly its own expectation."""
    observed, exported, now, expected = STATE_PARTITION_DAMAGE[damage]

    assert expected == failing_state_partitions(observed, exported, now)


def test_state_partitions_as_they_should_be() -> None:
    """The export reaches the log end of the first sample; an empty state partition needs none; the first validation of
    a state topic has no number of partitions to compare with."""
    assert failing_state_partitions(OBSERVED, EXPORTED, LATER) == set()
    empty = changed(OBSERVED, row_where(OBSERVED, topic_id="state", partition=1), log_end_offset=0)
    assert failing_state_partitions(empty, replace(EXPORTED, ends={0: 5, 2: 5}), NOW) == set()

    frame = state_partitions_frame(OBSERVED, exported=replace(EXPORTED, partition_counts={}), now=NOW)
    results = evaluate("state_partitions", state_partition_suite.STATE_PARTITION_CHECKS, frame, STATE_PARTITION)
    assert [(result.state.value, result.element_count) for result in results] == [
        ("not_evaluated", 0),
        ("holds", 3),
        ("holds", 3),
    ]


def test_limits_that_are_not_known_are_not_evaluated() -> None:
    """Without the configuration of a group its records in flight are compared with nothing."""
    observed = cluster(configs={})
    frame = share_partition_states_frame(STATES, cluster=observed)
    results = evaluate(
        "share_partition_states", state_suite.share_partition_state_checks(observed), frame, SHARE_PARTITION
    )

    assert [r.state.value for r in results if r.expectation == "inflight_within_lock_limit"] == ["not_evaluated"]


CAUGHT: dict[str, set[str]] = {
    "state_records": set().union(*(rules for _, rules in RECORD_DAMAGE.values()))
    | {"snapshot_cadence", "record_matches_raw_bytes"},  # the second: test_raw_bytes.py
    "share_partition_states": set().union(*(rules for _, rules in STATE_DAMAGE.values()))
    | {"start_offset_ge_log_start", "terminal_prefix_absorbed"},
    "reconciliations": set().union(*(rules for _, rules in RECONCILIATION_DAMAGE.values())),
    "export_ranges": set().union(*(rules for _, rules in RANGE_DAMAGE.values())) | {"records_stored"},
    "state_partitions": set().union(*(rules for *_, rules in STATE_PARTITION_DAMAGE.values())),
}
"""What the tests of this file, and those that are named, make fail."""

SUITES: dict[str, tuple[SuiteCheck, ...]] = {
    "state_records": (*record_suite.state_record_checks(CLUSTER), record_suite.MATCHES_RAW_BYTES),
    "share_partition_states": state_suite.share_partition_state_checks(CLUSTER),
    "reconciliations": reconciliation_suite.RECONCILIATION_CHECKS,
    "export_ranges": range_suite.EXPORT_RANGE_CHECKS,
    "state_partitions": state_partition_suite.STATE_PARTITION_CHECKS,
}


@pytest.mark.parametrize("suite", SUITES)
def test_every_expectation_has_damage_of_its_own(suite: str) -> None:
    """No expectation of any suite is without a frame that makes it fail, and the suite has exactly the rules that the
    catalogue has for it."""
    rules = {check.rule for check in SUITES[suite]}

    assert rules == CAUGHT[suite]
    assert {RULE_BY_ID[rule].id for rule in rules} == {rule.id for rule in QUALITY_RULES if suite in rule.suites}


def test_undamaged_tables_pass() -> None:
    """The frames that the damage is done to break no rule."""
    assert failing("state_records", record_suite.state_record_checks(CLUSTER), record_frame(RECORDS)) == set()
    frame = share_partition_states_frame(STATES, cluster=CLUSTER)
    found = failing("share_partition_states", state_suite.share_partition_state_checks(CLUSTER), frame)
    assert found == {"terminal_prefix_absorbed"}  # for information: the sample has finished records at its start
    frame = reconciliations_frame(RECONCILIATIONS)
    assert failing("reconciliations", reconciliation_suite.RECONCILIATION_CHECKS, frame) == set()
    assert failing_ranges(RANGES, RECORDS) == set()


def test_a_damaged_record_is_named() -> None:
    """The result says where the damage is, as state partition and offset."""
    frame = record_frame(at(0, 9, start_offset=30, delivery_complete_count=34)(RECORDS))

    results = evaluate("state_records", record_suite.state_record_checks(CLUSTER), frame, STATE_RECORD)

    assert [r.observed_value for r in results if r.success is False] == [f"0/9 of orders/{TOPIC}/0"]


def test_archiving_passes_where_the_release_has_it() -> None:
    """Archiving is allowed from Kafka 4.4 on, and where nothing says which release it is."""
    harmed = record_frame(at(0, 3, batches=batches((0, 9, 3, 1)))(RECORDS))

    assert failing("state_records", record_suite.state_record_checks(ObservedCluster()), harmed) == set()


def test_placement_is_not_judged_without_a_partition_count() -> None:
    """Where the number of state partitions is not known, no record is on a wrong one."""
    cluster = ObservedCluster(delivery_states=(0, 2, 4))
    frame = StateRecordFrames(gaps=no_gaps(), cluster=cluster).add(moved_away(RECORDS), since={})

    assert failing("state_records", record_suite.state_record_checks(cluster), frame) == set()
