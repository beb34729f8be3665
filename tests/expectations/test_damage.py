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
    failing_by_damage,
    failing_state_partitions,
    moved_away,
    range_frame,
    record_frame,
)
from expectations.sample_tables import (
    NOW,
    changed,
    cluster,
    logs,
    record_frames,
    row_where,
    without,
)
from state_topics.coordinator_log import TOPIC, Coordinator, batch, share_partition

from acktrail.model.rules.catalogue import QUALITY_RULES
from acktrail_expectations.evaluation import checks_of, evaluate
from acktrail_expectations.frames.table_frames import (
    reconciliations_frame,
    share_partition_states_frame,
    state_partitions_frame,
)
from acktrail_expectations.observed_cluster import ObservedCluster


def test_snapshot_epochs_begin_at_0_after_a_tombstone() -> None:
    """A snapshot with another epoch than 0 right after a tombstone means that one before it is missing."""
    life = Coordinator()
    life.initialize(share_partition())
    life.delete(share_partition())
    life.initialize(share_partition())

    assert failing("state_records", record_frame(life.table())) == set()
    harmed = changed(life.table(), 2, snapshot_epoch=1)
    assert failing("state_records", record_frame(harmed)) == {"snapshot_epoch_step"}


def test_damaged_state_records() -> None:
    """Damage to state records makes exactly its own expectations fail; without damage none fails."""
    frames = {name: record_frame(harm(RECORDS)) for name, (harm, _) in RECORD_DAMAGE.items()}
    apart = ("state_partition", "first_state_partition", "home_state_partition")

    found = failing_by_damage("state_records", {**frames, "nothing": record_frame(RECORDS)}, apart)

    assert found == {**{name: expected for name, (_, expected) in RECORD_DAMAGE.items()}, "nothing": set()}


def test_damaged_states() -> None:
    """Damage to replayed states makes exactly its own expectations fail; without damage only what is for information
    does: the sample has finished records at its start."""
    tables = {**{name: harm(STATES) for name, (harm, _) in STATE_DAMAGE.items()}, "nothing": STATES}
    frames = {name: share_partition_states_frame(table, cluster=CLUSTER) for name, table in tables.items()}

    found = failing_by_damage("share_partition_states", frames, ("partition",))

    known = {"terminal_prefix_absorbed"}
    assert {name: rules - known for name, rules in found.items()} == {
        **{name: expected for name, (_, expected) in STATE_DAMAGE.items()},
        "nothing": set(),
    }
    assert found["nothing"] == known


def test_a_start_offset_below_the_log_start() -> None:
    """Retention that went ahead of a group is a rule of its own: legal, and said."""
    observed = cluster(offsets=logs(ends={(TOPIC, 0): (2, 100)}))
    frame = share_partition_states_frame(STATES, cluster=observed)

    found = failing("share_partition_states", frame)

    assert found == {"start_offset_ge_log_start", "terminal_prefix_absorbed"}


def test_damaged_reconciliations() -> None:
    """Damage to reconciliations makes exactly its own expectations fail. A match of values that moved, or a lag at a
    log that grew, says only that they lie between."""
    harmless = {
        "nothing": RECONCILIATIONS,
        "moved": changed(RECONCILIATIONS, FIRST, durable_start_offset=3, durable_lag=3, moved=True),
        "grown": changed(RECONCILIATIONS, FIRST, durable_lag=3, log_end_offset_before=90),
    }
    tables = {**{name: harm(RECONCILIATIONS) for name, (harm, _) in RECONCILIATION_DAMAGE.items()}, **harmless}
    frames = {name: reconciliations_frame(table) for name, table in tables.items()}

    found = failing_by_damage("reconciliations", frames, ("partition",))

    assert found == {
        **{name: expected for name, (_, expected) in RECONCILIATION_DAMAGE.items()},
        **{name: set() for name in harmless},
    }


def test_damaged_ranges() -> None:
    """Damage to export ranges makes exactly its own expectations fail. So does a commit that says more records than the
    table holds in its offsets, also where it lost its first records, or all of a state partition's."""
    lost = {
        "one record": without(RECORDS, row_where(RECORDS, state_partition=1, offset=3)),
        "the first record": without(RECORDS, row_where(RECORDS, state_partition=1, offset=0)),
        "a state partition": RECORDS.filter(pc.field("state_partition") != 1),
        "nothing": RECORDS,
    }
    frames = {name: range_frame(harm(RANGES)) for name, (harm, _) in RANGE_DAMAGE.items()}
    frames |= {name: range_frame(RANGES, addresses) for name, addresses in lost.items()}

    found = failing_by_damage("export_ranges", frames)

    not_stored = {name: set() if name == "nothing" else {"records_stored"} for name in lost}
    assert found == {**{name: expected for name, (_, expected) in RANGE_DAMAGE.items()}, **not_stored}


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

    assert failing("state_records", record_frame(records.slice(0, most + 1), observed)) == set()
    assert failing("state_records", record_frame(records, observed)) == {"snapshot_cadence"}
    frames = record_frames(records, observed)
    pieces = [frames.add(records.slice(at, 200), since={}) for at in range(0, records.num_rows, 200)]
    assert [failing("state_records", piece) for piece in pieces] == [set(), set(), {"snapshot_cadence"}]


def test_damaged_state_partitions() -> None:
    """An export that is behind, old, or of another number of state partitions fails exactly its own expectation."""
    frames = {
        name: state_partitions_frame(observed, exported=exported, now=now)
        for name, (observed, exported, now, _) in STATE_PARTITION_DAMAGE.items()
    }

    found = failing_by_damage("state_partitions", frames)

    assert found == {name: expected for name, (*_, expected) in STATE_PARTITION_DAMAGE.items()}


def test_state_partitions_as_they_should_be() -> None:
    """The export reaches the log end of the first sample; an empty state partition needs none; the first validation of
    a state topic has no number of partitions to compare with."""
    assert failing_state_partitions(OBSERVED, EXPORTED, LATER) == set()
    empty = changed(OBSERVED, row_where(OBSERVED, topic_id="state", partition=1), log_end_offset=0)
    assert failing_state_partitions(empty, replace(EXPORTED, ends={0: 5, 2: 5}), NOW) == set()

    frame = state_partitions_frame(OBSERVED, exported=replace(EXPORTED, partition_counts={}), now=NOW)
    results = evaluate("state_partitions", checks_of("state_partitions"), frame, str)
    assert [(result.state.value, result.element_count) for result in results] == [
        ("holds", 3),
        ("holds", 3),
        ("not_evaluated", 0),
    ]


def test_limits_that_are_not_known_are_not_evaluated() -> None:
    """Without the configuration of a group its records in flight are compared with nothing."""
    observed = cluster(configs={})
    frame = share_partition_states_frame(STATES, cluster=observed)
    results = evaluate("share_partition_states", checks_of("share_partition_states"), frame, str)

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


@pytest.mark.parametrize("suite", CAUGHT)
def test_every_expectation_has_damage_of_its_own(suite: str) -> None:
    """No expectation of any suite is without a frame that makes it fail."""
    assert {rule.id for rule in QUALITY_RULES if suite in rule.suites} == CAUGHT[suite]


def test_archiving_passes_where_the_release_has_it() -> None:
    """Archiving is allowed from Kafka 4.4 on, and where nothing says which release it is."""
    harmed = record_frame(at(0, 3, batches=batches((0, 9, 3, 1)))(RECORDS), ObservedCluster())

    assert failing("state_records", harmed) == set()


def test_placement_is_not_judged_without_a_partition_count() -> None:
    """Where the number of state partitions is not known, no record is on a wrong one."""
    cluster = ObservedCluster(delivery_states=(0, 2, 4))
    frame = record_frames(moved_away(RECORDS), cluster).add(moved_away(RECORDS), since={})

    assert failing("state_records", frame) == set()
