"""What the pages of a group and of a share partition have in common: findings, changes, counts of deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.open_runs import OpenRuns, newest_audit
from acktrail_dashboard.web.web_page import Visit
from acktrail_dashboard.wording import SEVERITIES

_FINDINGS_SHOWN: Final = 50
_CHANGES_SHOWN: Final = 50
FINDING_COLUMNS: Final = (
    "run_id", "rule", "severity", "subject", "detail", "group_id", "topic_id", "topic", "partition",
    "evidence_state_partition", "evidence_offset", "first_seen_at", "last_seen_at", "times_seen",
)  # fmt: skip
STATUS_COLUMNS: Final = (
    "cluster_id", "run_id", "observed_at", "group_id", "topic_id", "topic", "partition", "status", "status_since",
    "reason", "evidence_state_partition", "evidence_offset", "verdict", "completeness", "group_state", "members",
    "start_offset", "log_start_offset", "log_end_offset", "lag", "available_records", "acknowledged_records",
    "archiving_records", "archived_records", "max_delivery_count", "delivery_count_limit", "acknowledged", "released",
    "archived", "delivery_counts",
)  # fmt: skip
"""All of ``queue_statuses`` but the window."""


def by_severity(rows: pa.Table) -> list[dict[str, Any]]:
    """Findings, the most severe first, of one severity the newest first."""
    order = {severity: rank for rank, severity in enumerate(SEVERITIES)}
    found: list[dict[str, Any]] = rows.sort_by([("first_seen_at", "descending")]).to_pylist()
    return sorted(found, key=lambda row: order.get(row["severity"], len(order)))


def findings_where(visit: Visit, where: pc.Expression, newest_run: str | None) -> dict[str, Any]:
    """Findings that a filter lets through, open ones first, by ``acktrail.tables.open_runs``. `newest_run`: the newest
    reconciliation."""
    runs = OpenRuns(newest_run, visit.ask("findings", newest_audit, None))
    rows = by_severity(visit.read("findings", columns=FINDING_COLUMNS, where=where))
    judged = [{**row, "is_open": bool(runs.is_open(row["rule"], row["run_id"]))} for row in rows]
    ordered = sorted(judged, key=lambda row: not row["is_open"])
    return {"rows": ordered[:_FINDINGS_SHOWN], "count": len(rows), "open": sum(row["is_open"] for row in judged)}


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
