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
from acktrail.columnar.schemas.table_fields import (
    BATCHES,
    BINARY,
    BOOL,
    INSTANT,
    INT16,
    INT32,
    INT64,
    STATE_COLUMNS,
    STRING,
    schema,
)

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

STATE_RECORDS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INT32, "state_partition"),
    (INT64, "offset", "timestamp_ms"),
    (BINARY, "key", "value"),
    (STRING, "record_type"),  # snapshot | update | tombstone
    (STRING, "group_id", "topic_id"),
    (INT32, "partition"),
    *STATE_COLUMNS,  # state_epoch: snapshots only
    (STRING, "decode_status", "decode_error"),
)
"""One record of the state topic, append-only."""

EXPORT_RANGES: Final = schema(
    (STRING, "cluster_id", "run_id", "state_topic_id"),
    (INT32, "state_partition"),
    (INT64, "first_offset"),  # null: nothing but a gap
    (INT64, "last_offset", "records_read", "records_decoded", "records_quarantined", "log_start_offset"),
    (INT64, "log_end_offset"),
    (INT64, "gap_first"),  # offsets that were pruned before they were exported
    (INT64, "gap_last"),
    (INSTANT, "exported_at"),
    (STRING, "dialect"),  # null, as the two below: read from the cluster
    (STRING, "source_file", "source_digest"),
    # pruned | pruned_before_first_export | log_replaced | lost_from_tables; null: in no imported file
    (STRING, "gap_reason"),
    (INT64, "offset_shift"),  # offset here minus offset in Kafka's log; null: they are the same
)
"""One state partition's part in one commit of the exporter. records_read = records_decoded + records_quarantined."""

TOPICS: Final = schema(
    (STRING, "cluster_id", "topic_id", "topic"),
    (INT32, "partition_count"),
    (BOOL, "is_internal"),
    (INSTANT, "first_seen_at", "last_seen_at"),
    (STRING, "status"),  # present | deleted | recreated | not_authorized
    (STRING, "successor_topic_id"),  # recreated: the id that has the name now
    (STRING, "run_id"),
)
"""One topic id: a deleted or recreated topic keeps its row."""

GROUP_OBSERVATIONS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (STRING, "phase"),  # before | after
    (INSTANT, "observed_at"),
    (STRING, "group_id", "group_type", "group_state"),
    (INT32, "group_epoch", "assignment_epoch"),
    (STRING, "assignor"),
    (INT32, "members", "coordinator_id"),
    (pa.map_(pa.string(), pa.string()), "configs"),
    (INT16, "error_code"),  # 0: none
    (STRING, "error"),
)
"""One group at one side of one observation."""

OFFSET_OBSERVATIONS: Final = schema(
    (STRING, "cluster_id", "run_id", "phase"),
    (INSTANT, "observed_at"),
    (STRING, "group_id"),  # null: a topic partition, with log offsets; else a share partition
    (STRING, "topic", "topic_id"),
    (INT32, "partition"),
    (INT64, "log_start_offset"),
    (INT64, "log_end_offset"),  # the high watermark
    (INT64, "last_stable_offset"),
    (INT32, "log_leader_epoch"),
    (INT64, "start_offset", "lag"),
    (INT32, "leader_epoch"),
    (INT16, "error_code"),
    (STRING, "error"),
)
"""One topic partition (log offsets) or one share partition (as described) at one side of an observation."""

SHARE_PARTITION_STATES: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INSTANT, "observed_at"),
    (STRING, "group_id", "topic_id"),
    (STRING, "topic"),  # null: no topic with this id was ever seen
    (INT32, "partition", "state_partition", "snapshot_epoch", "state_epoch", "leader_epoch"),
    (INT64, "start_offset", "effective_start_offset", "end_offset"),
    (INT32, "delivery_complete_count"),
    (INT64, "available_records", "acknowledged_records", "archiving_records", "archived_records"),
    (INT64, "archived_seen"),  # distinct offsets archived in any exported record
    (INT32, "max_delivery_count"),
    (BATCHES, "batches"),
    (INT64, "create_timestamp_ms", "write_timestamp_ms", "last_record_offset", "last_record_timestamp_ms"),
    (STRING, "completeness"),  # complete | no_snapshot | gap | unreadable
    (STRING, "completeness_reason"),
)
"""The replayed state of one share partition at one reconciliation."""

RECONCILIATIONS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INSTANT, "observed_at"),
    (STRING, "group_id", "topic_id", "topic"),
    (INT32, "partition"),
    (STRING, "verdict", "reason"),
    (BOOL, "moved"),  # the described values changed while the state topic was read
    (STRING, "group_state"),
    (INT32, "state_epoch"),
    (INT64, "durable_start_offset", "durable_lag", "described_start_offset_before"),
    (INT64, "described_start_offset_after", "described_lag_before", "described_lag_after", "log_start_offset"),
    (INT64, "log_end_offset_before", "log_end_offset_after", "effective_backlog", "archived_seen"),
    (STRING, "completeness"),
)
"""One share partition in one run: what is durable against what the cluster says."""

FINDINGS: Final = schema(
    (STRING, "cluster_id"),
    (STRING, "run_id"),  # the run that saw it last
    (STRING, "rule"),
    (STRING, "severity"),  # info | warning | error | critical
    (STRING, "subject"),  # canonical text of what broke the rule
    (STRING, "group_id", "topic_id", "topic"),
    (INT32, "partition"),
    (STRING, "detail"),
    (INT32, "evidence_state_partition"),
    (INT64, "evidence_offset"),
    (INSTANT, "first_seen_at", "last_seen_at"),
    (INT64, "times_seen"),
)
"""One rule broken by one subject; a later run that sees it again moves `last_seen_at`."""

QUALITY_RESULTS: Final = schema(
    (STRING, "cluster_id", "run_id", "suite", "expectation"),
    (STRING, "severity"),  # warning | error | critical
    (BOOL, "success"),  # null: no row was compared
    (INT64, "element_count", "unexpected_count"),
    (STRING, "observed_value"),
    (STRING, "error"),  # the expectation itself could not be evaluated
    (INSTANT, "evaluated_at"),
    (STRING, "state"),  # holds | fails | not_evaluated; null: written before there were states
    (STRING, "reason"),  # not_evaluated: why nothing was compared
    (STRING, "run_rows"),  # rows that the tables had of the run at that time: JSON, count by table
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
