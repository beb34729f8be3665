"""How each table is stored: its columns, its log, which rows lie together, and how rows with a key are renewed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from acktrail.branches import observation_tables
from acktrail.format.columns.schemas.table_comments import comments_of
from acktrail.format.columns.schemas.table_schemas import DELIVERY_HISTORY, STATE_RECORDS
from acktrail.model.share_partition import KEY_COLUMNS

CHUNK: Final = "chunk"
"""The partition column of a chunked table: each chunk has its own files, with rows in the order of their writing."""
_CHUNKED: Final = frozenset({"delivery_history", "queue_trends"})
CHANGES: Final = frozenset({"reset_plans", "reset_executions", "reset_audit"})
"""Tables of plans and what became of them."""
_OBSERVATIONS: Final = observation_tables() | {"group_observations", "offset_observations"}
_APPEND_ONLY: Final = CHANGES | _OBSERVATIONS | {"state_records", "export_ranges", "status_changes", "notifications"}
_LOG_PROPERTIES: Final = {"delta.checkpointInterval": "25", "delta.logRetentionDuration": "interval 1 day"}
"""A reader lists at most this many commits after a checkpoint. Whenever delta-rs makes a checkpoint it removes older
commits that lie before one. A sink copies its ranges before it commits again, so none is removed uncopied."""
_SHORT_LOG: Final = {"delta.logRetentionDuration": "interval 1 hour"}
"""For tables with many small commits whose files are compacted."""
_STATISTICS: Final = {
    "state_records": "state_partition,offset,timestamp_ms,record_type,group_id,topic_id,partition,decode_status,run_id",
    "delivery_history": "group_id,topic_id,partition,first_offset,last_offset,standing,delivery_state,state_partition,"
    "record_offset,record_timestamp_ms",
    "queue_trends": "group_id,topic_id,partition,bucket_ms,bucket_at",
    "status_changes": "changed_at,group_id,topic_id,partition",
    "reset_plans": "plan_id,created_at",
    "reset_executions": "plan_id,group_id",
    "reset_audit": "sequence,plan_id,group_id,event",
}
"""Columns with minimum and maximum in the log for every file; others would only fill the log."""
_HARDLY_REPEATED: Final = frozenset({"offset", "timestamp_ms", "value"})
"""Columns of ``state_records`` that a dictionary would not make smaller; nor the fields of batches."""
_FIELDS_OF_BATCHES: Final = tuple(
    f"batches.list.element.{name}" for name in STATE_RECORDS.field("batches").type.value_type.names
)
"""Numbers that differ little from one to the next: their differences take less room, and less time to compress."""
_CHUNKED_ROW_GROUP: Final = 32_768
"""Rows with a minimum and maximum of their own: the least that a lookup reads."""
_ROW_GROUP: Final = 131_072
RECORDS_ROW_GROUP: Final = 16_384
"""Rows of ``state_records``, ordered by state partition in each commit: a reader of some skips the others' groups. With
65,536 a reader of all takes a quarter less processor time, and twenty readers of a twentieth each 1.6 times as much."""
_MASSES: Final = {
    "state_records": (STATE_RECORDS, RECORDS_ROW_GROUP, _FIELDS_OF_BATCHES),
    "delivery_history": (
        *(DELIVERY_HISTORY, _CHUNKED_ROW_GROUP),
        ("first_offset", "last_offset", "record_offset", "record_timestamp_ms"),
    ),
}
"""Tables with millions of rows: schema, rows of a row group, columns that are written as differences."""
_OF_A_RUN: Final = ("run_id", "topic", *KEY_COLUMNS)
_OF_A_STATE: Final = ("state_partition", *KEY_COLUMNS)
KEYS: Final = {
    "topics": ("cluster_id", "topic_id"),
    "findings": ("cluster_id", "rule", "subject"),
    "group_observations": ("run_id", "phase", "group_id"),
    "offset_observations": ("phase", *_OF_A_RUN),
    "share_partition_states": ("run_id", *_OF_A_STATE),
    **dict.fromkeys(("reconciliations", "queue_statuses"), _OF_A_RUN),
    **dict.fromkeys(("replay_memory", "held_states"), _OF_A_STATE),
    "delivery_history": ("record_offset", "first_offset", *_OF_A_STATE),
}
"""Columns that identify a row. Of the first two tables, where they are never null, a newer row (by `last_seen_at`)
replaces all others but `first_seen_at`."""
_COUNTED: Final = {"findings": "times_seen"}
"""The column that grows by the new row's number when another run than the last brings the row."""


def creation(name: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Description, configuration with `properties`, partitioning of a new table `name`, for ``DeltaTable.create``."""
    only = {"delta.appendOnly": "true"} if name in _APPEND_ONLY else {}
    short = _SHORT_LOG if name in CHANGES or name == "connector_positions" else {}
    statistics = {"delta.dataSkippingStatsColumns": _STATISTICS[name]} if name in _STATISTICS else {}
    return {
        "description": comments_of(name).description or None,
        "configuration": {**_LOG_PROPERTIES, **short, **only, **statistics, **properties},
        "partition_by": [CHUNK] if name in _CHUNKED else None,
    }


def parquet_options(name: str) -> dict[str, Any]:
    """Compression, encodings and statistics of a table's files, for ``pyarrow.parquet.ParquetWriter``; the rows of a
    row group as `row_group_size`."""
    common: dict[str, Any] = {"compression": "zstd", "compression_level": 1, "store_schema": False}
    if name not in _MASSES:
        return {**common, "row_group_size": _CHUNKED_ROW_GROUP if name in _CHUNKED else _ROW_GROUP}
    schema, rows, numbers = _MASSES[name]
    plain = {*_HARDLY_REPEATED, *numbers, "batches"}
    return {
        **common,
        "row_group_size": rows,
        "use_dictionary": [field.name for field in schema if field.name not in plain],
        "write_statistics": _STATISTICS[name].split(","),
        "write_page_index": name == "state_records",
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
    }


def measured_columns(name: str, schema: pa.Schema) -> list[str]:
    """The columns of a table whose least and greatest values are in the log."""
    if name in _STATISTICS:
        return [column for column in _STATISTICS[name].split(",") if column in schema.names]
    return [field.name for field in schema if not pa.types.is_nested(field.type) and field.name != CHUNK]


def is_append_only(name: str) -> bool:
    """Whether rows of the table may be removed only by acktrail's own maintenance and repair."""
    return name in _APPEND_ONLY


def cast_to_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """`rows` with exactly the columns of `schema`. Raises ValueError (for a column that `schema` does not have)."""
    unknown = set(rows.column_names) - set(schema.names)
    if unknown:
        raise ValueError(f"no such columns: {sorted(unknown)}")
    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
        else:
            column = rows[field.name]
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def last_of_each_key(name: str, rows: pa.Table) -> pa.Table:
    """The last row of each key of the table `name`."""
    import numpy as np  # commands that only read do without

    from acktrail.format.columns.share_partition_keys import key_codes

    codes = key_codes(rows[key] for key in KEYS[name])
    last = np.empty(codes.max(initial=-1) + 1, np.int64)
    last[codes] = np.arange(len(codes))  # of two assignments the later one stays
    return rows.take(pa.array(np.sort(last)))


def merge_rows(name: str, delta: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    """Merge `rows` (every column of the table, each key once) into `delta` in one commit. The expressions name columns
    only: values come as rows and are never part of any text."""
    keys, counted = KEYS[name], _COUNTED.get(name)
    updates = {column: f"new.{column}" for column in rows.column_names if column not in (*keys, "first_seen_at")}
    if counted is not None:
        old, new = f"stored.{counted}", f"new.{counted}"
        updates[counted] = f"CASE WHEN stored.run_id = new.run_id THEN {old} ELSE {old} + {new} END"
    merger = delta.merge(
        rows,
        " AND ".join(f"stored.{key} = new.{key}" for key in keys),
        source_alias="new",
        target_alias="stored",
        commit_properties=properties,
    )
    merger.when_matched_update(updates, "new.last_seen_at >= stored.last_seen_at")
    merger.when_not_matched_insert_all()
    merger.execute()
