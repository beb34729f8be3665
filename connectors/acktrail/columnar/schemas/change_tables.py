"""The tables of changes: plans, what they do to share partitions, attempts, audit. See `table_schemas`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from acktrail.columnar.schemas.table_fields import BATCHES, INSTANT, fields

__all__ = ["RESET_AUDIT", "RESET_EXECUTIONS", "RESET_PLANS", "RESET_PLAN_PARTITIONS"]

RESET_PLANS: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),
        ("plan_id", pa.string()),
        ("plan_hash", pa.string()),
        ("kind", pa.string()),  # reset | undo | delete_groups | delete_offsets | alter_configs
        ("created_at", INSTANT),
        ("created_by", pa.string()),
        ("requested_by", pa.string()),
        ("reason", pa.string()),
        ("release", pa.string()),
        ("strategy", pa.string()),
        ("undoes", pa.string()),
        ("group_ids", pa.list_(pa.string())),
        ("partitions", pa.int64()),
        ("refusals", pa.int64()),
        ("delivered_again", pa.int64()),
        ("skipped", pa.int64()),
        ("acknowledgements_forgotten", pa.int64()),
        ("archived_forgotten", pa.int64()),
        ("in_flight_discarded", pa.int64()),
        ("plan", pa.string()),  # the whole plan, as its file has it
        ("acknowledgements_known", pa.int64()),  # a lower bound of those forgotten
        ("archived_known", pa.int64()),
        ("audit_sequence", pa.int64()),  # the newest row of reset_audit when this one was written
        ("audit_hash", pa.string()),
    )
)
"""One plan of a change, whether it was carried out or not."""

RESET_PLAN_PARTITIONS: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),
        ("plan_id", pa.string()),
        ("group_id", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("state_partition", pa.int32()),
        ("log_start_offset", pa.int64()),
        ("log_end_offset", pa.int64()),
        ("start_offset", pa.int64()),
        ("effective_start_offset", pa.int64()),
        ("snapshot_epoch", pa.int32()),
        ("state_epoch", pa.int32()),
        ("batches", BATCHES),
        ("wanted_offset", pa.int64()),
        ("target_offset", pa.int64()),
        ("clamp", pa.string()),  # below_log_start | above_log_end
        ("to_deliver", pa.int64()),
        ("delivered_again", pa.int64()),
        ("passed_again", pa.int64()),
        ("acknowledgements_forgotten", pa.int64()),
        ("archived_forgotten", pa.int64()),
        ("skipped", pa.int64()),
        ("in_flight_discarded", pa.int64()),
        ("first_record_ms", pa.int64()),
        ("last_record_ms", pa.int64()),
        ("refused", pa.bool_()),
        ("notices", pa.list_(pa.string())),
        ("acknowledgements_known", pa.int64()),  # a lower bound of those forgotten; null in plans of version 1
        ("archived_known", pa.int64()),
        ("passed_acknowledged", pa.int64()),  # those of them below the start offset
        ("passed_archived", pa.int64()),
        ("passed_unknown", pa.int64()),  # below the start offset, not in the history
    )
)
"""One share partition of one plan: what was there (the snapshot that an undo goes back to) and what would happen."""

RESET_EXECUTIONS: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),
        ("plan_id", pa.string()),
        ("attempt", pa.int32()),
        ("group_id", pa.string()),
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("target_offset", pa.int64()),
        ("status", pa.string()),
        ("error_code", pa.int16()),
        ("error", pa.string()),
        ("error_scope", pa.string()),  # top | part | absent | no_answer
        ("start_offset_before", pa.int64()),
        ("start_offset_after", pa.int64()),
        ("described_start_offset", pa.int64()),
        ("snapshot_epoch_before", pa.int32()),
        ("snapshot_epoch_after", pa.int32()),
        ("state_epoch_before", pa.int32()),
        ("state_epoch_after", pa.int32()),
        ("evidence_state_partition", pa.int32()),
        ("evidence_offset", pa.int64()),
        ("verified_at", INSTANT),
        ("audit_sequence", pa.int64()),  # the newest row of reset_audit when this one was written
        ("audit_hash", pa.string()),
    )
)
"""One share partition at one verification of one attempt to carry out a plan."""

RESET_AUDIT: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),
        ("sequence", pa.int64()),
        ("audited_at", INSTANT),
        ("actor", pa.string()),
        ("host", pa.string()),
        ("kind", pa.string()),
        ("event", pa.string()),
        ("plan_id", pa.string()),
        ("plan_hash", pa.string()),
        ("attempt", pa.int32()),
        ("group_id", pa.string()),
        ("outcome", pa.string()),
        ("detail", pa.string()),  # JSON
        ("previous_hash", pa.string()),
        ("row_hash", pa.string()),
    )
)
"""One step of one change, append-only; every row holds the hash of the one before."""
