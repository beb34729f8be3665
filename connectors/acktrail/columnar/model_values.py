"""Rows of decoded records and states to values of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.delivery import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

RECORD_COLUMNS: Final = (
    "offset",
    "record_type",
    "group_id",
    "topic_id",
    "partition",
    "snapshot_epoch",
    "state_epoch",
    "leader_epoch",
    "start_offset",
    "delivery_complete_count",
    "create_timestamp_ms",
    "write_timestamp_ms",
    "batches",
    "decode_status",
)
"""The columns that ``records_of`` needs; a reader may leave out the others."""

STATE_NUMBERS: Final = tuple(name for name in SharePartitionState.__slots__ if name not in {"key", "batches"})
"""The columns of a replayed state with one number each."""

_UPDATE_NUMBERS: Final = tuple(name for name in ShareUpdate.__slots__ if name not in {"key", "batches"})
_SNAPSHOT_NUMBERS: Final = tuple(name for name in ShareSnapshot.__slots__ if name not in {"key", "batches"})

_Row = Mapping[str, Any]
_ROWS_AT_ONCE: Final = 8_192


def records_of(table: pa.Table) -> Iterator[tuple[int, StateRecord]]:
    """Offset and record of every decoded row, in the table's order; rows that are not decoded are skipped."""
    decoded = table.select(list(RECORD_COLUMNS)).filter(pc.field("decode_status") == "decoded")
    for batch in decoded.to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in batch.to_pylist():
            yield row["offset"], record_of(row)


def record_of(row: _Row) -> StateRecord:
    """The record of one decoded row."""
    key = share_partition_of(row)
    if row["record_type"] == "tombstone":
        return Tombstone(key=key)
    if row["record_type"] == "update":
        return ShareUpdate(key=key, batches=_batches(row), **{name: row[name] for name in _UPDATE_NUMBERS})
    return ShareSnapshot(key=key, batches=_batches(row), **{name: row[name] for name in _SNAPSHOT_NUMBERS})


def share_partition_of(row: _Row) -> SharePartition:
    """The share partition in the columns `group_id`, `topic_id` and `partition`."""
    return SharePartition(
        group_id=GroupId(row["group_id"]), topic_id=TopicId(row["topic_id"]), partition=row["partition"]
    )


def replayed_state_of(row: _Row) -> SharePartitionState:
    """The state in a row with a share partition, `STATE_NUMBERS` and `batches`."""
    return SharePartitionState(
        key=share_partition_of(row), batches=_batches(row), **{name: row[name] for name in STATE_NUMBERS}
    )


def _batches(row: _Row) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(**batch) for batch in row["batches"])
