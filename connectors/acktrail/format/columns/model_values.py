"""Rows of states and of changes of the history to values of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from acktrail.format.columns.schemas.table_schemas import DELIVERY_HISTORY, HELD_STATES, saved_columns
from acktrail.model.batches import StateBatch
from acktrail.model.replay import SharePartitionState
from acktrail.model.share_partition import KEY_COLUMNS, GroupId, SharePartition, TopicId
from acktrail.model.status_changes import (
    Cause,
    KnownState,
    OffsetStatus,
    OffsetStatusKind,
    RecordPosition,
    StatusChange,
)

_STATE_NUMBERS: Final = tuple(name for name in SharePartitionState.__slots__ if name not in {"key", "batches"})

RECORD_COLUMNS: Final = ("offset", "record_type", *KEY_COLUMNS, *_STATE_NUMBERS, "batches", "decode_status")
"""The columns of a record that change a state, and those that choose records."""

HELD_COLUMNS: Final = saved_columns(HELD_STATES)
CHANGE_COLUMNS: Final = pa.schema([field for field in DELIVERY_HISTORY if field.name not in ("cluster_id", "chunk")])
"""The columns of ``DELIVERY_HISTORY`` that depend on a change alone."""

_Row = Mapping[str, Any]
_STATE: Final = "state"
_ROWS_AT_ONCE: Final = 8_192


def share_partition_of(row: _Row) -> SharePartition:
    """The share partition in the columns `group_id`, `topic_id` and `partition`."""
    return SharePartition(
        group_id=GroupId(row["group_id"]), topic_id=TopicId(row["topic_id"]), partition=row["partition"]
    )


def replayed_state_of(row: _Row) -> SharePartitionState:
    """The state in a row with a share partition and the columns of a replayed state."""
    return SharePartitionState(
        key=share_partition_of(row), batches=_batches(row), **{name: row[name] for name in _STATE_NUMBERS}
    )


def _batches(row: _Row) -> tuple[StateBatch, ...]:
    return tuple(StateBatch(**batch) for batch in row["batches"])


def known_states_of(rows: pa.Table) -> Iterator[tuple[SharePartition, KnownState]]:
    """The known states in rows of ``HELD_STATES``, without the state partition."""
    for row in rows.to_pylist():
        held: KnownState = OffsetStatusKind.UNKNOWN
        if row["held"] == _STATE:
            held = replayed_state_of(row)
        elif row["held"] == OffsetStatusKind.ABSENT.value:
            held = OffsetStatusKind.ABSENT
        yield share_partition_of(row), held


def changes_of(rows: pa.Table) -> Iterator[StatusChange]:
    """The changes in rows of ``DELIVERY_HISTORY``, in order."""
    for batch in rows.select(CHANGE_COLUMNS.names).to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in batch.to_pylist():
            yield StatusChange(
                key=share_partition_of(row),
                first_offset=row["first_offset"],
                last_offset=row["last_offset"],
                before=_status_of(row["before_standing"], row["before_state"], row["before_count"]),
                after=_status_of(row["standing"], row["delivery_state"], row["delivery_count"]),
                at=RecordPosition(
                    state_partition=row["state_partition"],
                    offset=row["record_offset"],
                    timestamp_ms=row["record_timestamp_ms"],
                    cause=Cause(row["cause"]),
                ),
            )


def _status_of(kind: str, state: int | None, count: int | None) -> OffsetStatus:
    return OffsetStatus(kind=OffsetStatusKind(kind), delivery_state=state, delivery_count=count)
