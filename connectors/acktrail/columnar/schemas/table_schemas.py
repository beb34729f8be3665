"""Every table's columns as Arrow schemas: the one place that names them.

Offsets are Kafka offsets, both ends of a range inclusive unless the name says ``end`` (one past the last). Columns
that end in ``_ms`` are ms since the epoch as the broker wrote them; columns that end in ``_at`` are UTC instants of
acktrail's own clock. Null means not known (never -1).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import pyarrow as pa

from acktrail.columnar.schemas.connector_schemas import CONNECTOR_POSITIONS, DEAD_LETTER_RECORDS, GROUP_RECORDS
from acktrail.columnar.schemas.expansion_schemas import EXPANSION_TABLES
from acktrail.columnar.schemas.schema_types import BINARY, BOOL, INSTANT, INT8, INT16, INT32, INT64, STRING, schema
from acktrail.columnar.schemas.status_schemas import (
    FINDINGS_SEEN,
    NOTIFICATIONS,
    QUALITY_TOTALS,
    QUEUE_STATUSES,
    QUEUE_TRENDS,
    RUN_TOTALS,
    STATUS_CHANGES,
)

BATCHES: Final = pa.list_(
    pa.struct(schema((INT64, "first_offset", "last_offset"), (INT8, "delivery_state"), (INT16, "delivery_count")))
)
"""State batches in the order the record has them; `delivery_state` numbers are Kafka's."""

STATE_COLUMNS: Final = (
    (INT32, "snapshot_epoch", "state_epoch", "leader_epoch"),
    (INT64, "start_offset"),
    (INT32, "delivery_complete_count"),
    (INT64, "create_timestamp_ms", "write_timestamp_ms"),
    (BATCHES, "batches"),
)
"""The content of a snapshot, and of a replayed state."""

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
    # pruned | pruned_before_first_export | log_replaced | lost_from_tables | dropped_by_retention |
    # skipped_by_request; null: in no file
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
    (INT64, "start_offset", "first_unfinished_offset", "end_offset"),
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
    (INT64, "log_end_offset_before", "log_end_offset_after", "unfinished_records", "archived_seen"),
    (STRING, "completeness"),
    (STRING, "critical_finding"),  # rule and detail of the first critical finding; null: none
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
    (STRING, "severity"),  # info | warning | error | critical
    (BOOL, "success"),  # null: no row was compared
    (INT64, "element_count", "unexpected_count"),
    (STRING, "observed_value"),
    (STRING, "error"),  # the expectation itself could not be evaluated
    (INSTANT, "evaluated_at"),
    (STRING, "state"),  # holds | fails | not_evaluated
    (STRING, "reason"),  # not_evaluated: why nothing was compared
    (STRING, "run_rows"),  # rows that the tables had of the run at that time: JSON, count by table
)
"""One expectation in one validation of a run; of several validations the newest counts."""

DELIVERY_HISTORY: Final = schema(
    (STRING, "cluster_id"),
    (INT64, "chunk"),  # rows of one chunk lie together, in the order below
    (STRING, "group_id", "topic_id"),
    (INT32, "partition"),
    (INT64, "first_offset", "last_offset"),
    (STRING, "before_standing"),
    (INT8, "before_state"),
    (INT16, "before_count"),
    (STRING, "standing"),  # recorded | unrecorded | below_start | uninitialized | absent | unknown
    (INT8, "delivery_state"),  # recorded only
    (INT16, "delivery_count"),
    (STRING, "cause"),  # update | snapshot | initialize | reset | tombstone | gap | unreadable
    (BOOL, "is_dated"),  # it happened with this record; else the record only shows it
    (INT32, "state_partition"),
    (INT64, "record_offset", "record_timestamp_ms"),
)
"""One change of a range of offsets, never changed except for its chunk. An interval lasts from one to the next."""

HELD_STATES: Final = schema(
    (STRING, "cluster_id"),
    (INT32, "state_partition"),
    (INT64, "next_offset"),  # this and the others up to `records_version`: as in REPLAY_MEMORY
    (STRING, "records_files"),
    (STRING, "group_id", "topic_id"),
    (INT32, "partition"),
    (STRING, "held"),  # state | absent | unknown
    *STATE_COLUMNS,
    (INT64, "share_partitions"),
    (STRING, "records_table", "state_topic_id", "dialect"),
    (INT32, "law"),
    (INT64, "records_version"),
)
"""What the history resumes from: the replayed state of every share partition ever seen, and one row for each state
partition. Replaced by every run."""

_OFFSETS: Final = pa.list_(pa.struct(schema((INT64, "first_offset", "last_offset"))))

_EXPORTED: Final = pa.struct(
    schema(
        (STRING, "ranges_table"),
        (INT64, "ranges_version"),
        (pa.list_(STRING), "pending"),
        (INSTANT, "until", "latest"),
        (INT64, "first_offset", "last_offset", "offsets", "lost"),
        (_OFFSETS, "gaps"),
        (INT64, "quarantined", "quarantined_offset", "unattributed_offset"),
    )
)
"""What is known of the export of a state partition."""

REPLAY_MEMORY: Final = schema(
    (STRING, "cluster_id"),
    (INT32, "state_partition"),
    (INT64, "next_offset"),  # the row of a state partition itself: its records before that are applied
    (INT64, "share_partitions"),  # and how many rows it has; null in those, as all up to `exported`
    (STRING, "run_id", "records_table", "state_topic_id", "dialect"),
    (INT32, "law"),
    (INT64, "records_version"),
    (STRING, "records_files"),  # a digest of its files: a version can come back as another one
    (INT64, "records_used"),  # how many records lay before the positions, with those that the retention dropped
    (pa.list_(STRING), "unfinished"),
    (_EXPORTED, "exported"),
    (STRING, "group_id", "topic_id"),
    (INT32, "partition"),
    (INT64, "last_record_offset", "last_record_timestamp_ms"),
    (INT64, "base_offset"),  # newest snapshot or tombstone
    (INT64, "tombstone_offset", "initialized_offset", "unreadable_offset", "archived_offset"),
    (_OFFSETS, "archived_ranges"),
    *STATE_COLUMNS,  # from here on null: no state
)
"""What a reconciliation's replay resumes from: every share partition ever seen, and one row for each state partition.
Replaced by every reconciliation that reads further."""

_NAMES: Final = REPLAY_MEMORY.names
_OF_STATE_PARTITIONS: Final = _NAMES[_NAMES.index("next_offset") : _NAMES.index("group_id")]


def saved_columns(table: pa.Schema) -> pa.Schema:
    """The columns of ``HELD_STATES`` or ``REPLAY_MEMORY`` that the records of a share partition decide."""
    return pa.schema([field for field in table if field.name not in ("cluster_id", *_OF_STATE_PARTITIONS)])


RECONCILE_CHECKS: Final = schema(
    (STRING, "cluster_id"),
    (STRING, "run_id"),  # the newest reconciliation; null: none yet
    (INSTANT, "reconciled_at"),
    (STRING, "records_version"),  # what it covered; null: not all of it
    (STRING, "offsets_digest", "groups_digest"),
    (STRING, "attempt_run_id"),  # the newest one that was begun
    (INSTANT, "attempted_at"),
    (STRING, "checked_run_id"),  # the export that was looked at last
    (INSTANT, "checked_at"),
    (INT64, "checks"),  # looks since the reconciliation that began none
    (STRING, "decision"),  # run | unchanged | waiting
    (STRING, "reason"),
)
"""One row: what the newest reconciliation covered, and the newest look whether another one is due."""

RESET_PLANS: Final = schema(
    (STRING, "cluster_id", "run_id", "plan_id", "plan_hash"),
    (STRING, "kind"),  # reset | undo | migration | delete_groups | delete_offsets | alter_configs
    (INSTANT, "created_at"),
    (STRING, "created_by", "requested_by", "reason", "release", "strategy", "undoes"),
    (pa.list_(STRING), "group_ids"),
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
    (INT64, "log_start_offset", "log_end_offset", "start_offset", "first_unfinished_offset"),
    (INT32, "snapshot_epoch", "state_epoch"),
    (BATCHES, "batches"),
    (INT64, "wanted_offset", "target_offset"),
    (STRING, "clamp"),  # below_log_start | above_log_end
    (INT64, "to_deliver", "delivered_again", "passed_again", "acknowledgements_forgotten"),
    (INT64, "archived_forgotten", "skipped", "in_flight_discarded", "first_record_ms", "last_record_ms"),
    (BOOL, "refused"),
    (pa.list_(STRING), "notices"),
    (INT64, "acknowledgements_known"),  # a lower bound of those forgotten
    (INT64, "archived_known"),
    (INT64, "passed_acknowledged"),  # those of them below the start offset
    (INT64, "passed_archived"),
    (INT64, "passed_unknown"),  # below the start offset, not in the history
    (STRING, "unit"),  # what the numbers count: records | offsets
    (INT64, "hidden_ahead"),  # offsets from the target on that are no records of the group
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
        "findings_seen": FINDINGS_SEEN,
        "quality_results": QUALITY_RESULTS,
        "quality_totals": QUALITY_TOTALS,
        "queue_statuses": QUEUE_STATUSES,
        "status_changes": STATUS_CHANGES,
        "queue_trends": QUEUE_TRENDS,
        "run_totals": RUN_TOTALS,
        "notifications": NOTIFICATIONS,
        "reset_plans": RESET_PLANS,
        "reset_plan_partitions": RESET_PLAN_PARTITIONS,
        "reset_executions": RESET_EXECUTIONS,
        "reset_audit": RESET_AUDIT,
        **EXPANSION_TABLES,
        "connector_positions": CONNECTOR_POSITIONS,
        "group_records": GROUP_RECORDS,
        "dead_letter_records": DEAD_LETTER_RECORDS,
    }
)
"""Every table by its name."""

POSITIONED_TABLES: Final = frozenset({"group_records", "dead_letter_records"})
"""Those whose rows any sink of rows with positions may write, in exactly these columns."""
