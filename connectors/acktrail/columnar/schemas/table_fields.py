"""Types and columns that several table schemas share."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

STRING: Final = pa.string()
BINARY: Final = pa.binary()
BOOL: Final = pa.bool_()
INT8: Final = pa.int8()
INT16: Final = pa.int16()
INT32: Final = pa.int32()
INT64: Final = pa.int64()
INSTANT: Final = pa.timestamp("us", tz="UTC")
"""A UTC instant of acktrail's own clock."""


def schema(*groups: tuple[Any, ...]) -> pa.Schema:
    """A schema of nullable columns; each group is a type and the names of consecutive columns of it.

    >>> schema((STRING, "group_id", "topic_id"), (INT32, "partition")).names
    ['group_id', 'topic_id', 'partition']
    """
    return pa.schema([pa.field(name, kind) for kind, *names in groups for name in names])


BATCHES: Final = pa.list_(
    pa.struct(schema((INT64, "first_offset", "last_offset"), (INT8, "delivery_state"), (INT16, "delivery_count")))
)
"""State batches in the order the record has them; `delivery_state` numbers are Kafka's."""

STATE_COLUMNS: Final = (
    (INT32, "snapshot_epoch", "state_epoch", "leader_epoch"),
    (INT64, "start_offset"),
    (INT32, "delivery_complete_count"),
    (INT64, "create_timestamp_ms", "write_timestamp_ms"),
    (BATCHES, "batches"),
)
"""The content of a snapshot, and of a replayed state."""
