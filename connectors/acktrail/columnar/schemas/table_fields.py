"""Fields that several table schemas share."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

__all__ = ["BATCHES", "INSTANT", "STATE_COLUMNS", "fields"]

INSTANT: Final = pa.timestamp("us", tz="UTC")
"""A UTC instant of acktrail's own clock."""


def fields(*pairs: tuple[str, pa.DataType], required: tuple[str, ...] = ()) -> list[pa.Field]:
    """Columns by name and type; those in `required` are never null."""
    return [pa.field(name, kind, nullable=name not in required) for name, kind in pairs]


BATCHES: Final = pa.list_(
    pa.struct(
        [
            pa.field("first_offset", pa.int64()),
            pa.field("last_offset", pa.int64()),
            pa.field("delivery_state", pa.int8()),
            pa.field("delivery_count", pa.int16()),
        ]
    )
)
"""State batches in the order the record has them; `delivery_state` numbers are Kafka's."""

STATE_COLUMNS: Final = (
    ("snapshot_epoch", pa.int32()),
    ("state_epoch", pa.int32()),
    ("leader_epoch", pa.int32()),
    ("start_offset", pa.int64()),
    ("delivery_complete_count", pa.int32()),
    ("create_timestamp_ms", pa.int64()),
    ("write_timestamp_ms", pa.int64()),
    ("batches", BATCHES),
)
"""The content of a snapshot, and of a replayed state."""
