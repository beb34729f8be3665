"""What must hold of the results of a plan, once they were verified."""

from __future__ import annotations

from acktrail_expectations.check import Check, at_least, equal
from acktrail_expectations.gx.engine import core
from acktrail_expectations.severity import Severity

__all__ = ["reset_result"]


def reset_result() -> tuple[Check, ...]:
    """Checks of a frame that ``frames.reset_result`` made."""
    return (
        Check(
            rule="share_partition_once",
            expectation=core.ExpectCompoundColumnsToBeUnique(column_list=["group_id", "topic", "partition"]),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="every_outcome_settled",
            expectation=core.ExpectColumnValuesToBeInSet(column="is_settled", value_set=[True]),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="every_share_partition_done",
            expectation=core.ExpectColumnValuesToBeInSet(column="is_done", value_set=[True]),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="start_offset_is_target",
            expectation=equal("done_start_offset", "target_offset"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="described_start_offset_is_target",
            expectation=equal("done_described_start_offset", "target_offset"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="state_epoch_not_back",
            expectation=at_least("state_epoch_after", "state_epoch_before"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="shown_by_a_state_record",
            expectation=core.ExpectColumnValuesToBeInSet(column="has_evidence", value_set=[True]),
            severity=Severity.WARNING,
        ),
    )
