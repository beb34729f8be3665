"""The tables from which a run resumes where the last one ended: history and saved states. See `table_schemas`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from acktrail.columnar.schemas.table_fields import INSTANT, STATE_COLUMNS, fields

__all__ = ["DELIVERY_HISTORY", "HELD_STATES", "RECONCILE_CHECKS", "REPLAY_MEMORY"]

DELIVERY_HISTORY: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("chunk", pa.int64()),  # rows of one chunk lie together, in the order below
        ("group_id", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("before_standing", pa.string()),
        ("before_state", pa.int8()),
        ("before_count", pa.int16()),
        ("standing", pa.string()),  # recorded | unrecorded | below_start | uninitialized | absent | unknown
        ("delivery_state", pa.int8()),  # recorded only
        ("delivery_count", pa.int16()),
        ("cause", pa.string()),  # update | snapshot | initialize | reset | tombstone | gap | unreadable
        ("is_dated", pa.bool_()),  # it happened with this record; else the record only shows it
        ("state_partition", pa.int32()),
        ("record_offset", pa.int64()),
        ("record_timestamp_ms", pa.int64()),
    )
)
"""One change of a range of offsets, never changed except for its chunk. An interval lasts from one to the next."""

HELD_STATES: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("state_partition", pa.int32()),
        ("next_offset", pa.int64()),  # the row of a state partition itself: its records before that are applied
        ("records_files", pa.string()),  # in that row: a digest of the files of state_records that were used
        ("group_id", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("held", pa.string()),  # state | absent | unknown
        *STATE_COLUMNS,
    )
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

REPLAY_MEMORY: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("state_partition", pa.int32()),
        ("next_offset", pa.int64()),  # the row of a state partition itself: its records before that are applied
        ("share_partitions", pa.int64()),  # and how many rows it has; null in those, as all up to `exported`
        ("run_id", pa.string()),
        ("records_table", pa.string()),
        ("state_topic_id", pa.string()),
        ("dialect", pa.string()),
        ("law", pa.int32()),
        ("records_version", pa.int64()),
        ("records_files", pa.string()),  # a digest of its files: a version can come back as another one
        ("unfinished", pa.list_(pa.string())),
        ("exported", _EXPORTED),
        ("group_id", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("last_record_offset", pa.int64()),
        ("last_record_timestamp_ms", pa.int64()),
        ("base_offset", pa.int64()),  # newest snapshot or tombstone
        ("tombstone_offset", pa.int64()),
        ("initialized_offset", pa.int64()),
        ("unreadable_offset", pa.int64()),
        ("archived_offset", pa.int64()),
        ("archived_ranges", _OFFSETS),
        *STATE_COLUMNS,  # from here on null: no state
    )
)
"""What a reconciliation's replay resumes from: every share partition ever seen, and one row for each state partition.
Replaced by every reconciliation that reads further."""

RECONCILE_CHECKS: Final = pa.schema(
    fields(
        ("cluster_id", pa.string()),
        ("run_id", pa.string()),  # the newest reconciliation; null: none yet
        ("reconciled_at", INSTANT),
        ("records_version", pa.string()),  # what it covered; null: not all of it
        ("offsets_digest", pa.string()),
        ("groups_digest", pa.string()),
        ("attempt_run_id", pa.string()),  # the newest one that was begun
        ("attempted_at", INSTANT),
        ("checked_run_id", pa.string()),  # the export that was looked at last
        ("checked_at", INSTANT),
        ("checks", pa.int64()),  # looks since the reconciliation that began none
        ("decision", pa.string()),  # run | unchanged | waiting
        ("reason", pa.string()),
    )
)
"""One row: what the newest reconciliation covered, and the newest look whether another one is due."""
