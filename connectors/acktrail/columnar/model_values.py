"""Decoded columns back to the model's values, for the plain fold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.delivery import StateBatch
from acktrail.model.records import ShareSnapshot, ShareUpdate, StateRecord, Tombstone
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import GroupId, SharePartition, TopicId

__all__ = ["RECORD_COLUMNS", "STATE_NUMBERS", "record_of", "records_of", "replayed_state_of", "share_partition_of"]

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
"""The columns of a replayed state that hold one number."""

_Row = dict[str, Any]
_ROWS_AT_ONCE: Final = 8_192


def records_of(table: pa.Table) -> Iterator[tuple[int, StateRecord]]:
    """Offset and record of every decoded row, in the table's order; rows that could not be decoded are passed over."""
    decoded = table.select(list(RECORD_COLUMNS)).filter(pc.field("decode_status") == "decoded")
    for batch in decoded.to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in batch.to_pylist():
            yield row["offset"], record_of(row)


def record_of(row: _Row) -> StateRecord:
    """The record of one decoded row."""
    return _BUILDERS[row["record_type"]](share_partition_of(row), row)


def share_partition_of(row: Mapping[str, Any]) -> SharePartition:
    """Whom a row with columns `group_id`, `topic_id` and `partition` is about."""
    return SharePartition(
        group_id=GroupId(row["group_id"]), topic_id=TopicId(row["topic_id"]), partition=row["partition"]
    )


def replayed_state_of(row: Mapping[str, Any]) -> SharePartitionState:
    """The state that a row tells, by its share partition, `STATE_NUMBERS` and `batches`."""
    return SharePartitionState(
        key=share_partition_of(row), batches=_batches(row), **{name: row[name] for name in STATE_NUMBERS}
    )


def _tombstone(key: SharePartition, _row: _Row) -> Tombstone:
    return Tombstone(key=key)


def _update(key: SharePartition, row: _Row) -> ShareUpdate:
    return ShareUpdate(
        key=key,
        snapshot_epoch=row["snapshot_epoch"],
        leader_epoch=row["leader_epoch"],
        start_offset=row["start_offset"],
        delivery_complete_count=row["delivery_complete_count"],
        batches=_batches(row),
    )


def _snapshot(key: SharePartition, row: _Row) -> ShareSnapshot:
    return ShareSnapshot(
        key=key,
        snapshot_epoch=row["snapshot_epoch"],
        state_epoch=row["state_epoch"],
        leader_epoch=row["leader_epoch"],
        start_offset=row["start_offset"],
        delivery_complete_count=row["delivery_complete_count"],
        create_timestamp_ms=row["create_timestamp_ms"],
        write_timestamp_ms=row["write_timestamp_ms"],
        batches=_batches(row),
    )


def _batches(row: Mapping[str, Any]) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(**batch) for batch in row["batches"])


_BUILDERS: Final[dict[str, Callable[[SharePartition, _Row], StateRecord]]] = {
    "snapshot": _snapshot,
    "update": _update,
    "tombstone": _tombstone,
}
