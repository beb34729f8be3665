"""The rules of state batches, wherever a table has them."""

from __future__ import annotations

from acktrail_expectations.check import Check
from acktrail_expectations.gx import custom_expectations
from acktrail_expectations.inputs.cluster_facts import HIGHEST_DELIVERY_COUNT_LIMIT, ClusterFacts
from acktrail_expectations.severity import Severity

__all__ = ["batch_checks"]


def batch_checks(facts: ClusterFacts) -> tuple[Check, ...]:
    """Rules on `batches`, with `start_offset`, `is_uninitialized` and `delivery_count_limit` beside it.

    A count above the group's limit is a warning: it stays in the state when somebody lowers the limit. A count that no
    configuration allows is an error.
    """
    batches = "batches"
    return (
        Check(
            rule="batch_first_le_last",
            expectation=custom_expectations.ExpectBatchesFirstNotAboveLast(column=batches),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="batches_ascending",
            expectation=custom_expectations.ExpectBatchesAscending(column=batches),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="batches_non_overlapping",
            expectation=custom_expectations.ExpectBatchesNotOverlapping(column=batches),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="batches_not_below_start",
            expectation=custom_expectations.ExpectBatchesNotBelowStart(column_list=[batches, "start_offset"]),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="delivery_state_allowed",
            expectation=custom_expectations.ExpectDeliveryStatesAllowed(
                column=batches, states=list(facts.delivery_states)
            ),
            severity=Severity.CRITICAL,
        ),
        Check(
            rule="delivery_count_possible",
            expectation=custom_expectations.ExpectDeliveryCountsInRange(
                column=batches, least=0, most=HIGHEST_DELIVERY_COUNT_LIMIT
            ),
            severity=Severity.ERROR,
        ),
        Check(
            rule="delivery_count_within_limit",
            expectation=custom_expectations.ExpectDeliveryCountsWithinLimit(
                column_list=[batches, "delivery_count_limit"]
            ),
            severity=Severity.WARNING,
        ),
        Check(
            rule="uninitialized_without_batches",
            expectation=custom_expectations.ExpectUninitializedWithoutBatches(
                column_list=[batches, "is_uninitialized"]
            ),
            severity=Severity.ERROR,
            only_where="snapshot with batches",
        ),
    )
