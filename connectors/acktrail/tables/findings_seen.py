"""Which archived records somebody has seen: acknowledged by name (``findings_seen``), or shown for long enough.

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

from acktrail.columnar.schemas.schema_types import INSTANT
from acktrail.columnar.schemas.table_schemas import FINDINGS_SEEN
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.tables.delta.store import Tables

SEEN: Final = "findings_seen"
_SETTLED: Final = (*KEY_COLUMNS, "archived_seen")
_STATUSES: Final = ("cluster_id", *KEY_COLUMNS, "topic", "archived_seen")


def note_seen(tables: Tables, groups: Sequence[str], seen_by: str, at: dt.datetime) -> pa.Table:
    """Acknowledge, in the name of `seen_by`, the archived records that the newest statuses show of the groups that
    match one of `groups` (shell style). Gives the new rows of ``FINDINGS_SEEN``; none: there is nothing to acknowledge.

    Raises:
        ConfigurationError, RetryableError: the tables cannot be read or written.
    """
    rows = tables.read("queue_statuses", columns=_STATUSES, where=pc.field("archived_seen") > 0)
    chosen = [any(fnmatch.fnmatchcase(own, glob) for glob in groups) for own in rows["group_id"].to_pylist()]
    rows = rows.filter(pa.array(chosen, pa.bool_()))
    columns = {name: rows[name] for name in rows.column_names}
    columns |= {
        "seen_at": pa.repeat(pa.scalar(at, INSTANT), rows.num_rows),
        "seen_by": pa.repeat(seen_by, rows.num_rows),
    }
    found = pa.table([columns[name] for name in FINDINGS_SEEN.names], schema=FINDINGS_SEEN)
    if found.num_rows:
        tables.append(SEEN, found)
    return found


def seen_archives(tables: Tables, until: dt.datetime) -> pa.Table:
    """Key and `archived_seen` of each share partition: how many archived records were acknowledged at `until`."""
    rows = tables.read(SEEN, columns=_SETTLED, where=pc.field("seen_at") <= pa.scalar(until, INSTANT))
    return _most(rows)


def settled_archives(tables: Tables, now: dt.datetime, shown: dt.timedelta) -> pa.Table:
    """The same with those that have been shown for as long as `shown`."""
    is_old = pc.field("archived_at") <= pa.scalar(now - shown, INSTANT)
    expired = tables.read("queue_statuses", columns=_SETTLED, where=is_old)
    return _most(pa.concat_tables([seen_archives(tables, now), expired]))


def _most(rows: pa.Table) -> pa.Table:
    most = rows.group_by(list(KEY_COLUMNS), use_threads=False).aggregate([("archived_seen", "max")])
    return most.rename_columns([name.removesuffix("_max") for name in most.column_names]).select(list(_SETTLED))
