"""One run: what it exported, found, validated, planned, by its run id in the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import UnknownName
from acktrail.tables.commit_order import in_order
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.view import check_rows
from acktrail.view.queue_rows import newest_changes
from acktrail.view.wording import RESULTS, SEVERITIES, canonical, status_rank, tally
from acktrail_dashboard.web.web_page import Visit, WebPage

_OF_AIRFLOW: Final = {"dag_id": None, "is_foreign": False, "outer": None}
"""What a tab of Airflow sets: a run of ours has none of it."""
_SHOWN: Final = 50
_SUMMED: Final = ("records_read", "records_decoded", "records_quarantined")
_RANGE_COLUMNS: Final = ("run_id", *_SUMMED, "gap_first", "exported_at")
_PLAN_COLUMNS: Final = ("run_id", "plan_id", "kind", "strategy", "audit_sequence")


def run_context(visit: Visit, run_ids: Sequence[str]) -> dict[str, Any]:
    """What the tables have of these runs: one run, or the tries of one."""
    where = one_of("run_id", run_ids)
    totals = in_order(visit.read("run_totals", where=where), newest_first=True)
    ranges = visit.read("export_ranges", columns=_RANGE_COLUMNS, where=where)
    quality = visit.read("quality_results", where=where)
    findings = visit.read("findings", columns=("run_id", "severity"), where=where)
    changes = visit.read("status_changes", where=where)
    plans = visit.read("reset_plans", columns=_PLAN_COLUMNS, where=where).sort_by([("audit_sequence", "descending")])
    executions = visit.read("reset_executions", columns=("run_id", "plan_id"), where=where)
    newest = next(iter(totals.slice(0, 1).to_pylist()), None)
    results = check_rows.newest_results(quality)
    parts = (totals, ranges, quality, findings, changes, plans, executions)
    return {
        "run_ids": sorted({run for part in parts for run in part["run_id"].to_pylist()}),
        "totals": newest,
        "statuses": sorted(newest["statuses"] or [], key=lambda each: status_rank(each[0])) if newest else [],
        "exported": _exported(ranges),
        "results": results,
        "result_counts": tally((result.state for result in results), reversed(RESULTS)),
        "failures": [result for result in results if result.state == "fails"],
        "severities": tally(map(canonical, findings["severity"].to_pylist()), SEVERITIES),
        "changes": newest_changes(changes, _SHOWN),
        "plans": plans.to_pylist(),
        "verified": sorted(set(executions["plan_id"].to_pylist()) - set(plans["plan_id"].to_pylist())),
        "place": visit.reader.tables.root,
        **_OF_AIRFLOW,
    }


def newest_plan_run(visit: Visit) -> list[str]:
    """The run that made the newest plan; none where no plan was made."""
    plans = visit.read("reset_plans", columns=_PLAN_COLUMNS).sort_by("audit_sequence", null_placement="at_start")
    return [run_id for run_id in plans["run_id"].to_pylist()[-1:] if run_id is not None]


def _exported(ranges: pa.Table) -> dict[str, Any] | None:
    """Sums over the commits of an export; None: there are none."""
    if not ranges.num_rows:
        return None
    return {
        **{name: pc.sum(ranges[name]).as_py() or 0 for name in _SUMMED},
        "gaps": ranges.num_rows - ranges["gap_first"].null_count,
        "exported_at": pc.max(ranges["exported_at"]).as_py(),
    }


def _run(visit: Visit) -> dict[str, Any]:
    (run_id,) = visit.needed("id")
    found = run_context(visit, [run_id])
    if not found["run_ids"] and not visit.problems:
        raise UnknownName("run", run_id)
    return found


PAGES: Final = (WebPage(path="run", title="Run", template="run.html", context=_run),)
