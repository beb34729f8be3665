"""What must hold of ``share_partition_states``.

`start <= end` holds by construction, since the end is derived; the rules with content compare with the log. A start
offset below the log start is legal (retention went ahead, the next load puts it right): a warning. A start offset or a
batch beyond the log end is critical: a reset beyond the end, or a log that was truncated or replaced; what lies in
between is never delivered.
"""

from __future__ import annotations

from acktrail.model.observation import Completeness
from acktrail_expectations.check import Check, at_least, equal
from acktrail_expectations.gx import custom_expectations
from acktrail_expectations.gx.engine import core
from acktrail_expectations.inputs.cluster_facts import ClusterFacts
from acktrail_expectations.severity import Severity
from acktrail_expectations.suites.batches import batch_checks

__all__ = ["share_partition_states"]


def share_partition_states(facts: ClusterFacts) -> tuple[Check, ...]:
    """Checks of a frame that ``frames.share_partition_states`` made."""
    return (*_identity_checks(), *batch_checks(facts), *_window_checks(), *_count_checks(), *_completeness_checks())


def _identity_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="share_partition_once",
            expectation=core.ExpectCompoundColumnsToBeUnique(column_list=["group_id", "topic_id", "partition"]),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="key_on_its_state_partition",
            expectation=equal("state_partition", "home_state_partition"),
            severity=Severity.ERROR,
        ),
    )


def _window_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="batches_below_log_end",
            expectation=custom_expectations.ExpectBatchesBelowLogEnd(column_list=["batches", "log_end_offset"]),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="start_offset_le_end_offset",
            expectation=at_least("end_offset", "start_offset"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="start_offset_le_log_end",
            expectation=at_least("log_end_offset", "start_offset"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="end_offset_le_log_end",
            expectation=at_least("log_end_offset", "end_offset"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="start_offset_ge_log_start",
            expectation=at_least("start_offset", "log_start_offset"),
            severity=Severity.WARNING,
        ),
        Check(
            rule="effective_start_ge_start_offset",
            expectation=at_least("effective_start_offset", "start_offset"),
            severity=Severity.ERROR,
            only_where="effective start offset",
        ),
        Check(
            rule="effective_start_le_end_offset",
            expectation=at_least("end_offset", "effective_start_offset"),
            severity=Severity.ERROR,
            only_where="effective start offset",
        ),
    )


def _count_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="finished_records_match_batches",
            expectation=equal("finished_records", "terminal_offsets"),
            severity=Severity.ERROR,
        ),
        Check(
            rule="delivery_complete_count_covers",
            expectation=at_least("delivery_complete_count", "terminal_offsets"),
            severity=Severity.WARNING,
            only_where="delivery complete count",
        ),
    )


def _completeness_checks() -> tuple[Check, ...]:
    unreliable = [Completeness.GAP.value, Completeness.UNREADABLE.value]
    return (
        Check(
            rule="state_reliable",
            expectation=core.ExpectColumnValuesToNotBeInSet(column="completeness", value_set=unreliable),
            severity=Severity.ERROR,
        ),
        Check(
            rule="state_has_snapshot",
            expectation=core.ExpectColumnValuesToNotBeInSet(
                column="completeness", value_set=[Completeness.NO_SNAPSHOT.value]
            ),
            severity=Severity.WARNING,
        ),
    )
