"""What must hold of ``state_records``.

Nothing here fails in a broker's normal life: cold snapshots, initializations and resets, tombstones, recreated topics,
empty updates with a new leader epoch after a restart, updates whose snapshot was pruned before the first export. Kafka
before 4.4 may let a start offset and a delivery complete count fall back; `start_offset_monotone` says so as an error.
"""

from __future__ import annotations

from typing import Final

from acktrail_expectations.check import Check, at_least, equal
from acktrail_expectations.gx.engine import core
from acktrail_expectations.inputs.cluster_facts import ClusterFacts
from acktrail_expectations.severity import Severity
from acktrail_expectations.suites.batches import batch_checks

__all__ = ["MATCHES_RAW_BYTES", "state_records"]

MATCHES_RAW_BYTES: Final = Check(
    rule="record_matches_raw_bytes",
    expectation=core.ExpectColumnValuesToBeInSet(column="matches_raw_bytes", value_set=[True]),
    severity=Severity.CRITICAL,
)
"""The decoded columns of a record are what its key and its value say: for frames that compare bytes."""


def state_records(facts: ClusterFacts) -> tuple[Check, ...]:
    """Checks of a frame that ``frames.state_records`` made, without ``MATCHES_RAW_BYTES``."""
    return (*_address_checks(), *batch_checks(facts), *_epoch_checks(), *_count_checks(), *_placement_checks())


def _address_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="record_once",
            expectation=core.ExpectCompoundColumnsToBeUnique(column_list=["state_partition", "offset"]),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="offsets_dense",
            expectation=equal("offset", "expected_offset"),
            severity=Severity.ERROR,
            only_where="record after another of its state partition",
        ),
        Check(
            rule="record_decoded",
            expectation=core.ExpectColumnValuesToBeInSet(column="decode_status", value_set=["decoded"]),
            severity=Severity.ERROR,
        ),
    )


def _epoch_checks() -> tuple[Check, ...]:
    """A snapshot epoch that does not fit means that records are missing."""
    return (
        Check(
            rule="snapshot_epoch_step",
            expectation=equal("snapshot_epoch", "successor_epoch"),
            severity=Severity.ERROR,
            only_where="snapshot after another record of its share partition",
        ),
        Check(
            rule="update_epoch_matches",
            expectation=equal("snapshot_epoch", "base_epoch"),
            severity=Severity.ERROR,
            only_where="update after another record of its share partition",
        ),
        Check(
            rule="update_has_base",
            expectation=core.ExpectColumnValuesToBeInSet(column="base_type", value_set=["snapshot", "update"]),
            severity=Severity.ERROR,
            only_where="update after another record of its share partition",
        ),
        Check(
            rule="state_epoch_monotone",
            expectation=at_least("state_epoch", "least_state_epoch"),
            severity=Severity.ERROR,
            only_where="state epoch after another of its share partition",
        ),
        Check(
            rule="leader_epoch_monotone",
            expectation=at_least("leader_epoch", "least_leader_epoch"),
            severity=Severity.ERROR,
            only_where="leader epoch after another of its share partition",
        ),
        Check(
            rule="start_offset_monotone",
            expectation=at_least("start_offset", "least_start_offset"),
            severity=Severity.ERROR,
            only_where="start offset after another of its share partition",
        ),
    )


def _count_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="delivery_complete_count_covers",
            expectation=at_least("delivery_complete_count", "terminal_offsets"),
            severity=Severity.WARNING,
            only_where="delivery complete count",
        ),
        Check(
            rule="create_le_write_timestamp",
            expectation=at_least("write_timestamp_ms", "create_timestamp_ms"),
            severity=Severity.WARNING,
            only_where="snapshot",
        ),
    )


def _placement_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="one_state_partition_per_key",
            expectation=equal("state_partition", "first_state_partition"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="key_on_its_state_partition",
            expectation=equal("state_partition", "home_state_partition"),
            severity=Severity.ERROR,
        ),
    )
