"""Changes of the history as columns of ``DELIVERY_HISTORY``, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from acktrail.columnar.model_values import share_partition_of
from acktrail.columnar.schemas.incremental_tables import DELIVERY_HISTORY
from acktrail.model.offset_history.offset_status import OffsetStatus, OffsetStatusKind
from acktrail.model.offset_history.status_changes import Cause, RecordPosition, StatusChange

CHANGE_COLUMNS: Final = pa.schema([field for field in DELIVERY_HISTORY if field.name not in ("cluster_id", "chunk")])
"""The columns of ``DELIVERY_HISTORY`` that depend on a change alone."""

_ROWS_AT_ONCE: Final = 8_192


def change_table(changes: Iterable[StatusChange]) -> pa.Table:
    """Rows of ``CHANGE_COLUMNS``, one a change, in the order they come."""
    rows = [_row(change) for change in changes]
    columns = zip(*rows, strict=True) if rows else ((),) * len(CHANGE_COLUMNS)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, CHANGE_COLUMNS, strict=True)]
    return pa.Table.from_arrays(arrays, schema=CHANGE_COLUMNS)


def changes_of(rows: pa.Table) -> Iterator[StatusChange]:
    """The changes in rows of ``DELIVERY_HISTORY``, in order."""
    for batch in rows.select(CHANGE_COLUMNS.names).to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from map(_change, batch.to_pylist())


def _row(change: StatusChange) -> tuple[Any, ...]:
    key, before, after, at = change.key, change.before, change.after, change.at
    return (
        key.group_id,
        key.topic_id,
        key.partition,
        change.first_offset,
        change.last_offset,
        before.kind.value,
        before.delivery_state,
        before.delivery_count,
        after.kind.value,
        after.delivery_state,
        after.delivery_count,
        at.cause.value,
        change.is_dated,
        at.state_partition,
        at.offset,
        at.timestamp_ms,
    )


def _change(row: Mapping[str, Any]) -> StatusChange:
    return StatusChange(
        key=share_partition_of(row),
        first_offset=row["first_offset"],
        last_offset=row["last_offset"],
        before=OffsetStatus(
            kind=OffsetStatusKind(row["before_standing"]),
            delivery_state=row["before_state"],
            delivery_count=row["before_count"],
        ),
        after=OffsetStatus(
            kind=OffsetStatusKind(row["standing"]),
            delivery_state=row["delivery_state"],
            delivery_count=row["delivery_count"],
        ),
        at=RecordPosition(
            state_partition=row["state_partition"],
            offset=row["record_offset"],
            timestamp_ms=row["record_timestamp_ms"],
            cause=Cause(row["cause"]),
        ),
    )
