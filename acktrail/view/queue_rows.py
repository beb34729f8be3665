"""Share partitions and groups of the newest reconciliation, the worst first; what changed; how many there were at each
instant. All in Arrow: 5,000 share partitions are sorted for every page, and none of these calls scans the history.

Instants are aware.

Example: of the group ``g`` partition 0 is stuck since 8:00, partition 1 since 7:00, partition 2 is ok.

    group_id  status  status_since  partitions  statuses       unfinished_records  unfinished_unknown
    g         stuck   7:00          3           stuck 2, ok 1  12                  1
"""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import NothingMatches
from acktrail.format.columns.schemas.table_schemas import INSTANT
from acktrail.tables.delta.table_snapshot import TableSnapshot
from acktrail.view.wording import STATUSES, TONES, is_trouble, status_rank, status_tone

COLUMNS: Final = (
    *("cluster_id", "run_id", "observed_at", "group_id", "topic_id", "topic", "partition", "status", "status_since"),
    *("reason", "completeness", "group_state", "members", "first_unfinished_offset", "log_end_offset"),
    *("unfinished_records", "archived_records", "acknowledged", "released", "archived"),
    *("evidence_state_partition", "evidence_offset"),
)
"""All that lists show; the wide columns are read only for a single share partition."""
STATUS_COLUMNS: Final = (
    *COLUMNS,
    *("verdict", "end_offset", "log_start_offset", "available_records", "acknowledged_records", "archiving_records"),
    *("archived_seen", "max_delivery_count", "delivery_count_limit", "delivery_counts"),
)
"""All of ``queue_statuses`` but the window."""
OUTCOMES: Final = ("acknowledged", "released", "archived")
RANK: Final = "rank"
ROWS_A_PAGE: Final = 50
_MOST_POINTS: Final = 400
_MS: Final = dt.timedelta(milliseconds=1)
_DAY: Final = dt.timedelta(days=1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_CALM: Final = pa.array([status for status in STATUSES if not is_trouble(status)])
_WORST_FIRST: Final = ((RANK, "ascending"), ("unfinished_records", "descending"))
_ADDRESS: Final = tuple((name, "ascending") for name in ("group_id", "topic", "topic_id", "partition"))
_AS_IT_IS: Final = pc.ScalarAggregateOptions(skip_nulls=False)
_WORST: Final = ("status", "reason", "topic_id", "topic", "partition", "members", "group_state")
_SUMS: Final = ("unfinished_records", *OUTCOMES)
_COUNTS: Final = ("partitions", "unfinished_unknown")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPart:
    """Part `at` (from 1) of `count` of a list of `total` rows, which begins with the row `first` (from 0)."""

    at: int
    count: int
    total: int
    first: int


def part_of(total: int, wanted: int | None) -> ListPart:
    """Return the page `wanted` of a list of `total` rows; where the list has no such page, the nearest one.

    >>> part_of(120, 9)
    ListPart(at=3, count=3, total=120, first=100)
    """
    count = max(1, -(-total // ROWS_A_PAGE))
    at = min(max(1, wanted or 1), count)
    return ListPart(at=at, count=count, total=total, first=(at - 1) * ROWS_A_PAGE)


def like(kind: str, patterns: Sequence[str], known: Iterable[str | None]) -> Callable[[str | None], bool]:
    """Whether a name matches one of `patterns`, shell style; without patterns every one does, also None. Raises
    NothingMatches: none of the names that are `known` does, and some are known."""

    def matches(name: str | None) -> bool:
        return not patterns or (name is not None and any(fnmatch.fnmatchcase(name, each) for each in patterns))

    names = {name for name in known if name is not None}
    if names and not any(map(matches, names)):
        raise NothingMatches(kind, patterns, names)
    return matches


def worst_first(rows: pa.Table) -> pa.Table:
    """Rows of ``queue_statuses`` with their rank, worst first, of one status the most unfinished records first."""
    return _ranked(rows, "status").sort_by([*_WORST_FIRST, *_ADDRESS])


def _ranked(rows: pa.Table, column: str) -> pa.Table:
    """With the rank of a status: the worst has the least."""
    ranks = pc.fill_null(pc.index_in(rows[column], value_set=pa.array(STATUSES)), status_rank(None))
    return rows.append_column(RANK, pc.cast(ranks, pa.int32()))


def groups_of(rows: pa.Table) -> pa.Table:
    """One row a group, worst first, of `rows` that are worst first: its worst status, since when the first of its share
    partitions has it, and reason and name of the worst one; sums of what is known; `statuses`, how many share
    partitions have each, and `partitions`, how many there are."""
    unknown = pc.cast(pc.is_null(rows["unfinished_records"]), pa.int64())
    counted = rows.append_column("unfinished_unknown", unknown).append_column("partitions", pa.repeat(1, len(rows)))
    sums = [(name, "sum") for name in (*_SUMS, *_COUNTS)]
    firsts = [(name, "first", _AS_IT_IS) for name in _WORST]
    alike = _aggregated(counted, ["group_id", RANK], [*sums, *firsts, ("status_since", "min")])
    first_of = [(name, "first", _AS_IT_IS) for name in (RANK, *_WORST, "status_since")]
    lists = alike.append_column("words", alike["status"]).append_column("counts", alike["partitions"])
    found = _aggregated(lists, ["group_id"], [*sums, *first_of, ("words", "list"), ("counts", "list")])
    return found.sort_by([*_WORST_FIRST, ("group_id", "ascending")])


def _aggregated(rows: pa.Table, keys: list[str], folds: list[tuple[Any, ...]]) -> pa.Table:
    """Columns keep their names."""
    found = rows.group_by(keys, use_threads=False).aggregate(folds)
    return found.rename_columns([*keys, *(fold[0] for fold in folds)])


def statuses_of(group: Mapping[str, Any]) -> dict[str, int]:
    """How many share partitions of one of `groups_of` have each status, the worst first."""
    return dict(zip(group["words"], group["counts"], strict=True))


def with_text(rows: pa.Table, text: str) -> pa.Table:
    """Rows whose group id, topic or topic id has `text` in it, in upper or lower case."""
    if not text:
        return rows
    found = [
        pc.fill_null(pc.match_substring(rows[name], text, ignore_case=True), fill_value=False)
        for name in ("group_id", "topic", "topic_id")
    ]
    return rows.filter(pc.or_(pc.or_(found[0], found[1]), found[2]))


def with_status(rows: pa.Table, status: str) -> pa.Table:
    """Rows of a status; empty: all."""
    return rows.filter(pc.equal(rows[RANK], STATUSES.index(status))) if status else rows


def in_trouble(rows: pa.Table) -> pa.Table:
    """Rows that a person should act on or look at."""
    return rows.filter(pc.invert(pc.is_in(rows["status"], value_set=_CALM)))


def status_counts(rows: pa.Table | None) -> dict[str, int]:
    """How many rows with a rank each status has, worst first, those without any left out."""
    found = [] if rows is None else pc.value_counts(rows[RANK]).to_pylist()
    counts = {each["values"]: each["counts"] for each in found}
    return {status: counts[rank] for rank, status in enumerate(STATUSES) if counts.get(rank)}


def tone_counts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Counts by status as counts by tone, the most urgent first."""
    found = dict.fromkeys(TONES, 0)
    for status, count in counts.items():
        found[status_tone(status)] += count
    return [(tone, count) for tone, count in found.items() if count]


def newest_first(changes: pa.Table) -> pa.Table:
    """Rows of ``status_changes``, the newest first, of one time to the worst status first."""
    ordered = [("changed_at", "descending"), (RANK, "ascending"), *_ADDRESS]
    return _ranked(changes, "after").sort_by(ordered).drop_columns(RANK)


def worth_telling(changes: pa.Table) -> pa.Table:
    """Rows of ``status_changes`` without share partitions that were new and need nothing: what all numbers count."""
    is_calm = pc.and_(pc.is_null(changes["before"]), pc.is_in(changes["after"], value_set=_CALM))
    return changes.filter(pc.invert(is_calm))


def newest_changes(changes: pa.Table, most: int) -> dict[str, Any]:
    """The `most` newest changes, and how many there are."""
    return {"rows": newest_first(changes).slice(0, most).to_pylist(), "count": changes.num_rows}


def told_changes(changes: pa.Table, most: int) -> dict[str, Any]:
    """The `most` newest changes, and how many got worse and better. Share partitions that were new and need nothing are
    only counted (`calm`)."""
    told = worth_telling(changes)
    ranks = {name: pc.index_in(told[name], value_set=pa.array(STATUSES)) for name in ("before", "after")}
    return {
        **newest_changes(told, most),
        "calm": changes.num_rows - told.num_rows,
        "worse": pc.sum(pc.less(ranks["after"], ranks["before"])).as_py() or 0,
        "better": pc.sum(pc.greater(ranks["after"], ranks["before"])).as_py() or 0,
    }


def trend(
    trends: TableSnapshot,
    group_id: str,
    topic_id: str | None = None,
    partition: int | None = None,
    *,
    since: dt.datetime,
    until: dt.datetime,
) -> pa.Table:
    """Rows of ``queue_trends`` of a share partition, or of a whole group (no topic and no partition), from the interval
    of `since` to before `until`, ascending by time.

    There are at most 400 rows; those older than two days have an hour at least, those older than 90 days a day. An
    interval without a row had no reconciliation, or nothing moved and nothing was unfinished: the row before it stands.
    Where one stands at `since`, it is the first row, with 0 as `observations` and counts."""
    from acktrail.replay.time_buckets import added_buckets, lengthened

    length = bucket_for(until - since)
    begin, at = _floored(since, length), pc.field("bucket_at")
    own = pc.field("topic_id").is_null() & pc.field("partition").is_null()
    if topic_id is not None:
        own = (pc.field("topic_id") == topic_id) & (pc.field("partition") == partition)
    in_time = (at >= pa.scalar(begin - _DAY, INSTANT)) & (at < pa.scalar(until, INSTANT))
    rows = trends.read(where=(pc.field("group_id") == group_id) & own & in_time)
    found = added_buckets(lengthened(rows.take(pc.sort_indices(rows, [("chunk", "ascending")])), length))
    is_before = pc.less(found["bucket_at"], pa.scalar(begin, INSTANT))
    return pa.concat_tables([_standing(found.filter(is_before), begin), found.filter(pc.invert(is_before))])


def bucket_for(span: dt.timedelta) -> int:
    """The length of intervals, in ms, so that at most 400 cover `span`; a day at most."""
    from acktrail.replay.time_buckets import DAY_MS, FINE_MS, HOUR_MS

    lengths = (FINE_MS, 3 * FINE_MS, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, DAY_MS)
    return next((length for length in lengths if span / (_MS * length) <= _MOST_POINTS), DAY_MS)


def _standing(before: pa.Table, begin: dt.datetime) -> pa.Table:
    """The last row of `before` as it stands at `begin`; none where there is none."""
    rows = before.slice(max(0, before.num_rows - 1)).to_pylist()
    at_begin = {"bucket_at": begin, "observed_at": begin, **dict.fromkeys(("observations", *OUTCOMES), 0)}
    stands = [{**row, **at_begin, "most_unfinished_records": row["unfinished_records"]} for row in rows]
    return pa.Table.from_pylist(stands, schema=before.schema)


def _floored(instant: dt.datetime, length_ms: int) -> dt.datetime:
    from acktrail.replay.time_buckets import floored

    return _EPOCH + dt.timedelta(microseconds=floored((instant - _EPOCH) // dt.timedelta(microseconds=1), length_ms))
