"""The tables from which a run resumes where the last one ended: history and saved states. See `table_schemas`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from acktrail.columnar.schemas.table_fields import (
    BOOL,
    INSTANT,
    INT8,
    INT16,
    INT32,
    INT64,
    STATE_COLUMNS,
    STRING,
    schema,
)

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

_OFFSETS: Final = pa.list_(pa.struct([("first_offset", pa.int64()), ("last_offset", pa.int64())]))

_EXPORTED: Final = pa.struct(
    [
        ("ranges_table", pa.string()),
        ("ranges_version", pa.int64()),
        ("pending", pa.list_(pa.string())),
        ("until", INSTANT),
        ("latest", INSTANT),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("offsets", pa.int64()),
        ("lost", pa.int64()),
        ("gaps", _OFFSETS),
        ("quarantined", pa.int64()),
        ("quarantined_offset", pa.int64()),
        ("unattributed_offset", pa.int64()),
    ]
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
    (pa.list_(pa.string()), "unfinished"),
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

_OF_STATE_PARTITIONS: Final = (
    "next_offset",
    "share_partitions",
    "run_id",
    "records_table",
    "state_topic_id",
    "dialect",
    "law",
    "records_version",
    "records_files",
    "unfinished",
    "exported",
)


def saved_columns(schema: pa.Schema) -> pa.Schema:
    """The columns of ``HELD_STATES`` or ``REPLAY_MEMORY`` that the records of a share partition decide."""
    return pa.schema([field for field in schema if field.name not in ("cluster_id", *_OF_STATE_PARTITIONS)])


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
