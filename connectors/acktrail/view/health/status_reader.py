"""What pages, metrics and the terminal show of queues: statuses, what changed, trends, totals of runs.

Every call reads what it answers from and no more: no call scans the history of deliveries. Tables may be missing, which
gives no rows. Instants are aware. Raises (all functions) ConfigurationError, RetryableError: a table cannot be read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import INSTANT, TABLES
from acktrail.model.queue_status import STATUS_TABLE
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import chosen_columns

_MOST_POINTS: Final = 400
_ORDERED: Final = pa.array([status.value for status in STATUS_TABLE])
_KEY: Final = ("group_id", "topic", "partition")
_WITHOUT_WINDOW: Final = tuple(name for name in TABLES["queue_statuses"].names if name != "window")
_MS: Final = dt.timedelta(milliseconds=1)
_DAY: Final = dt.timedelta(days=1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
COUNTED_COLUMNS: Final = ("run_id", "evaluated_at", "suite", "severity", "state", "element_count")
"""The columns of ``quality_results`` that totals are made of."""
_VALIDATION: Final = ("run_id", "evaluated_at", "suite")
_STATES: Final = ("holds", "fails", "noted", "not_evaluated")


def statuses(tables: Tables, columns: Sequence[str] = _WITHOUT_WINDOW) -> pa.Table:
    """Rows of ``QUEUE_STATUSES``, worst first, of one status the most unfinished records first."""
    found = _read(tables, "queue_statuses", [*dict.fromkeys((*columns, "status", "unfinished_records", *_KEY))])
    order = [("rank", "ascending"), ("unfinished_records", "descending"), *((name, "ascending") for name in _KEY)]
    return found.take(pc.sort_indices(found.append_column("rank", _ranks(found["status"])), order)).select(columns)


def changes(tables: Tables, since: dt.datetime) -> pa.Table:
    """Rows of ``STATUS_CHANGES`` from `since` on, the newest first; of one time the worst first."""
    found = _read(tables, "status_changes", where=pc.field("changed_at") >= pa.scalar(since, INSTANT))
    order = [("changed_at", "descending"), ("rank", "ascending"), *((name, "ascending") for name in _KEY)]
    return found.append_column("rank", _ranks(found["after"])).sort_by(order).drop_columns("rank")


def run_totals(tables: Tables) -> pa.Table:
    """Rows of ``RUN_TOTALS``, ascending by time."""
    return _read(tables, "run_totals").sort_by("observed_at")


def trend(
    tables: Tables,
    group_id: str,
    topic_id: str | None = None,
    partition: int | None = None,
    *,
    since: dt.datetime,
    until: dt.datetime,
) -> pa.Table:
    """Rows of ``QUEUE_TRENDS`` of a share partition, or of a whole group (no topic and no partition), from the interval
    of `since` to before `until`, ascending by time.

    There are at most 400 rows; those older than two days have an hour at least, those older than 90 days a day. An
    interval without a row had no reconciliation, or nothing moved and nothing was unfinished: the row before it stands.
    Where one stands at `since`, it is the first row, with 0 as `observations` and counts."""
    from acktrail.replay.time_buckets import added_buckets, lengthened

    length = bucket_for(until - since)
    begin, at = _floored(since, length), pc.field("bucket_at")
    if topic_id is None:
        own = pc.field("topic_id").is_null() & pc.field("partition").is_null()
    else:
        own = (pc.field("topic_id") == topic_id) & (pc.field("partition") == partition)
    in_time = (at >= pa.scalar(begin - _DAY, INSTANT)) & (at < pa.scalar(until, INSTANT))
    rows = _read(tables, "queue_trends", where=(pc.field("group_id") == group_id) & own & in_time)
    found = added_buckets(lengthened(rows.take(pc.sort_indices(rows, [("chunk", "ascending")])), length))
    is_before = pc.less(found["bucket_at"], pa.scalar(begin, INSTANT))
    return pa.concat_tables([_standing(found.filter(is_before), begin), found.filter(pc.invert(is_before))])


def _read(
    tables: Tables, name: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    snapshot = tables.followed(name)
    if snapshot is None:
        return chosen_columns(name, columns).empty_table()
    return snapshot.read(columns=columns, where=where)


def bucket_for(span: dt.timedelta) -> int:
    """The length of intervals, in ms, so that at most 400 cover `span`; a day at most."""
    from acktrail.replay.time_buckets import DAY_MS, FINE_MS, HOUR_MS

    lengths = (FINE_MS, 3 * FINE_MS, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, DAY_MS)
    return next((length for length in lengths if span / (_MS * length) <= _MOST_POINTS), DAY_MS)


def _standing(before: pa.Table, begin: dt.datetime) -> pa.Table:
    """The last row of `before` as it stands at `begin`; none where there is none."""
    last = before.slice(max(0, before.num_rows - 1))
    values = {"bucket_at": begin, **dict.fromkeys(("observations", "acknowledged", "released", "archived"), 0)}
    values["most_unfinished_records"] = last["unfinished_records"][0].as_py() if last.num_rows else None
    for name, value in values.items():
        kind = last.schema.field(name)
        last = last.set_column(last.column_names.index(name), kind, pa.array([value] * last.num_rows, kind.type))
    return last


def _ranks(statuses: pa.ChunkedArray) -> pa.ChunkedArray:
    """The worst has the least."""
    return pc.fill_null(pc.index_in(statuses, value_set=_ORDERED), len(_ORDERED))


def _floored(instant: dt.datetime, length_ms: int) -> dt.datetime:
    from acktrail.replay.time_buckets import floored

    return _EPOCH + dt.timedelta(microseconds=floored((instant - _EPOCH) // dt.timedelta(microseconds=1), length_ms))


def suite_totals(results: pa.Table) -> pa.Table:
    """One row for each validation and suite in rows of ``quality_results``: how many expectations have each of
    ``_STATES``, how many of those that fail are critical (`critical_fails`), and how many rows they compared
    (`rows_compared`)."""
    flags = {state: pc.equal(results["state"], state) for state in _STATES}
    flags["critical_fails"] = pc.and_(flags["fails"], pc.equal(results["severity"], "critical"))
    counts = {name: flag.cast(pa.int64()) for name, flag in flags.items()}
    counts["rows_compared"] = pc.fill_null(results["element_count"], 0)
    rows = pa.table({**{name: results[name] for name in _VALIDATION}, **counts})
    summed = rows.group_by(list(_VALIDATION), use_threads=False).aggregate([(name, "sum") for name in counts])
    return summed.rename_columns([name.removesuffix("_sum") for name in summed.column_names])
