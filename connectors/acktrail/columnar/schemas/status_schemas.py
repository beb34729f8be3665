"""Columns of the tables that dashboards, metrics and alerts read: statuses, their changes, trends, totals of runs."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from acktrail.columnar.schemas.schema_types import INSTANT, INT16, INT32, INT64, STRING, schema

_COUNTS: Final = pa.map_(pa.string(), pa.int64())

DELIVERY_COUNTS: Final = pa.list_(pa.struct(schema((INT16, "delivery_count"), (INT64, "records"))))
"""How many records of a state have each delivery count, ascending."""

STATUS_WINDOW: Final = pa.list_(
    pa.struct(
        schema(
            (INSTANT, "observed_at"),
            (INSTANT, "recorded_at"),  # when the newest state record was written
            (INT64, "first_unfinished_offset", "log_start_offset", "log_end_offset", "unfinished_records"),
            (INT32, "state_epoch"),
            (INT64, "archiving_records"),
            (INT64, "acknowledged", "released", "archived"),  # since the observation before
        )
    )
)
"""The newest observations of a share partition, oldest first: what its status is judged by."""

QUEUE_STATUSES: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INSTANT, "observed_at"),
    (STRING, "group_id", "topic_id", "topic"),
    (INT32, "partition"),
    (STRING, "status"),  # see acktrail.model.queue_status
    (INSTANT, "status_since"),  # the first observation since which it is the same
    (STRING, "reason"),  # one sentence with the numbers that show it
    (INT32, "evidence_state_partition"),
    (INT64, "evidence_offset"),
    (STRING, "verdict", "completeness", "group_state"),
    (INT32, "members"),
    (INSTANT, "first_look_at"),  # the first observation of it
    (INSTANT, "no_members_since"),  # the first observation in a row without members; null: it has some
    (INT64, "lost_records"),  # removed by the retention before they were finished; null: not known
    (INT64, "archived_seen"),
    (INSTANT, "archived_at"),  # the observation that showed the newest of these
    (INSTANT, "unseen_at"),  # more was archived than acknowledged, not acknowledged; else null
    (INT64, "first_unfinished_offset", "end_offset", "log_start_offset", "log_end_offset", "unfinished_records"),
    (INT64, "available_records", "acknowledged_records", "archiving_records", "archived_records"),
    (INT32, "max_delivery_count", "delivery_count_limit"),
    (INT64, "acknowledged", "released", "archived"),  # within the window
    (DELIVERY_COUNTS, "delivery_counts"),
    (STATUS_WINDOW, "window"),
)
"""One share partition as of the newest reconciliation, which replaces all rows."""

STATUS_CHANGES: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INSTANT, "changed_at"),  # the observation that showed it
    (STRING, "group_id", "topic_id", "topic"),
    (INT32, "partition"),
    (STRING, "before"),  # null: seen for the first time
    (STRING, "after"),  # null: the share partition is gone
    (STRING, "reason"),
    (INT32, "evidence_state_partition"),
    (INT64, "evidence_offset"),
)
"""One change of status of one share partition, append-only."""

QUEUE_TRENDS: Final = schema(
    (STRING, "cluster_id"),
    (INT64, "chunk"),  # rows of one chunk lie together, by group, topic, partition and time
    (STRING, "group_id"),
    (STRING, "topic_id", "topic"),  # null: the whole group
    (INT32, "partition"),
    (INT64, "bucket_ms"),  # length of the interval
    (INSTANT, "bucket_at"),  # its beginning
    (INT64, "observations"),
    (
        INT64,
        "first_unfinished_offset",
        "end_offset",
        "log_start_offset",
        "log_end_offset",
        "unfinished_records",
    ),  # at its last observation
    (INT64, "most_unfinished_records"),
    (INT64, "available_records", "acknowledged_records", "archiving_records", "archived_records"),
    (INT64, "acknowledged", "released", "archived"),  # within the interval
    (STRING, "worst_status"),
)
"""One share partition, or one group, in one interval."""

RUN_TOTALS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INSTANT, "observed_at"),
    (INT64, "groups", "share_partitions"),
    (_COUNTS, "statuses"),  # share partitions by status
    (_COUNTS, "group_statuses"),  # groups by the worst status of their share partitions
    (_COUNTS, "verdicts"),
    (_COUNTS, "findings"),  # findings that the run saw, by severity
    (INT64, "new_findings"),  # seen for the first time
    (INT64, "unfinished_records"),  # the sum of those that are known
    (INT64, "unfinished_unknown"),  # share partitions without
    (INT64, "archived_seen"),
    (INT64, "records_exported", "records_quarantined", "gaps", "gap_records"),  # of all exports up to the run
)
"""One reconciliation."""

QUALITY_TOTALS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INSTANT, "evaluated_at"),
    (STRING, "suite"),
    (INT64, "holds", "fails", "noted", "not_evaluated"),
    (INT64, "critical_fails"),  # of those that fail
    (INT64, "rows_compared"),
)
"""One suite in one validation of a run; of several validations the newest counts."""

NOTIFICATIONS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INSTANT, "sent_at"),
    (INT64, "number"),  # counts up from 0: the newest of a subject counts
    (STRING, "kind"),  # gate | critical_finding | status
    (STRING, "subject"),  # gate; a rule and a group as a JSON list; a group id
    (STRING, "state"),  # what the message reports; well: nothing to do any more
    (STRING, "urgency"),  # act | look | nothing
    (STRING, "title", "text"),
)
"""One change that people got a message about, append-only."""

FINDINGS_SEEN: Final = schema(
    (STRING, "cluster_id"),
    (INSTANT, "seen_at"),
    (STRING, "seen_by"),
    (STRING, "group_id", "topic_id", "topic"),
    (INT32, "partition"),
    (INT64, "archived_seen"),  # as many archived records were acknowledged
)
"""The archived records of one share partition that somebody has seen, append-only."""
