"""The first page: is the trail complete and fresh, which groups are in trouble, what changed, what broke a rule."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.commit_order import in_order
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.view import check_rows, finding_rows
from acktrail.view.queue_rows import groups_of, status_counts, told_changes, tone_counts
from acktrail.view.wording import SEVERITIES, canonical, headline, tally, who_is_not_known
from acktrail_dashboard.web.branch_views import branch_views
from acktrail_dashboard.web.pages.groups import findings_where, share_partitions
from acktrail_dashboard.web.web_page import Visit, WebPage

_GROUPS_SHOWN: Final = 12
_FINDINGS_SHOWN: Final = 10
_CHANGES_SHOWN: Final = 12
_RECENT: Final = timedelta(days=2)
_GAP_COLUMNS: Final = ("gaps", "gap_records")


def _overview(visit: Visit) -> dict[str, Any]:
    rows = share_partitions(visit)
    groups = groups_of(rows)
    worst: list[dict[str, Any]] = groups.slice(0, _GROUPS_SHOWN).to_pylist()
    counts, partition_counts = status_counts(groups), status_counts(rows)
    # Before the first reconciliation only those of branches.
    findings = findings_where(visit, one_of("run_id", visit.open_runs.run_ids))
    critical = sum(row.severity == "critical" for row in findings)
    named = [(row["group_id"], row["status"], row["status_since"]) for row in worst]
    of_run = pc.field("run_id") == visit.open_runs.reconciliation
    stopping = check_rows.stopping_rules(visit.read("quality_results", where=of_run))
    sentence, tone = headline(named, counts, stopping=stopping, critical_findings=critical)
    if unread := next((each.message for each in visit.problems), None) if not counts else None:
        sentence, tone = who_is_not_known(unread), "unknown"
    totals = _newest(visit, "run_totals", "run_number", "observed_at")
    exported = _newest(visit, "export_ranges", "records_version", "exported_at")
    return {
        "sentence": sentence,
        "tone": tone,
        "clusters": sorted(each for each in pc.unique(rows["cluster_id"]).to_pylist() if each is not None),
        "groups": worst,
        "group_count": groups.num_rows,
        "group_shares": tone_counts(counts),
        "group_counts": counts,
        "partition_count": rows.num_rows,
        "partition_shares": tone_counts(partition_counts),
        "partition_counts": partition_counts,
        "complete": pc.sum(pc.equal(rows["completeness"], "complete")).as_py() or 0,
        "unfinished_records": pc.sum(rows["unfinished_records"]).as_py() or 0,
        "unfinished_unknown": rows["unfinished_records"].null_count,
        "totals": totals,
        "exported_at": exported["exported_at"] if exported else None,
        "findings": findings[:_FINDINGS_SHOWN],
        "finding_count": len(findings),
        "changes": told_changes(visit.read("status_changes", where=visit.within("changed_at")), _CHANGES_SHOWN),
        "finding_changes": _finding_changes(visit),
        "gap_changes": _gap_changes(visit),
        "alerts": [line for each in branch_views() for line in each.alerts(visit)],
    }


def _newest(visit: Visit, table: str, order: str, column: str) -> dict[str, Any] | None:
    """The newest row of a table in the `order` of commits; what is older than two days by `column` is read only where
    nothing is newer. Answers are kept by what was asked: the same for an hour."""
    since: datetime = (visit.now - _RECENT).replace(minute=0, second=0, microsecond=0)
    recent = visit.read(table, where=pc.field(column) >= pa.scalar(since))
    rows = recent if recent.num_rows else visit.read(table)
    newest: list[dict[str, Any]] = rows.sort_by([(order, "descending"), (column, "descending")]).slice(0, 1).to_pylist()
    return newest[0] if newest else None


def _finding_changes(visit: Visit) -> dict[str, dict[str, int]]:
    """Findings by severity: `new` were first seen within the range of time, `gone` were seen last within it and are not
    open any more. One that was gone for a while and is open again is neither."""
    findings = visit.read("findings", columns=("rule", "run_id", "severity", "first_seen_at", "last_seen_at"))
    of_open, of_gone = finding_rows.open_and_gone(findings, visit.open_runs)
    is_gone = pc.and_(of_gone, pc.invert(of_open))
    found = {
        "new": findings.filter(of_open).filter(visit.within("first_seen_at")),
        "gone": findings.filter(is_gone).filter(visit.within("last_seen_at")),
    }
    return {name: tally(map(canonical, rows["severity"].to_pylist()), SEVERITIES) for name, rows in found.items()}


def _gap_changes(visit: Visit) -> tuple[int, int]:
    """How many gaps the reconciliations within the range of time found first, and how many records are in them."""
    totals = in_order(visit.read("run_totals", columns=("observed_at", "run_number", *_GAP_COLUMNS)))
    before = totals.filter(pc.field("observed_at") < pa.scalar(visit.time_range.begin))
    until = totals.filter(pc.field("observed_at") < pa.scalar(visit.time_range.end))
    gaps, records = (max(0, _last(until, name) - _last(before, name)) for name in _GAP_COLUMNS)
    return gaps, records


def _last(totals: pa.Table, name: str) -> int:
    """A sum since the first export, of the last run; 0 before the first one."""
    return int(totals[name][-1].as_py() or 0) if totals.num_rows else 0


PAGES: Final = (WebPage(path="", title="Overview", template="overview.html", context=_overview, menu="Overview"),)
