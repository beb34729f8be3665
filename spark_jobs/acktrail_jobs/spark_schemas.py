"""The rows that pass through Spark. A test holds them against the tables' Arrow schemas."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = [
    "BATCHES",
    "PARCELS",
    "RATES",
    "REPLAYED",
    "SHARE_PARTITION_STATES",
]

_TEXT: Final = StringType()
_INT8: Final = ByteType()
_INT16: Final = ShortType()
_INT32: Final = IntegerType()
_INT64: Final = LongType()
_FLAG: Final = BooleanType()
_INSTANT: Final = TimestampType()
_BYTES: Final = BinaryType()


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def _plus(base: StructType, **columns: DataType) -> StructType:
    return StructType([*base.fields, *_struct(**columns).fields])


BATCHES: Final = ArrayType(
    _struct(first_offset=_INT64, last_offset=_INT64, delivery_state=_INT8, delivery_count=_INT16)
)

SHARE_PARTITION_STATES: Final = _struct(
    cluster_id=_TEXT,
    run_id=_TEXT,
    observed_at=_INSTANT,
    group_id=_TEXT,
    topic_id=_TEXT,
    topic=_TEXT,
    partition=_INT32,
    state_partition=_INT32,
    snapshot_epoch=_INT32,
    state_epoch=_INT32,
    leader_epoch=_INT32,
    start_offset=_INT64,
    effective_start_offset=_INT64,
    end_offset=_INT64,
    delivery_complete_count=_INT32,
    available_records=_INT64,
    acknowledged_records=_INT64,
    archiving_records=_INT64,
    archived_records=_INT64,
    archived_seen=_INT64,
    max_delivery_count=_INT32,
    batches=BATCHES,
    create_timestamp_ms=_INT64,
    write_timestamp_ms=_INT64,
    last_record_offset=_INT64,
    last_record_timestamp_ms=_INT64,
    completeness=_TEXT,
    completeness_reason=_TEXT,
)

REPLAYED: Final = _plus(
    SHARE_PARTITION_STATES,
    is_misplaced=_FLAG,
    initialized_at=_INT64,
    archived_at=_INT64,
    unreadable_at=_INT64,
    broken_rules=ArrayType(_TEXT),
)
"""A share partition as it comes out of the replay, with the offsets of the records that show things about it."""

PARCELS: Final = _struct(state_partition=_INT32, kind=_TEXT, number=_INT64, payload=_BYTES)
"""What a worker hands back, as bytes that Spark does not look into."""

RATES: Final = _struct(
    group_id=_TEXT,
    topic_id=_TEXT,
    partition=_INT32,
    interval_start_ms=_INT64,
    acknowledged=_INT64,
    released=_INT64,
    archiving=_INT64,
    archived=_INT64,
    deliveries=_INT64,
    redeliveries=_INT64,
    passed_unrecorded=_INT64,
    undated=_INT64,
)
