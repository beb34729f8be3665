"""Each kind of damage is caught by the expectation that is meant for it and by no other."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from expectations.sample_damage import (
    CLUSTER,
    DAMAGE,
    EXPORTED,
    OBSERVED,
    RECORDS,
    STATES,
    failing,
    failing_by_damage,
    moved_away,
    observed_frame,
    record_frame,
    with_batches,
)
from expectations.sample_tables import changed, cluster, logs, record_frames, row_where
from state_topics.coordinator_log import TOPIC, Coordinator, batch, share_partition

from acktrail.model.rules.catalogue import QUALITY_RULES
from acktrail_expectations.evaluation import checks_of, evaluate
from acktrail_expectations.frames.frame_columns import ObservedCluster
from acktrail_expectations.frames.table_frames import share_partition_states_frame

pytestmark = pytest.mark.usefixtures("plain_engine")

ELSEWHERE = {"snapshot_cadence", "record_matches_raw_bytes", "start_offset_ge_log_start"}
"""Rules that other tests break: below, and in test_raw_bytes.py."""


@pytest.mark.parametrize("suite", DAMAGE)
def test_damage_breaks_its_own_rules(suite: str) -> None:
    """And no other; without damage none is broken but what is for information. No rule of the suite is without damage
    that breaks it."""
    damages = DAMAGE[suite]
    expected = [rules for _, rules in damages.frames]

    assert failing_by_damage(suite, [frame for frame, _ in damages.frames], damages.apart) == expected
    rules = {rule.id for rule in QUALITY_RULES if suite in rule.suites}
    assert rules - ELSEWHERE == set().union(*expected)


def test_snapshot_epochs_begin_at_0_after_a_tombstone() -> None:
    """A snapshot with another epoch than 0 right after a tombstone means that one before it is missing."""
    life = Coordinator()
    life.initialize(share_partition())
    life.delete(share_partition())
    life.initialize(share_partition())

    assert failing("state_records", record_frame(life.table())) == set()
    harmed = changed(life.table(), 2, snapshot_epoch=1)
    assert failing("state_records", record_frame(harmed)) == {"snapshot_epoch_step"}


def test_a_start_offset_below_the_log_start() -> None:
    """Retention that went ahead of a group is a rule of its own: legal, and said."""
    observed = cluster(offsets=logs(ends={(TOPIC, 0): (2, 100)}))
    frame = share_partition_states_frame(STATES, cluster=observed)

    found = failing("share_partition_states", frame)

    assert found == {"start_offset_ge_log_start", "terminal_prefix_absorbed"}


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
    frames = record_frames(records, observed)
    pieces = [frames.add(records.slice(at, 200), since={}) for at in range(0, records.num_rows, 200)]
    assert [failing("state_records", piece) for piece in pieces] == [set(), set(), {"snapshot_cadence"}]


def test_what_is_not_known_is_not_compared() -> None:
    """An empty state partition needs no export; the first validation of a state topic has no number of partitions to
    compare with; a group's records in flight are compared with nothing where its configuration is not known; and no
    record is on a wrong state partition where their number is not known."""
    empty = changed(OBSERVED, row_where(OBSERVED, topic_id="state", partition=1), log_end_offset=0)
    assert failing("state_partitions", observed_frame(EXPORTED | {"ends": {0: 5, 2: 5}}, empty)) == set()
    first = observed_frame(EXPORTED | {"partition_counts": {}})
    locks = share_partition_states_frame(STATES, cluster=cluster(configs={}))
    for suite, frame, rule in (
        ("state_partitions", first, "state_topic_partition_count_constant"),
        ("share_partition_states", locks, "inflight_within_lock_limit"),
    ):
        results = evaluate(suite, checks_of(suite), frame, str)
        assert [each.state.value for each in results if each.expectation == rule] == ["not_evaluated"]
    nowhere = record_frames(moved_away(RECORDS), ObservedCluster(delivery_states=(0, 2, 4)))
    assert failing("state_records", nowhere.add(moved_away(RECORDS), since={})) == set()


def test_archiving_passes_where_the_release_has_it() -> None:
    """Archiving is allowed from Kafka 4.4 on, and where nothing says which release it is."""
    harmed = record_frame(with_batches((0, 9, 3, 1))(RECORDS), ObservedCluster())

    assert failing("state_records", harmed) == set()
