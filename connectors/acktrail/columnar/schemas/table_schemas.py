"""Every table's columns as Arrow schemas: the one place that names them.

Offsets are Kafka offsets, both ends of a range inclusive unless the name says ``end`` (one past the last). Columns
that end in ``_ms`` are ms since the epoch as the broker wrote them; columns that end in ``_at`` are UTC instants of
acktrail's own clock. Null means not known (never -1).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import pyarrow as pa

from acktrail.columnar.schemas.change_tables import RESET_AUDIT, RESET_EXECUTIONS, RESET_PLAN_PARTITIONS, RESET_PLANS
from acktrail.columnar.schemas.incremental_tables import DELIVERY_HISTORY, HELD_STATES, RECONCILE_CHECKS, REPLAY_MEMORY
from acktrail.columnar.schemas.table_fields import BATCHES, INSTANT, STATE_COLUMNS, fields

__all__ = [
    "BATCHES",
    "EXPORT_RANGES",
    "FINDINGS",
    "GROUP_OBSERVATIONS",
    "OFFSET_OBSERVATIONS",
    "QUALITY_RESULTS",
    "RAW_RECORDS",
    "RECONCILIATIONS",
    "RESET_AUDIT",
    "RESET_EXECUTIONS",
    "RESET_PLANS",
    "RESET_PLAN_PARTITIONS",
    "SHARE_PARTITION_STATES",
    "STATE_RECORDS",
    "TABLES",
    "TOPICS",
]

RAW_RECORDS: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
"""Raw records of the state topic: the columns of the offline formats. `timestamp` in ms."""

STATE_RECORDS: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),
        ("state_partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("record_type", pa.string()),  # snapshot | update | tombstone
        ("group_id", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        *STATE_COLUMNS,  # state_epoch: snapshots only
        ("decode_status", pa.string()),
        ("decode_error", pa.string()),
    )
)
"""One record of the state topic, append-only."""

EXPORT_RANGES: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),
        ("state_topic_id", pa.string()),
        ("state_partition", pa.int32()),
        ("first_offset", pa.int64()),  # null: nothing but a gap
        ("last_offset", pa.int64()),
        ("records_read", pa.int64()),
        ("records_decoded", pa.int64()),
        ("records_quarantined", pa.int64()),
        ("log_start_offset", pa.int64()),
        ("log_end_offset", pa.int64()),
        ("gap_first", pa.int64()),  # offsets that were pruned before they were exported
        ("gap_last", pa.int64()),
        ("exported_at", INSTANT),
        ("dialect", pa.string()),  # null, as the two below: read from the cluster
        ("source_file", pa.string()),
        ("source_digest", pa.string()),
        (
            "gap_reason",
            pa.string(),
        ),  # pruned | pruned_before_first_export | log_replaced | lost_from_tables; null: in no imported file
        ("offset_shift", pa.int64()),  # offset here minus offset in Kafka's log; null: they are the same
    )
)
"""One state partition's part in one commit of the exporter. records_read = records_decoded + records_quarantined."""

TOPICS: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("topic_id", pa.string()),
        ("topic", pa.string()),
        ("partition_count", pa.int32()),
        ("is_internal", pa.bool_()),
        ("first_seen_at", INSTANT),
        ("last_seen_at", INSTANT),
        ("status", pa.string()),  # present | deleted | recreated | not_authorized
        ("successor_topic_id", pa.string()),  # recreated: the id that has the name now
        ("run_id", pa.string()),
    )
)
"""One topic id, for ever: a deleted or recreated topic keeps its row."""

GROUP_OBSERVATIONS: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),
        ("phase", pa.string()),  # before | after
        ("observed_at", INSTANT),
        ("group_id", pa.string()),
        ("group_type", pa.string()),
        ("group_state", pa.string()),
        ("group_epoch", pa.int32()),
        ("assignment_epoch", pa.int32()),
        ("assignor", pa.string()),
        ("members", pa.int32()),
        ("coordinator_id", pa.int32()),
        ("configs", pa.map_(pa.string(), pa.string())),
        ("error_code", pa.int16()),  # 0: none
        ("error", pa.string()),
    )
)
"""One group at one side of one observation."""

OFFSET_OBSERVATIONS: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),
        ("phase", pa.string()),
        ("observed_at", INSTANT),
        ("group_id", pa.string()),  # null: a topic partition, with log offsets; else a share partition
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("log_start_offset", pa.int64()),
        ("log_end_offset", pa.int64()),  # the high watermark
        ("last_stable_offset", pa.int64()),
        ("log_leader_epoch", pa.int32()),
        ("start_offset", pa.int64()),
        ("lag", pa.int64()),
        ("leader_epoch", pa.int32()),
        ("error_code", pa.int16()),
        ("error", pa.string()),
    )
)
"""One topic partition (log offsets) or one share partition (as described) at one side of an observation."""

SHARE_PARTITION_STATES: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),
        ("observed_at", INSTANT),
        ("group_id", pa.string()),
        ("topic_id", pa.string()),
        ("topic", pa.string()),  # null: no topic with this id was ever seen
        ("partition", pa.int32()),
        ("state_partition", pa.int32()),
        ("snapshot_epoch", pa.int32()),
        ("state_epoch", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("start_offset", pa.int64()),
        ("effective_start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("delivery_complete_count", pa.int32()),
        ("available_records", pa.int64()),
        ("acknowledged_records", pa.int64()),
        ("archiving_records", pa.int64()),
        ("archived_records", pa.int64()),
        ("archived_seen", pa.int64()),  # distinct offsets archived in any exported record
        ("max_delivery_count", pa.int32()),
        ("batches", BATCHES),
        ("create_timestamp_ms", pa.int64()),
        ("write_timestamp_ms", pa.int64()),
        ("last_record_offset", pa.int64()),
        ("last_record_timestamp_ms", pa.int64()),
        ("completeness", pa.string()),  # complete | no_snapshot | gap | unreadable
        ("completeness_reason", pa.string()),
    )
)
"""The replayed state of one share partition at one reconciliation."""

RECONCILIATIONS: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),
        ("observed_at", INSTANT),
        ("group_id", pa.string()),
        ("topic_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("verdict", pa.string()),
        ("reason", pa.string()),
        ("moved", pa.bool_()),  # the described values changed while the state topic was read
        ("group_state", pa.string()),
        ("state_epoch", pa.int32()),
        ("durable_start_offset", pa.int64()),
        ("durable_lag", pa.int64()),
        ("described_start_offset_before", pa.int64()),
        ("described_start_offset_after", pa.int64()),
        ("described_lag_before", pa.int64()),
        ("described_lag_after", pa.int64()),
        ("log_start_offset", pa.int64()),
        ("log_end_offset_before", pa.int64()),
        ("log_end_offset_after", pa.int64()),
        ("effective_backlog", pa.int64()),
        ("archived_seen", pa.int64()),
        ("completeness", pa.string()),
    )
)
"""One share partition in one run: what is durable against what the cluster says."""

FINDINGS: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),  # the run that saw it last
        ("rule", pa.string()),
        ("severity", pa.string()),  # info | warning | error | critical
        ("subject", pa.string()),  # canonical text of what broke the rule
        ("group_id", pa.string()),
        ("topic_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("detail", pa.string()),
        ("evidence_state_partition", pa.int32()),
        ("evidence_offset", pa.int64()),
        ("first_seen_at", INSTANT),
        ("last_seen_at", INSTANT),
        ("times_seen", pa.int64()),
    )
)
"""One rule broken by one subject; a later run that sees it again moves `last_seen_at`."""

QUALITY_RESULTS: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),
        ("suite", pa.string()),
        ("expectation", pa.string()),
        ("severity", pa.string()),  # warning | error | critical
        ("success", pa.bool_()),  # null: no row was compared
        ("element_count", pa.int64()),
        ("unexpected_count", pa.int64()),
        ("observed_value", pa.string()),
        ("error", pa.string()),  # the expectation itself could not be evaluated
        ("evaluated_at", INSTANT),
        ("state", pa.string()),  # holds | fails | not_evaluated; null: written before there were states
        ("reason", pa.string()),  # not_evaluated: why nothing was compared
        ("run_rows", pa.string()),  # rows that the tables had of the run at that time: JSON, count by table
    )
)
"""One expectation in one validation of a run; of several validations the newest counts."""

TABLES: Final = MappingProxyType(
    {
        "state_records": STATE_RECORDS,
        "export_ranges": EXPORT_RANGES,
        "topics": TOPICS,
        "group_observations": GROUP_OBSERVATIONS,
        "offset_observations": OFFSET_OBSERVATIONS,
        "share_partition_states": SHARE_PARTITION_STATES,
        "delivery_history": DELIVERY_HISTORY,
        "held_states": HELD_STATES,
        "replay_memory": REPLAY_MEMORY,
        "reconcile_checks": RECONCILE_CHECKS,
        "reconciliations": RECONCILIATIONS,
        "findings": FINDINGS,
        "quality_results": QUALITY_RESULTS,
        "reset_plans": RESET_PLANS,
        "reset_plan_partitions": RESET_PLAN_PARTITIONS,
        "reset_executions": RESET_EXECUTIONS,
        "reset_audit": RESET_AUDIT,
    }
)
"""Every table by its name."""
