"""What a sample of the brokers brings: one group with a share partition for each lag."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from acktrail.format.columns.schemas.table_schemas import GROUP_OBSERVATIONS, OFFSET_OBSERVATIONS, TOPICS
from acktrail.model.log_positions import SourcePartition
from acktrail_connect.source_batches import SourceBatch

__all__ = ["observed"]


def observed(*lags: int | None, others: int = 0) -> SourceBatch:
    """One group of two members with a share partition for each lag, and so many others with one each: group ``g5`` has
    lag 5."""
    place = {"group_id": "g", "topic_id": "t", "topic": "orders", "start_offset": 7}
    rows = [{**place, "partition": number, "lag": lag} for number, lag in enumerate(lags)]
    rows += [{**place, "group_id": f"g{lag}", "partition": 0, "lag": lag} for lag in range(others)]
    group = {"group_state": "Stable", "members": 2, "error_code": 0}
    groups = [{**group, "group_id": name} for name in ("g", *(f"g{number}" for number in range(others)))]

    def table(content: list[dict[str, Any]], schema: Any) -> pa.Table:
        return pa.Table.from_pylist(content, schema=schema)

    return SourceBatch(
        source_partition=SourcePartition("observation/c"),
        rows={
            "topics": table([], TOPICS),
            "group_observations": table(groups, GROUP_OBSERVATIONS),
            "offset_observations": table(rows, OFFSET_OBSERVATIONS),
        },
    )
