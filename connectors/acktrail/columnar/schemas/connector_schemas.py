"""Columns of the tables that belong to connectors: positions, and records of the group coordinator."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from acktrail.columnar.schemas.schema_types import BINARY, BOOL, INSTANT, INT8, INT16, INT32, INT64, STRING, schema

CONNECTOR_POSITIONS: Final = schema(
    (STRING, "connector", "source_partition"),
    (INT64, "number"),
    (STRING, "table", "position"),  # position: JSON
    (BINARY, "dead_letters"),
    (INSTANT, "at"),
)
"""One position of one source partition, written before the commit of the rows up to it."""

_TOPIC: Final = ((STRING, "topic_id"), (STRING, "topic"))
_PARTITIONS: Final = (pa.list_(INT32), "partitions")
_NAMED_PARTITIONS: Final = pa.list_(pa.struct(schema(*_TOPIC, _PARTITIONS)))

GROUP_RECORDS: Final = schema(
    (STRING, "cluster_id", "run_id"),
    (INT32, "group_partition"),  # of __consumer_offsets
    (INT64, "offset", "timestamp_ms"),
    (BINARY, "key", "value"),
    (STRING, "record_type"),  # the names of GroupRecordType, in small letters
    (BOOL, "is_tombstone"),
    (STRING, "group_id", "member_id"),
    (INT32, "epoch", "previous_epoch"),
    (INT64, "metadata_hash", "assignment_timestamp_ms"),
    (INT8, "member_state"),
    (STRING, "rack_id", "client_id", "client_host"),
    (pa.list_(STRING), "subscribed_topics"),
    (pa.list_(pa.struct(schema(_TOPIC[0], _PARTITIONS))), "assigned"),
    (_NAMED_PARTITIONS, "initializing", "initialized"),
    (pa.list_(pa.struct(schema(*_TOPIC))), "deleting"),
    (STRING, "decode_status", "decode_error"),
)
"""One record of the group coordinator about a share group, append-only."""

DEAD_LETTER_RECORDS: Final = schema(
    (STRING, "cluster_id", "run_id", "dlq_topic", "dlq_topic_id"),
    (INT32, "dlq_partition"),
    (INT64, "dlq_offset", "timestamp_ms"),
    (STRING, "group_id", "topic"),  # by name: a broker writes no id
    (INT32, "partition"),
    (INT64, "offset"),
    (INT16, "delivery_count"),
    (STRING, "message"),
    (INT64, "key_bytes", "value_bytes"),  # of the copy; null: there is none
    (BINARY, "headers"),  # as Kafka has them; only where they could not be read
    (STRING, "decode_status", "decode_error"),
)
"""One record of a dead-letter topic of share groups (KIP-1191), append-only. Connect's dead letters are others: rows
that a sink refused (``connect.dead_letters``)."""
