"""One run: what it exported, found, validated, planned; by its run id in the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError, UnknownName
from acktrail_dashboard.lists.check_grid import check_results, check_runs
from acktrail_dashboard.status_wording import status_rank
from acktrail_dashboard.web.web_page import Visit, WebPage
from acktrail_dashboard.wording import SEVERITIES, canonical, tally

_FAILURES_SHOWN: Final = 50
_CHANGES_SHOWN: Final = 50
_PLANS_SHOWN: Final = 20
_RANGE_COLUMNS: Final = (
    *("run_id", "records_read", "records_decoded", "records_quarantined", "gap_first", "gap_last", "exported_at"),
)
_PLAN_COLUMNS: Final = ("run_id", "plan_id", "kind", "strategy", "created_at", "refusals")


def run_context(visit: Visit, run_ids: Sequence[str]) -> dict[str, Any]:
    """What the tables have of these runs: one run, or the tries of one."""
    where = pc.field("run_id").isin(pa.array(run_ids, pa.string()))
    totals = visit.read("run_totals", where=where).sort_by([("observed_at", "descending")])
    ranges = visit.read("export_ranges", columns=_RANGE_COLUMNS, where=where)
    quality = visit.read("quality_results", where=where)
    findings = visit.read("findings", columns=("run_id", "severity"), where=where)
    changes = visit.read("status_changes", where=where).sort_by([("changed_at", "descending")])
    plans = visit.read("reset_plans", columns=_PLAN_COLUMNS, where=where)
    executions = visit.read("reset_executions", columns=("run_id", "plan_id"), where=where)
    newest = next(iter(totals.slice(0, 1).to_pylist()), None)
    failures = _failures(quality)
    parts = (totals, ranges, quality, findings, changes, plans, executions)
    return {
        "run_ids": sorted({run for part in parts for run in part["run_id"].to_pylist()}),
        "totals": newest,
        "statuses": sorted(newest["statuses"] or [], key=lambda each: status_rank(each[0])) if newest else [],
        "exported": _exported(ranges),
        "validations": check_runs(quality, len(run_ids)),
        "failures": failures[:_FAILURES_SHOWN],
        "failure_count": len(failures),
        "severities": tally(map(canonical, findings["severity"].to_pylist()), SEVERITIES),
        "changes": changes.slice(0, _CHANGES_SHOWN).to_pylist(),
        "change_count": changes.num_rows,
        "plans": sorted(plans.to_pylist(), key=lambda plan: str(plan["created_at"]), reverse=True),
        "verified": sorted(set(executions["plan_id"].to_pylist()) - set(plans["plan_id"].to_pylist())),
        "place": visit.reader.tables.root,
        "dag_id": None,
        "is_foreign": False,
        "outer": None,
        "newest_plans": None,
    }


def newest_plans(visit: Visit) -> dict[str, Any]:
    """The plans made last. A plan has a run id of its own: which run of Airflow made it is not in the tables."""
    plans = visit.read("reset_plans", columns=_PLAN_COLUMNS).sort_by([("created_at", "descending")])
    return {**run_context(visit, ()), "newest_plans": plans.slice(0, _PLANS_SHOWN).to_pylist()}


def _failures(quality: pa.Table) -> list[Any]:
    """Rules that fail in the newest validation."""
    is_newest = pc.field("evaluated_at") == pc.max(quality["evaluated_at"])
    return list(check_results(quality.filter(is_newest & ~pc.field("success"))))


def _exported(ranges: pa.Table) -> dict[str, Any] | None:
    """Sums over the commits of an export; None: there are none."""
    if not ranges.num_rows:
        return None
    gaps = ranges.filter(pc.is_valid(ranges["gap_first"]))
    columns = ("records_read", "records_decoded", "records_quarantined")
    return {
        **{name: pc.sum(ranges[name]).as_py() or 0 for name in columns},
        "gaps": gaps.num_rows,
        "exported_at": pc.max(ranges["exported_at"]).as_py(),
    }


def _run(visit: Visit) -> dict[str, Any]:
    run_id = visit.text("id")
    if not run_id:
        raise InputError("which run?", hint="name its id: run?id=RUN")
    found = run_context(visit, [run_id])
    if not found["run_ids"] and not visit.problems:
        raise UnknownName("run", run_id)
    return found


RUN: Final = WebPage(path="run", title="Run", template="run.html", context=_run)
