"""The tables of changes: plans, what they do to share partitions, attempts, audit. See `table_schemas`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from acktrail.columnar.schemas.table_fields import BATCHES, BOOL, INSTANT, INT16, INT32, INT64, STRING, schema

RESET_PLANS: Final = schema(
    (STRING, "cluster_id", "run_id", "plan_id", "plan_hash"),
    (STRING, "kind"),  # reset | undo | delete_groups | delete_offsets | alter_configs
    (INSTANT, "created_at"),
    (STRING, "created_by", "requested_by", "reason", "release", "strategy", "undoes"),
    (pa.list_(pa.string()), "group_ids"),
    (INT64, "partitions", "refusals", "delivered_again", "skipped", "acknowledgements_forgotten"),
    (INT64, "archived_forgotten", "in_flight_discarded"),
    (STRING, "plan"),  # the whole plan, as its file has it
    (INT64, "acknowledgements_known"),  # a lower bound of those forgotten
    (INT64, "archived_known"),
    (INT64, "audit_sequence"),  # the newest row of reset_audit when this one was written
    (STRING, "audit_hash"),
)
"""One plan of a change, whether it was carried out or not."""

RESET_PLAN_PARTITIONS: Final = schema(
    (STRING, "cluster_id", "run_id", "plan_id", "group_id", "topic", "topic_id"),
    (INT32, "partition", "state_partition"),
    (INT64, "log_start_offset", "log_end_offset", "start_offset", "effective_start_offset"),
    (INT32, "snapshot_epoch", "state_epoch"),
    (BATCHES, "batches"),
    (INT64, "wanted_offset", "target_offset"),
    (STRING, "clamp"),  # below_log_start | above_log_end
    (INT64, "to_deliver", "delivered_again", "passed_again", "acknowledgements_forgotten"),
    (INT64, "archived_forgotten", "skipped", "in_flight_discarded", "first_record_ms", "last_record_ms"),
    (BOOL, "refused"),
    (pa.list_(pa.string()), "notices"),
    (INT64, "acknowledgements_known"),  # a lower bound of those forgotten; null in plans of version 1
    (INT64, "archived_known"),
    (INT64, "passed_acknowledged"),  # those of them below the start offset
    (INT64, "passed_archived"),
    (INT64, "passed_unknown"),  # below the start offset, not in the history
)
"""One share partition of one plan: what was there (the snapshot that an undo goes back to) and what would happen."""

RESET_EXECUTIONS: Final = schema(
    (STRING, "cluster_id", "run_id", "plan_id"),
    (INT32, "attempt"),
    (STRING, "group_id", "topic", "topic_id"),
    (INT32, "partition"),
    (INT64, "target_offset"),
    (STRING, "status"),
    (INT16, "error_code"),
    (STRING, "error"),
    (STRING, "error_scope"),  # top | part | absent | no_answer
    (INT64, "start_offset_before", "start_offset_after", "described_start_offset"),
    (INT32, "snapshot_epoch_before", "snapshot_epoch_after", "state_epoch_before", "state_epoch_after"),
    (INT32, "evidence_state_partition"),
    (INT64, "evidence_offset"),
    (INSTANT, "verified_at"),
    (INT64, "audit_sequence"),  # the newest row of reset_audit when this one was written
    (STRING, "audit_hash"),
)
"""One share partition at one verification of one attempt to carry out a plan."""

RESET_AUDIT: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INT64, "sequence"),
    (INSTANT, "audited_at"),
    (STRING, "actor", "host", "kind", "event", "plan_id", "plan_hash"),
    (INT32, "attempt"),
    (STRING, "group_id", "outcome"),
    (STRING, "detail"),  # JSON
    (STRING, "previous_hash", "row_hash"),
)
"""One step of one change, append-only; every row holds the hash of the one before."""
