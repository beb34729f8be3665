"""Share partitions and groups of the newest reconciliation, worst first, filtered: all in Arrow, for 5,000 of them are
sorted for every page; and what pages about them have in common: findings, changes of status, counts of deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.view.finding_rows import FINDING_COLUMNS, FindingRow, finding_row, open_and_gone
from acktrail.view.wording import (
    SEVERITIES,
    STATUSES,
    TONES,
    canonical,
    is_trouble,
    severity_rank,
    status_rank,
    status_tone,
    tally,
)
from acktrail_dashboard.web.web_page import Visit

COLUMNS: Final = (
    *("cluster_id", "run_id", "observed_at", "group_id", "topic_id", "topic", "partition", "status", "status_since"),
    *("reason", "completeness", "group_state", "members", "first_unfinished_offset", "log_end_offset"),
    *("unfinished_records", "archived_records"),
)
"""All that lists show; the wide columns are read for one share partition alone."""
STATUS_COLUMNS: Final = (
    *COLUMNS,
    *("evidence_state_partition", "evidence_offset", "verdict", "end_offset", "log_start_offset", "available_records"),
    *("acknowledged_records", "archiving_records", "max_delivery_count", "delivery_count_limit", "acknowledged"),
    *("released", "archived", "delivery_counts"),
)
"""All of ``queue_statuses`` but the window."""
RANK: Final = "rank"
_SHOWN: Final = 50
_UNKNOWN_RANK: Final = status_rank(None)
_CALM: Final = pa.array([status for status in STATUSES if not is_trouble(status)])
_GAP_COLUMNS: Final = ("observed_at", "gaps", "gap_records")
_WORST_FIRST: Final = ((RANK, "ascending"), ("unfinished_records", "descending"))
_ADDRESS: Final = (
    ("group_id", "ascending"),
    ("topic", "ascending"),
    ("topic_id", "ascending"),
    ("partition", "ascending"),
)
_OF_GROUP: Final = {
    "rank": (RANK, "min"),
    "unfinished_records": ("unfinished_records", "sum"),
    "members": ("members", "max"),
    "partitions": (RANK, "count"),
    "unfinished_known": ("unfinished_records", "count"),
    **{name: (name, "first") for name in ("status", "status_since", "reason", "topic_id", "topic", "partition")},
}
"""Column and aggregation of what a group has."""


def queue_rows(visit: Visit) -> pa.Table:
    """Every share partition in `COLUMNS` and its rank, worst first."""
    return worst_first(visit.read("queue_statuses", columns=COLUMNS))


def worst_first(rows: pa.Table) -> pa.Table:
    """Rows of ``queue_statuses`` with their rank, worst first."""
    ranks = pc.fill_null(pc.index_in(rows["status"], value_set=pa.array(STATUSES)), _UNKNOWN_RANK)
    return rows.append_column(RANK, pc.cast(ranks, pa.int32())).sort_by([*_WORST_FIRST, *_ADDRESS])


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


def status_counts(rows: pa.Table) -> dict[str, int]:
    """How many rows each status has, worst first, those without any left out."""
    counts = {each["values"]: each["counts"] for each in pc.value_counts(rows[RANK]).to_pylist()}
    return {status: counts[rank] for rank, status in enumerate(STATUSES) if counts.get(rank)}


def tone_counts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Counts by status as counts by tone, the most urgent first."""
    found = dict.fromkeys(TONES, 0)
    for status, count in counts.items():
        found[status_tone(status)] += count
    return [(tone, count) for tone, count in found.items() if count]


def groups_of(rows: pa.Table) -> pa.Table:
    """One row a group, worst first, of `rows` that are worst first: its worst status with since, reason and share
    partition, the sum of the unfinished records that are known, how many share partitions it has, and of how many they
    are."""
    found = rows.group_by("group_id", use_threads=False).aggregate(list(_OF_GROUP.values()))
    return found.rename_columns(["group_id", *_OF_GROUP]).sort_by([*_WORST_FIRST, ("group_id", "ascending")])


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPart:
    """Part `at` (from 1) of `count` of a list of `total` rows."""

    rows: list[dict[str, Any]]
    at: int
    count: int
    total: int


def part_of(rows: pa.Table, wanted: int | None, size: int = _SHOWN) -> ListPart:
    """The part `wanted` of a list, or the nearest there is."""
    count = max(1, -(-rows.num_rows // size))
    at = min(max(1, wanted or 1), count)
    return ListPart(rows=rows.slice((at - 1) * size, size).to_pylist(), at=at, count=count, total=rows.num_rows)


def by_severity(visit: Visit, where: pc.Expression) -> list[FindingRow]:
    """Findings that a filter lets through, by name, the most severe first, of one severity the newest first."""
    rows = visit.read("findings", columns=FINDING_COLUMNS, where=where).sort_by([("first_seen_at", "descending")])
    names = visit.topics if rows.num_rows else {}
    found = [finding_row(row, names, visit.open_runs) for row in rows.to_pylist()]
    return sorted(found, key=lambda row: severity_rank(row.severity))


def findings_where(visit: Visit, where: pc.Expression) -> dict[str, Any]:
    """Findings that a filter lets through, open ones first, by ``acktrail.tables.open_runs``."""
    ordered = sorted(by_severity(visit, where), key=lambda row: not row.is_open)
    count = sum(bool(row.is_open) for row in ordered)
    return {"rows": ordered[:_SHOWN], "count": len(ordered), "open": count}


def changes_where(visit: Visit, where: pc.Expression) -> dict[str, Any]:
    """Changes of status within the range of time that a filter lets through, the newest first."""
    rows = visit.read("status_changes", where=visit.within("changed_at") & where)
    newest = rows.sort_by([("changed_at", "descending")]).slice(0, _SHOWN)
    return {"rows": newest.to_pylist(), "count": rows.num_rows}


def told_changes(visit: Visit, most: int) -> dict[str, Any]:
    """Changes of status within the range of time, the latest first, of one time to the worst status first; how many got
    worse and better. Share partitions that were new and need nothing are counted alone (`calm`)."""
    rows = visit.read("status_changes", where=visit.within("changed_at"))
    ranks = {name: pc.index_in(rows[name], value_set=pa.array(STATUSES)) for name in ("before", "after")}
    is_calm = pc.and_(pc.is_null(rows["before"]), pc.is_in(rows["after"], value_set=_CALM))
    told = rows.append_column(RANK, ranks["after"]).filter(pc.invert(is_calm))
    ordered = told.sort_by([("changed_at", "descending"), (RANK, "ascending")])
    return {
        "rows": ordered.slice(0, most).to_pylist(),
        "count": told.num_rows,
        "calm": rows.num_rows - told.num_rows,
        "worse": pc.sum(pc.less(ranks["after"], ranks["before"])).as_py() or 0,
        "better": pc.sum(pc.greater(ranks["after"], ranks["before"])).as_py() or 0,
    }


def finding_changes(visit: Visit) -> dict[str, tuple[tuple[str, int], ...]]:
    """Findings by severity: `new` were first seen within the range of time, `gone` were seen last within it and are not
    open any more. One that was gone for a while and is open again is neither."""
    findings = visit.read("findings", columns=("rule", "run_id", "severity", "first_seen_at", "last_seen_at"))
    of_open, of_gone = open_and_gone(findings, visit.open_runs)
    is_gone = pc.and_(of_gone, pc.invert(of_open))
    found = {
        "new": findings.filter(of_open).filter(visit.within("first_seen_at")),
        "gone": findings.filter(is_gone).filter(visit.within("last_seen_at")),
    }
    return {name: tally(map(canonical, rows["severity"].to_pylist()), SEVERITIES) for name, rows in found.items()}


def gap_changes(visit: Visit) -> tuple[int, int]:
    """How many gaps the reconciliations within the range of time found first, and how many records are in them."""
    totals = visit.read("run_totals", columns=_GAP_COLUMNS).sort_by("observed_at")
    before = totals.filter(pc.field("observed_at") < pa.scalar(visit.time_range.begin))
    until = totals.filter(pc.field("observed_at") < pa.scalar(visit.time_range.end))
    gaps, records = (max(0, _newest(until, name) - _newest(before, name)) for name in _GAP_COLUMNS[1:])
    return gaps, records


def _newest(totals: pa.Table, name: str) -> int:
    """A sum since the first export, of the last run; 0 before the first one."""
    return int(totals[name][-1].as_py() or 0) if totals.num_rows else 0


def delivery_counts(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """How many records of the present states have each delivery count; the limit where it is one for all."""
    counts: Counter[int] = Counter()
    limits = set()
    for row in rows:
        counts.update({each["delivery_count"]: each["records"] or 0 for each in row["delivery_counts"] or ()})
        limits.add(row["delivery_count_limit"])
    return {
        "bars": sorted(counts.items()),
        "most": max(counts.values(), default=0),
        "limit": next(iter(limits)) if len(limits) == 1 else None,
    }
