"""The first page: is the trail complete and fresh, which groups are in trouble, what changed, what broke a rule."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.open_runs import OpenRuns, newest_audits
from acktrail.view.health.status_reader import COUNTED_COLUMNS, suite_totals
from acktrail_dashboard.branch_views import branch_views
from acktrail_dashboard.lists.finding_list import FindingLine
from acktrail_dashboard.status_wording import critical_first, is_trouble, status_text, status_tone
from acktrail_dashboard.web.charts.stacked_bars import StackedBars, ToneBar, last_of_each_bar
from acktrail_dashboard.web.queue_facts import by_severity
from acktrail_dashboard.web.queue_rows import groups_of, queue_rows, status_counts, tone_counts
from acktrail_dashboard.web.recent_changes import finding_changes, gap_changes, status_changes
from acktrail_dashboard.web.web_page import Visit, WebPage
from acktrail_dashboard.wording import TONES, counted, number

_GROUPS_SHOWN: Final = 12
_FINDINGS_SHOWN: Final = 10
_COUNTED: Final = ("holds", "fails", "noted", "not_evaluated", "critical_fails")
_RECENT: Final = timedelta(days=2)
_NEEDS: Final = {"critical": "act", "warning": "look", "unknown": "unknown", "info": "idle or moved", "ok": "ok"}
_RESULTS: Final = {
    "critical": "critical",
    "warning": "failed otherwise",
    "unknown": "not evaluated",
    "info": "noted",
    "ok": "held",
}


def _context(visit: Visit) -> dict[str, Any]:
    rows = queue_rows(visit)
    groups = groups_of(rows)
    counts = status_counts(groups)
    totals = _newest_totals(visit)
    runs = OpenRuns(None if totals is None else totals["run_id"], visit.ask("findings", newest_audits, {}))
    findings = _open_findings(visit, runs)
    critical = sum(line.severity == "critical" for line in findings)
    sentence, tone = critical_first(
        _groups_in_words(counts), stopping=_stopping(visit, runs.reconciliation), critical_findings=critical
    )
    return {
        "sentence": sentence,
        "tone": tone,
        "has_statuses": rows.num_rows > 0,
        "clusters": sorted(each for each in pc.unique(rows["cluster_id"]).to_pylist() if each is not None),
        "worst": next((row for row in groups.slice(0, 1).to_pylist() if is_trouble(row["status"])), None),
        "groups": groups.slice(0, _GROUPS_SHOWN).to_pylist(),
        "group_count": groups.num_rows,
        "group_shares": tone_counts(counts),
        "group_words": _words(counts),
        "group_trouble": _in_trouble(counts),
        "partition_count": rows.num_rows,
        "partition_shares": tone_counts(status_counts(rows)),
        "partition_words": _words(status_counts(rows)),
        "partition_trouble": _in_trouble(status_counts(rows)),
        "complete": pc.sum(pc.equal(rows["completeness"], "complete")).as_py() or 0,
        "unfinished_records": pc.sum(rows["unfinished_records"]).as_py() or 0,
        "unfinished_unknown": rows["unfinished_records"].null_count,
        "totals": totals,
        "exported_at": _newest_export(visit),
        "findings": findings[:_FINDINGS_SHOWN],
        "finding_count": len(findings),
        "changes": status_changes(visit),
        "finding_changes": finding_changes(visit, runs),
        "gap_changes": gap_changes(visit),
        "alerts": [line for each in branch_views() for line in each.alerts(visit)],
        "bars": [each for each in (_group_trend(visit), _quality_trend(visit)) if each.bars],
    }


def _groups_in_words(counts: Mapping[str, int]) -> tuple[str, str]:
    if not counts:
        return "No share group has a status yet.", "unknown"
    trouble = {status: count for status, count in counts.items() if is_trouble(status)}
    total, number_in_trouble = sum(counts.values()), sum(trouble.values())
    if not trouble:
        return f"All is well: {counted(total, 'share group')}, none needs attention.", "ok"
    verb = "needs" if number_in_trouble == 1 else "need"
    tones = {status_tone(status) for status in trouble}
    return (
        f"{number(number_in_trouble)} of {counted(total, 'share group')} {verb} attention.",
        next(tone for tone in TONES if tone in tones),
    )


def _in_trouble(counts: Mapping[str, int]) -> int:
    return sum(count for status, count in counts.items() if is_trouble(status))


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number(count)} {status_text(status)}" for status, count in counts.items()) or "none"


def _newest_totals(visit: Visit) -> dict[str, Any] | None:
    """The row of the newest reconciliation."""
    since = _hour(visit.now - _RECENT)
    recent = visit.read("run_totals", where=pc.field("observed_at") >= pa.scalar(since))
    rows = recent if recent.num_rows else visit.read("run_totals")
    newest: list[dict[str, Any]] = rows.sort_by([("observed_at", "descending")]).slice(0, 1).to_pylist()
    return newest[0] if newest else None


def _newest_export(visit: Visit) -> datetime | None:
    since = _hour(visit.now - _RECENT)
    recent = visit.read("export_ranges", columns=("exported_at",), where=pc.field("exported_at") >= pa.scalar(since))
    rows = recent if recent.num_rows else visit.read("export_ranges", columns=("exported_at",))
    newest: datetime | None = pc.max(rows["exported_at"]).as_py()
    return newest


def _stopping(visit: Visit, run_id: str | None) -> int:
    """Critical rules that the newest validation of the newest reconciliation found broken: they stopped it."""
    own = (pc.field("run_id") == run_id) & (pc.field("severity") == "critical")
    rows = visit.read("quality_results", columns=("evaluated_at", "success"), where=own)
    newest = rows.filter(pc.equal(rows["evaluated_at"], pc.max(rows["evaluated_at"])))
    return int(pc.sum(pc.invert(newest["success"])).as_py() or 0)


def _open_findings(visit: Visit, runs: OpenRuns) -> list[FindingLine]:
    """The most severe first, then the latest. Before the first reconciliation those of branches alone."""
    where = pc.field("run_id").isin(pa.array(runs.run_ids, pa.string()))
    return by_severity(visit, where, runs)


def _group_trend(visit: Visit) -> StackedBars:
    """Groups by the tone of their worst status."""
    rows = visit.read("run_totals", columns=("observed_at", "group_statuses"), where=visit.within("observed_at"))
    drawn = visit.time_range.around(rows["observed_at"])
    bars = (
        ToneBar(at=row["observed_at"], counts=dict(tone_counts(dict(row["group_statuses"] or ()))))
        for row in last_of_each_bar(rows, "observed_at", drawn)
    )
    return StackedBars(title="Share groups by what they need", drawn=drawn, bars=tuple(bars), words=_NEEDS)


def _quality_trend(visit: Visit) -> StackedBars:
    """Expectations by result: of the validations of one run and suite the newest counts, of the runs in one interval
    the one with most failures."""
    results = visit.read("quality_results", columns=COUNTED_COLUMNS, where=visit.within("evaluated_at"))
    newest = suite_totals(results).sort_by("evaluated_at").group_by(["run_id", "suite"], use_threads=False)
    own = newest.aggregate([(name, "last") for name in ("evaluated_at", *_COUNTED)])
    sums = [(f"{name}_last", "sum") for name in _COUNTED]
    runs = own.group_by("run_id", use_threads=False).aggregate([("evaluated_at_last", "max"), *sums])
    runs = runs.rename_columns(["run_id", "evaluated_at", *_COUNTED])
    drawn = visit.time_range.around(runs["evaluated_at"])
    worst = last_of_each_bar(runs, "evaluated_at", drawn, ("critical_fails", "fails"))
    bars = tuple(ToneBar(at=row["evaluated_at"], counts=_result_counts(row)) for row in worst)
    return StackedBars(title="Expectations", drawn=drawn, bars=bars, words=_RESULTS)


def _result_counts(row: Mapping[str, Any]) -> dict[str, int]:
    known = {name: row[name] or 0 for name in _COUNTED}
    return {
        "critical": known["critical_fails"],
        "warning": known["fails"] - known["critical_fails"],
        "unknown": known["not_evaluated"],
        "info": known["noted"],
        "ok": known["holds"],
    }


def _hour(moment: datetime) -> datetime:
    """Answers are kept by what was asked: the same for an hour."""
    return moment.replace(minute=0, second=0, microsecond=0)


PAGE: Final = WebPage(path="", title="Overview", template="overview.html", context=_context, menu="Overview")
