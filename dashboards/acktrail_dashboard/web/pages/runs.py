"""One run: what it exported, found, validated, planned, by its run id in the tables; the export: positions of the state
partitions, gaps, quarantine; and what to do about each alert, docs/runbooks.md, where alerts lead to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from acktrail.errors import InputError, UnknownName
from acktrail.tables.exported.record_files import RECORDS, quarantined_records
from acktrail.view.check_rows import newest_results
from acktrail.view.export_rows import EXPORT_COLUMNS, export_rows, gap_rows
from acktrail.view.wording import RESULTS, SEVERITIES, canonical, status_rank, tally
from acktrail_dashboard.web.web_page import Visit, WebPage

_QUARANTINED_SHOWN: Final = 100
_OF_AIRFLOW: Final = {"dag_id": None, "is_foreign": False, "outer": None, "newest_plans": None}
"""What a tab of Airflow sets: a run of ours has none of it."""
_SHOWN: Final = 50
_PLANS_SHOWN: Final = 20
_SUMMED: Final = ("records_read", "records_decoded", "records_quarantined")
_RANGE_COLUMNS: Final = ("run_id", *_SUMMED, "gap_first", "exported_at")
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
    results = newest_results(quality)
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
        "changes": {"rows": changes.slice(0, _SHOWN).to_pylist(), "count": changes.num_rows},
        "plans": sorted(plans.to_pylist(), key=lambda plan: str(plan["created_at"]), reverse=True),
        "verified": sorted(set(executions["plan_id"].to_pylist()) - set(plans["plan_id"].to_pylist())),
        "place": visit.reader.tables.root,
        **_OF_AIRFLOW,
    }


def newest_plans(visit: Visit) -> dict[str, Any]:
    """The plans made last. A plan has a run id of its own: which run of Airflow made it is not in the tables."""
    plans = visit.read("reset_plans", columns=_PLAN_COLUMNS).sort_by([("created_at", "descending")])
    return {**run_context(visit, ()), "newest_plans": plans.slice(0, _PLANS_SHOWN).to_pylist()}


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
    run_id = visit.text("id")
    if not run_id:
        raise InputError("which run?", hint="name its id: run?id=RUN")
    found = run_context(visit, [run_id])
    if not found["run_ids"] and not visit.problems:
        raise UnknownName("run", run_id)
    return found


_FILE: Final = "runbooks.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """The section of one alert. `anchor`: its name in addresses, the alert's in lower case."""

    alert: str
    anchor: str
    text: Markup


def _runbooks(_: Visit) -> dict[str, Any]:
    return {"runbooks": runbooks()}


@cache
def runbooks() -> tuple[Runbook, ...]:
    """All of them, in the order of the alert rules."""
    _, *sections = re.split(r"^## ", _document(), flags=re.MULTILINE)
    parts = (section.split("\n", 1) for section in sections)
    return tuple(Runbook(alert=alert, anchor=alert.lower(), text=_html(text)) for alert, text in parts)


def _document() -> str:
    """As an installed wheel carries it, or of a checkout."""
    carried = files("acktrail_dashboard").joinpath(_FILE)
    if carried.is_file():
        return carried.read_text(encoding="utf-8")
    return Path(__file__).parents[4].joinpath("docs", _FILE).read_text(encoding="utf-8")


def _html(text: str) -> Markup:
    """Markdown as HTML; HTML within it is text. Documents that the dashboard does not have are named, no links."""
    from markdown_it import MarkdownIt

    markdown = MarkdownIt("commonmark", {"html": False})
    tokens = markdown.parse(text)
    targets: list[str] = []
    for token in (child for each in tokens for child in each.children or ()):
        if token.type == "link_open":
            targets.append(str(token.attrGet("href")))
        if token.type in {"link_open", "link_close"} and not targets[-1].startswith("#"):
            token.content = "" if token.type == "link_open" else f" (docs/{targets[-1]})"
            token.type, token.nesting = "text", 0
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))  # noqa: S704  # of escaped parts


def _export(visit: Visit) -> dict[str, Any]:
    ranges = visit.read("export_ranges", columns=EXPORT_COLUMNS)
    positions, gaps = export_rows(ranges), gap_rows(ranges)
    quarantined = visit.ask(RECORDS, quarantined_records, None)
    newest = quarantined and quarantined.sort_by([("timestamp_ms", "descending"), ("offset", "descending")])
    behind = [position.behind for position in positions]
    return {
        "positions": positions,
        "exported_at": max((each.exported_at for each in positions if each.exported_at is not None), default=None),
        "behind": None if None in behind or not behind else sum(each or 0 for each in behind),
        "gaps": gaps,
        "lost": sum(gap.tone == "critical" for gap in gaps),
        "quarantined": newest.slice(0, _QUARANTINED_SHOWN).to_pylist() if newest else (),
        "quarantined_count": None if quarantined is None else quarantined.num_rows,
    }


PAGES: Final = (
    WebPage(path="export", title="Export", template="export.html", context=_export, menu="Export"),
    WebPage(path="run", title="Run", template="run.html", context=_run),
    WebPage(path="runbooks", title="Runbooks", template="runbooks.html", context=_runbooks),
)
