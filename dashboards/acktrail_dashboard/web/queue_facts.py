"""What the pages of a group and of a share partition have in common: findings, changes, counts of deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.tables.open_runs import OpenRuns, newest_audits
from acktrail_dashboard.lists.finding_list import FindingLine, finding_line, topic_names
from acktrail_dashboard.web.web_page import Visit
from acktrail_dashboard.wording import SEVERITIES

_FINDINGS_SHOWN: Final = 50
_CHANGES_SHOWN: Final = 50
FINDING_COLUMNS: Final = (
    "cluster_id", "run_id", "rule", "severity", "subject", "detail", "group_id", "topic_id", "topic", "partition",
    "evidence_state_partition", "evidence_offset", "first_seen_at", "last_seen_at", "times_seen",
)  # fmt: skip
STATUS_COLUMNS: Final = (
    "cluster_id", "run_id", "observed_at", "group_id", "topic_id", "topic", "partition", "status", "status_since",
    "reason", "evidence_state_partition", "evidence_offset", "verdict", "completeness", "group_state", "members",
    "first_unfinished_offset", "end_offset", "log_start_offset", "log_end_offset", "unfinished_records",
    "available_records", "acknowledged_records", "archiving_records", "archived_records", "max_delivery_count",
    "delivery_count_limit", "acknowledged", "released", "archived", "delivery_counts",
)  # fmt: skip
"""All of ``queue_statuses`` but the window."""


def by_severity(visit: Visit, where: pc.Expression, runs: OpenRuns) -> list[FindingLine]:
    """Findings that a filter lets through, by name, the most severe first, of one severity the newest first. `runs`:
    the newest ones."""
    order = {severity: rank for rank, severity in enumerate(SEVERITIES)}
    rows = visit.read("findings", columns=FINDING_COLUMNS, where=where).sort_by([("first_seen_at", "descending")])
    names = topic_names(visit.read("topics", columns=("topic_id", "topic"))) if rows.num_rows else {}
    found = [finding_line(row, runs, names) for row in rows.to_pylist()]
    return sorted(found, key=lambda line: order.get(line.severity, len(order)))


def findings_where(visit: Visit, where: pc.Expression, newest_run: str | None) -> dict[str, Any]:
    """Findings that a filter lets through, open ones first, by ``acktrail.tables.open_runs``. `newest_run`: the newest
    reconciliation."""
    runs = OpenRuns(newest_run, visit.ask("findings", newest_audits, {}))
    ordered = sorted(by_severity(visit, where, runs), key=lambda line: not line.is_open)
    count = sum(bool(line.is_open) for line in ordered)
    return {"rows": ordered[:_FINDINGS_SHOWN], "count": len(ordered), "open": count}


def changes_where(visit: Visit, where: pc.Expression) -> dict[str, Any]:
    """Changes of status within the range of time that a filter lets through, the newest first."""
    rows = visit.read("status_changes", where=visit.within("changed_at") & where)
    newest = rows.sort_by([("changed_at", "descending")]).slice(0, _CHANGES_SHOWN)
    return {"rows": newest.to_pylist(), "count": rows.num_rows}


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


def sums(rows: Iterable[Mapping[str, Any]], names: Iterable[str]) -> dict[str, int | None]:
    """Sums over share partitions; None where it is known of none."""
    listed = list(rows)
    known = {name: [row[name] for row in listed if row[name] is not None] for name in names}
    return {name: sum(values) if values else None for name, values in known.items()}
