"""How each table lies in its storage: what is kept in its log, and which rows lie together."""

from __future__ import annotations

from typing import Any, Final

from deltalake import ColumnProperties, WriterProperties

from acktrail.columnar.schemas.table_schemas import STATE_RECORDS

__all__ = ["CHUNK", "creation", "writer_properties"]

CHUNK: Final = "chunk"
"""Rows of a chunked table lie together, a chunk in files of its own, in the order in which they were written."""

_CHUNKED: Final = frozenset({"delivery_history"})

_APPEND_ONLY: Final = frozenset(
    {
        "state_records",
        "export_ranges",
        "group_observations",
        "offset_observations",
        "reset_plans",
        "reset_plan_partitions",
        "reset_executions",
        "reset_audit",
    }
)

_LOG_PROPERTIES: Final = {"delta.checkpointInterval": "25"}
"""A reader lists at most this many commits after a checkpoint."""

_CHANGES: Final = frozenset({"reset_plans", "reset_plan_partitions", "reset_executions", "reset_audit"})
_SHORT_LOG: Final = {
    "delta.logRetentionDuration": "interval 1 hour",
    "delta.deletedFileRetentionDuration": "interval 1 day",
}
"""For tables with many small commits whose files are put together: what the log lists stays short."""

_STATISTICS: Final = {
    "state_records": "state_partition,offset,timestamp_ms,record_type,group_id,topic_id,partition,decode_status,run_id",
    "delivery_history": "group_id,topic_id,partition,first_offset,last_offset,standing,delivery_state,state_partition,"
    "record_offset,record_timestamp_ms",
    "reset_plans": "plan_id,created_at",
    "reset_plan_partitions": "plan_id,group_id",
    "reset_executions": "plan_id,group_id",
    "reset_audit": "sequence,plan_id,group_id,event",
}
"""Columns whose least and greatest values are kept for every file; the others would only fill the log."""

_HARDLY_REPEATED: Final = frozenset({"offset", "timestamp_ms", "value"})
"""Columns of ``state_records`` whose values a dictionary would not make smaller; nor would it the fields of batches."""

_PLAIN: Final = ColumnProperties(statistics_enabled="NONE", dictionary_enabled=False)
"""For what has no name of its own here, the fields of batches: a quarter of the time of writing would go there."""

_CHUNKED_ROW_GROUP: Final = 32_768
"""Rows that have least and greatest values of their own: a lookup reads that many at least."""


_RECORDS_ROW_GROUP: Final = 65_536
"""Rows of ``state_records``, which lie by state partition in each commit: a reader of some passes over the others'."""


def creation(name: str) -> dict[str, Any]:
    """What a new table `name` is created with: its configuration and partitioning."""
    only = {"delta.appendOnly": "true"} if name in _APPEND_ONLY else {}
    short = _SHORT_LOG if name in _CHANGES else {}
    statistics = {"delta.dataSkippingStatsColumns": _STATISTICS[name]} if name in _STATISTICS else {}
    return {
        "configuration": {**_LOG_PROPERTIES, **only, **short, **statistics},
        "partition_by": [CHUNK] if name in _CHUNKED else None,
    }


def writer_properties(name: str) -> WriterProperties:
    """How the files of a table are written."""
    if name in _CHUNKED:
        return WriterProperties(compression="ZSTD", compression_level=1, max_row_group_size=_CHUNKED_ROW_GROUP)
    if name != "state_records":
        return WriterProperties(compression="ZSTD", compression_level=1)
    return WriterProperties(
        compression="ZSTD",
        compression_level=1,
        max_row_group_size=_RECORDS_ROW_GROUP,
        default_column_properties=_PLAIN,
        column_properties={column: _record_column(column) for column in STATE_RECORDS.names if column != "batches"},
    )


def _record_column(name: str) -> ColumnProperties:
    return ColumnProperties(
        statistics_enabled="PAGE" if name in _STATISTICS["state_records"].split(",") else "NONE",
        dictionary_enabled=name not in _HARDLY_REPEATED,
    )
