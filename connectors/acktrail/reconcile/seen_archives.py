"""Which archived records somebody has seen: acknowledged by name (``status_changes``), or shown for long enough.

Archived records are gone for their group. Their finding and their status stay until then, and come back with the next
archived record.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import INSTANT, TABLES
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.delta.store import Tables

_CHANGES: Final = "status_changes"
_SETTLED: Final = (*KEY_COLUMNS, "archived_seen")
_STATUSES: Final = ("cluster_id", *KEY_COLUMNS, "topic", "status", "archived_seen")


def note_seen(tables: Tables, groups: Sequence[str], seen_by: str, at: dt.datetime) -> pa.Table:
    """Acknowledge, in the name of `seen_by`, the archived records that the newest statuses show of the groups that
    match one of `groups` (shell style). Gives the new rows of ``status_changes``; none: there is nothing to
    acknowledge.

    Raises:
        ConfigurationError, RetryableError: the tables cannot be read or written.
    """
    statuses = tables.read("queue_statuses", columns=_STATUSES, where=pc.field("archived_seen") > 0)
    rows = [
        {
            **row,
            "changed_at": at,
            "before": row["status"],
            "after": row.pop("status"),
            "reason": f"{row['archived_seen']:,} archived record(s), seen by {seen_by}",
        }
        for row in statuses.to_pylist()
        if any(fnmatch.fnmatchcase(row["group_id"], glob) for glob in groups)
    ]
    found = pa.Table.from_pylist(rows, schema=TABLES[_CHANGES])
    if found.num_rows:
        tables.append(_CHANGES, found)
    return found


def seen_archives(tables: Tables, until: dt.datetime) -> pa.Table:
    """Key and `archived_seen` of each share partition: how many archived records were acknowledged at `until`."""
    is_known = pc.field("archived_seen").is_valid() & (pc.field("changed_at") <= pa.scalar(until, INSTANT))
    return _most(tables.read(_CHANGES, columns=_SETTLED, where=is_known))


def settled_archives(tables: Tables, now: dt.datetime, shown: dt.timedelta) -> pa.Table:
    """The same with those that have been shown for as long as `shown`."""
    is_old = pc.field("archived_at") <= pa.scalar(now - shown, INSTANT)
    expired = tables.read("queue_statuses", columns=_SETTLED, where=is_old)
    return _most(pa.concat_tables([seen_archives(tables, now), expired]))


def _most(rows: pa.Table) -> pa.Table:
    most = rows.group_by(list(KEY_COLUMNS), use_threads=False).aggregate([("archived_seen", "max")])
    return most.rename_columns([name.removesuffix("_max") for name in most.column_names]).select(list(_SETTLED))
