"""The rules of state batches, for every table that has them."""

from __future__ import annotations

from acktrail_expectations.gx import custom_expectations as custom
from acktrail_expectations.gx.suite_check import SuiteCheck, critical, error, warning
from acktrail_expectations.inputs.observed_cluster import HIGHEST_DELIVERY_COUNT_LIMIT, ObservedCluster


def batch_checks(cluster: ObservedCluster) -> tuple[SuiteCheck, ...]:
    """Rules on `batches`, with `start_offset`, `is_uninitialized` and `delivery_count_limit` beside it.

    A count above the group's limit is a warning: it stays in the state when somebody lowers the limit. A count that no
    configuration allows is an error.
    """
    states, most = list(cluster.delivery_states), HIGHEST_DELIVERY_COUNT_LIMIT
    batches = "batches"
    return (
        critical("batch_first_le_last", custom.ExpectBatchesFirstNotAboveLast(column=batches)),
        critical("batches_ascending", custom.ExpectBatchesAscending(column=batches)),
        critical("batches_non_overlapping", custom.ExpectBatchesNotOverlapping(column=batches)),
        critical("batches_not_below_start", custom.ExpectBatchesNotBelowStart(column_list=[batches, "start_offset"])),
        critical("delivery_state_allowed", custom.ExpectDeliveryStatesAllowed(column=batches, states=states)),
        error("delivery_count_possible", custom.ExpectDeliveryCountsInRange(column=batches, least=0, most=most)),
        warning(
            "delivery_count_within_limit",
            custom.ExpectDeliveryCountsWithinLimit(column_list=[batches, "delivery_count_limit"]),
        ),
        error(
            "uninitialized_without_batches",
            custom.ExpectUninitializedWithoutBatches(column_list=[batches, "is_uninitialized"]),
            only_where="snapshot with batches",
        ),
    )
