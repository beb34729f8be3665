"""What must hold of the share partitions of a plan before anybody is asked to approve it.

They restate what the planner promises, from the stored rows alone: a plan that breaks one was not made by it.
"""

from __future__ import annotations

from acktrail_expectations.check import Check, at_least, equal
from acktrail_expectations.gx.engine import core
from acktrail_expectations.severity import Severity

__all__ = ["reset_plan"]


def reset_plan() -> tuple[Check, ...]:
    """Checks of a frame that ``frames.reset_plan`` made."""
    return (*_target_checks(), *_impact_checks())


def _target_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="share_partition_once",
            expectation=core.ExpectCompoundColumnsToBeUnique(column_list=["group_id", "topic", "partition"]),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="target_or_refusal",
            expectation=core.ExpectColumnValuesToBeInSet(column="has_target_or_refusal", value_set=[True]),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="target_not_negative",
            expectation=core.ExpectColumnValuesToBeBetween(column="sent_target", min_value=0),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="target_ge_log_start",
            expectation=at_least("sent_target", "log_start_offset"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="target_le_log_end",
            expectation=at_least("log_end_offset", "sent_target"),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="target_is_wanted_unless_clamped",
            expectation=equal("unclamped_target", "wanted_offset"),
            severity=Severity.CRITICAL,
        ),
    )


def _impact_checks() -> tuple[Check, ...]:
    return (
        Check(
            rule="skips_only_where_allowed",
            expectation=core.ExpectColumnValuesToBeInSet(column="unallowed_skip", value_set=[False]),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="to_deliver_is_log_end_less_target",
            expectation=equal("to_deliver", "offsets_to_deliver"),
            severity=Severity.ERROR,
        ),
        Check(
            rule="delivered_again_adds_up",
            expectation=equal("delivered_again", "sum_of_delivered_again"),
            severity=Severity.ERROR,
        ),
        Check(
            rule="delivered_again_le_to_deliver",
            expectation=at_least("to_deliver", "delivered_again"),
            severity=Severity.ERROR,
        ),
    )
