"""Losses of records that a person has acknowledged."""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.format.columns.share_partition_keys import grouped
from acktrail.model.queue_status import LOST
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.delta.store import Tables

_CHANGES: Final = "status_changes"
_SETTLED: Final = (*KEY_COLUMNS, *LOST)
_STATUSES: Final = ("cluster_id", *KEY_COLUMNS, "topic", "status", *LOST)


def acknowledge_losses(tables: Tables, groups: Sequence[str], seen_by: str, at: dt.datetime) -> pa.Table:
    """Acknowledge, in the name of `seen_by`, the losses that the newest statuses show of the groups that match one of
    `groups` (shell style). Gives the new rows of ``status_changes``; none: there is nothing to acknowledge.

    Raises:
        ConfigurationError, RetryableError: the tables cannot be read or written.
    """
    is_loss = reduce(or_, (pc.field(name) > 0 for name in LOST))
    rows = [
        {
            **row,
            "changed_at": at,
            "before": row["status"],
            "after": row.pop("status"),
            "reason": _seen_text(row, seen_by),
        }
        for row in tables.read("queue_statuses", columns=_STATUSES, where=is_loss).to_pylist()
        if any(fnmatch.fnmatchcase(row["group_id"], glob) for glob in groups)
    ]
    found = pa.Table.from_pylist(rows, schema=TABLES[_CHANGES])
    if found.num_rows:
        tables.append(_CHANGES, found)
    return found


def _seen_text(row: Mapping[str, Any], seen_by: str) -> str:
    lost = ", ".join(f"{row[name]:,} {how}" for name, how in LOST.items() if row[name])
    return f"permanently lost records: {lost}; acknowledged by {seen_by}"


def acknowledged_losses(tables: Tables) -> pa.Table:
    """Key and ``LOST`` of each share partition: how many records were acknowledged as lost, by any clock."""
    rows = tables.read(_CHANGES, columns=_SETTLED, where=pc.field("archived_seen").is_valid())
    return grouped(rows, KEY_COLUMNS, **dict.fromkeys(LOST, "max"))
