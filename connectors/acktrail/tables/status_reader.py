"""What pages, metrics and the terminal show of queues: statuses, what changed, trends, totals of runs.

Every call reads what it answers from and no more: no call scans the history of deliveries.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.format.columns.schemas.table_schemas import INSTANT, INT32, INT64, STRING, TABLES, schema
from acktrail.model.queue_status import STATUS_TABLE, QueueStatus, Urgency
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import cast_to_schema
from acktrail.tables.delta.table_snapshot import all_of, chosen_columns

GROUPS: Final = schema(
    (STRING, "group_id", "status"),
    (INSTANT, "status_since"),
    (STRING, "reason", "topic_id", "topic"),
    (INT32, "partition"),
    (STRING, "group_state"),
    (INT32, "members"),
    (INT64, "share_partitions", "in_trouble", "unfinished_records", "unfinished_unknown"),
    (INT64, "acknowledged", "released", "archived", "archived_records"),
)
"""One group: the status of its worst share partition, since when, why and which that is; how many share partitions it
has, and how many of them somebody should look at; the sum of the unfinished records that are known, and of how many
share partitions they are not."""

_MOST_POINTS: Final = 400
_ORDERED: Final = pa.array([status.value for status in STATUS_TABLE])
_TROUBLE: Final = pa.array([s.value for s, its in STATUS_TABLE.items() if its.urgency is not Urgency.NOTHING])
_KEY: Final = ("group_id", "topic", "partition")
_WITHOUT_WINDOW: Final = tuple(name for name in TABLES["queue_statuses"].names if name != "window")
_OF_TREND: Final = ("chunk", "group_id", "topic_id", "partition", "bucket_ms", "bucket_at", "unfinished_records")
_MS: Final = dt.timedelta(milliseconds=1)
_DAY: Final = dt.timedelta(days=1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class StatusReader:
    """Reads the statuses in `tables`; all tables may be missing, which gives no rows. Instants are aware. Share one
    between no threads. Raises (all methods) ConfigurationError, RetryableError: a table cannot be read."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def statuses(
        self,
        *,
        group_id: str | None = None,
        topic: str | None = None,
        topic_id: str | None = None,
        partition: int | None = None,
        statuses: Collection[QueueStatus] = (),
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows of ``QUEUE_STATUSES``, worst first, of one status the most unfinished records first. `statuses`: only
        these; none: all. `columns` None: all but the window."""
        wanted = _WITHOUT_WINDOW if columns is None else tuple(columns)
        read = [*dict.fromkeys((*wanted, "status", "unfinished_records", *_KEY))]
        where = all_of(
            _equal("group_id", group_id),
            _equal("topic", topic),
            _equal("topic_id", topic_id),
            _equal("partition", partition),
            pc.field("status").isin([status.value for status in statuses]) if statuses else None,
        )
        found = self._read("queue_statuses", read, where)
        return found.take(_worst_first(found)).select(list(wanted))

    def groups(self) -> pa.Table:
        """Rows of ``GROUPS``, worst first."""
        names = [*GROUPS.names, "archived_records"]
        rows = self.statuses(columns=[name for name in dict.fromkeys(names) if name in TABLES["queue_statuses"].names])
        added = rows.append_column("in_trouble", pc.cast(pc.is_in(rows["status"], value_set=_TROUBLE), INT64))
        added = added.append_column("unfinished_unknown", pc.cast(pc.is_null(rows["unfinished_records"]), INT64))
        first = ("status", "status_since", "reason", "topic_id", "topic", "partition", "group_state", "members")
        sums = (
            "in_trouble",
            "unfinished_records",
            "unfinished_unknown",
            "acknowledged",
            "released",
            "archived",
            "archived_records",
        )
        takes_null = pc.ScalarAggregateOptions(skip_nulls=False)
        aggregates = [
            *((name, "first", takes_null) for name in first),
            *((name, "sum", pc.ScalarAggregateOptions(min_count=1)) for name in sums),
            ("status", "count", pc.CountOptions(mode="all")),
        ]
        found = added.group_by("group_id", use_threads=False).aggregate(aggregates)
        names_of = {f"{name}_first": name for name in first} | {f"{name}_sum": name for name in sums}
        named = found.rename_columns(
            [{**names_of, "status_count": "share_partitions"}.get(name, name) for name in found.column_names]
        )
        groups = pa.table([named[name] for name in GROUPS.names], schema=GROUPS)
        return groups.take(_worst_first(groups))

    def changes(
        self, since: dt.datetime | None = None, until: dt.datetime | None = None, *, group_id: str | None = None
    ) -> pa.Table:
        """Rows of ``STATUS_CHANGES`` from `since` to before `until`, the newest first; of one time the worst first."""
        at = pc.field("changed_at")
        where = all_of(_equal("group_id", group_id), _span(at, since, until))
        found = self._read("status_changes", None, where)
        ranks = pc.fill_null(pc.index_in(found["after"], value_set=_ORDERED), len(_ORDERED))
        order = [("changed_at", "descending"), ("rank", "ascending"), *((name, "ascending") for name in _KEY)]
        return found.append_column("rank", ranks).sort_by(order).drop_columns("rank")

    def trend(
        self,
        group_id: str,
        topic_id: str | None = None,
        partition: int | None = None,
        *,
        since: dt.datetime,
        until: dt.datetime | None = None,
        bucket_ms: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows of ``QUEUE_TRENDS`` of a share partition, or of a whole group (no topic and no partition), ascending by
        time, from the interval of `since` to before `until`. `columns` None: all; a few take a third of the time.

        `bucket_ms` None: what gives at most 400 rows; rows older than two days have an hour at least, those older than
        90 days a day. An interval without a row had no reconciliation, or nothing moved and nothing was unfinished: the
        row before it stands. Where one stands at `since`, it is the first row, with 0 as `observations` and counts."""
        from acktrail.replay.trend_buckets import added_buckets, lengthened  # numpy: other readers do without

        end = dt.datetime.now(dt.UTC) if until is None else until
        length = bucket_ms or bucket_for(end - since)
        begin = _floored(since, length)
        if topic_id is None:
            own = pc.field("topic_id").is_null() & pc.field("partition").is_null()
        else:
            own = (pc.field("topic_id") == topic_id) & (pc.field("partition") == partition)
        at = pc.field("bucket_at")
        where = all_of(pc.field("group_id") == group_id, own, _span(at, begin - _DAY, until))
        snapshot = self._tables.followed("queue_trends")
        if snapshot is None:
            return TABLES["queue_trends"].empty_table()
        of_all = TABLES["queue_trends"]
        wanted = of_all.names if columns is None else list(columns)
        read = [name for name in of_all.names if name in {*wanted, *_OF_TREND}]
        rows = cast_to_schema(snapshot.read(columns=read, where=where), of_all)
        parts = rows.take(pc.sort_indices(rows, [("chunk", "ascending")]))
        found = added_buckets(lengthened(parts, length))
        is_before = pc.less(found["bucket_at"], pa.scalar(begin, INSTANT))
        shown = [_standing(found.filter(is_before), begin), found.filter(pc.invert(is_before))]
        return pa.concat_tables(shown).select(wanted)

    def run_totals(self, since: dt.datetime | None = None, until: dt.datetime | None = None) -> pa.Table:
        """Rows of ``RUN_TOTALS`` from `since` to before `until`, ascending by time."""
        return self._read("run_totals", None, _span(pc.field("observed_at"), since, until)).sort_by("observed_at")

    def _read(self, name: str, columns: Sequence[str] | None, where: pc.Expression | None) -> pa.Table:
        snapshot = self._tables.followed(name)
        if snapshot is None:
            return chosen_columns(name, columns).empty_table()
        return snapshot.read(columns=columns, where=where)


def bucket_for(span: dt.timedelta) -> int:
    """The length of intervals, in ms, so that at most 400 cover `span`; a day at most."""
    from acktrail.replay.trend_buckets import DAY_MS, FINE_MS, HOUR_MS

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


def _worst_first(rows: pa.Table) -> pa.Array:
    ranks = pc.fill_null(pc.index_in(rows["status"], value_set=_ORDERED), len(_ORDERED))
    order = [("rank", "ascending"), ("unfinished_records", "descending"), *((name, "ascending") for name in _KEY)]
    return pc.sort_indices(rows.append_column("rank", ranks), order)


def _equal(name: str, value: object) -> pc.Expression | None:
    return None if value is None else pc.field(name) == value


def _span(at: pc.Expression, since: dt.datetime | None, until: dt.datetime | None) -> pc.Expression | None:
    return all_of(
        None if since is None else at >= pa.scalar(since, INSTANT),
        None if until is None else at < pa.scalar(until, INSTANT),
    )


def _floored(instant: dt.datetime, length_ms: int) -> dt.datetime:
    from acktrail.replay.trend_buckets import floored

    return _EPOCH + dt.timedelta(microseconds=floored((instant - _EPOCH) // dt.timedelta(microseconds=1), length_ms))
