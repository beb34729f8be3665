"""Rows that could not be written, as rows of the dead-letter table: address, content and reason."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from acktrail.connect.source_batches import RowCounts, SourceBatch

DEAD_LETTERS: Final = pa.schema(
    [
        ("source_partition", pa.string()),
        ("position", pa.string()),
        ("table", pa.string()),
        ("row", pa.int64()),
        ("content", pa.string()),
        ("reason", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
"""A row that could not be written: where it is from (the position after its batch as JSON, its number in the batch),
what it was as JSON, and why."""


def dead_letters(batch: SourceBatch, table: str, rows: pa.Table, reason: str) -> pa.Table:
    """All `rows` of `batch` for `table`, as ``DEAD_LETTERS``."""
    count, now = rows.num_rows, dt.datetime.now(dt.UTC)
    columns = {
        "source_partition": [str(batch.source_partition)] * count,
        "position": [json.dumps(batch.position, sort_keys=True)] * count,
        "table": [table] * count,
        "row": list(range(count)),
        "content": [json.dumps(row, default=_text) for row in rows.to_pylist()],
        "reason": [reason] * count,
        "at": [now] * count,
    }
    return pa.table(columns, schema=DEAD_LETTERS)


def all_dead(batch: SourceBatch, reason: str, dead_letter_table: str) -> SourceBatch:
    """`batch` with every row as a dead letter; those that were so before stay what they are."""
    own, dead = parts_of(batch, dead_letter_table)
    parts = [dead_letters(batch, table, rows, reason) for table, rows in own.items()]
    rows = pa.concat_tables([*([] if dead is None else [dead]), DEAD_LETTERS.empty_table(), *parts])
    refused = sum(rows.num_rows for rows in own.values())
    return replace(batch, rows={dead_letter_table: rows}, counts=batch.row_counts + RowCounts(dead=refused))


def parts_of(batch: SourceBatch, dead_letter_table: str | None) -> tuple[Mapping[str, pa.Table], pa.Table | None]:
    """The rows by table without the dead letters, and the dead letters, if there are any. Other rows under the name of
    the dead-letter table are no dead letters."""
    dead = None if dead_letter_table is None else batch.rows.get(dead_letter_table)
    if dead is None or not dead.schema.equals(DEAD_LETTERS):
        return batch.rows, None
    return {table: rows for table, rows in batch.rows.items() if table != dead_letter_table}, dead


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
