"""Columns of the tables about partitions of topics: what was observed of them over time."""

from __future__ import annotations

from typing import Final

from acktrail.columnar.schemas.schema_types import INSTANT, INT16, INT32, INT64, STRING, schema

PARTITION_OBSERVATIONS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INSTANT, "observed_at"),  # when its offsets were asked for
    (STRING, "topic_id", "topic"),
    (INT32, "partition"),  # null: the topic could not be described
    (INT32, "partition_count"),  # of the topic, before its offsets were asked for
    (STRING, "consistency"),  # consistent | straddles | partial
    (INT32, "leader_id", "leader_epoch", "isr_count"),
    (INT64, "log_start_offset", "log_end_offset", "last_stable_offset"),
    (INT64, "max_timestamp_ms", "max_timestamp_offset"),  # the record with the highest timestamp
    (INT16, "error_code"),
    (STRING, "error"),
)
"""One partition of one topic in one observation, append-only."""
