"""The first page: is the trail complete and fresh, which groups are in trouble, what changed, what broke a rule. One
run: what it exported, found, validated, planned, by its run id in the tables. The export: positions of the state
partitions, gaps, quarantine. What to do about each alert, docs/runbooks.md, where alerts lead to. Changes of every kind
(resets, deletions, migrations, configurations): all plans with the audit's check, and one plan with its whole life;
`acktrail.change` reads and judges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from acktrail.change.audit.audit_chain import PLANS
from acktrail.change.audit.integrity import audit_rows, checked_audit
from acktrail.change.audit.journal import read_plan_row
from acktrail.change.change_kind import parse_plan
from acktrail.change.lifecycle.plan_life import ChangeStatus
from acktrail.change.lifecycle.plan_status import list_plans, plan_status
from acktrail.change.planning.change_plan import partition_rows
from acktrail.change.planning.notices import by_severity
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError, InputError, UnknownName
from acktrail.tables.exported.record_files import RECORDS, quarantined_records
from acktrail.view import check_rows, export_rows, finding_rows
from acktrail.view.queue_rows import ROWS_A_PAGE, groups_of, part_of, status_counts, told_changes, tone_counts
from acktrail.view.wording import RESULTS, SEVERITIES, canonical, counted, headline, status_rank, tally
from acktrail_dashboard.web.pages.groups import findings_where, share_partitions
from acktrail_dashboard.web.web_page import Visit, WebPage, branch_views

_QUARANTINED_SHOWN: Final = 100
_OF_AIRFLOW: Final = {"dag_id": None, "is_foreign": False, "outer": None, "newest_plans": None}
"""What a tab of Airflow sets: a run of ours has none of it."""
_SHOWN: Final = 50
_PLANS_SHOWN: Final = 20
_SUMMED: Final = ("records_read", "records_decoded", "records_quarantined")
_RANGE_COLUMNS: Final = ("run_id", *_SUMMED, "gap_first", "exported_at")
_PLAN_COLUMNS: Final = ("run_id", "plan_id", "kind", "strategy", "created_at", "refusals")
_FILE: Final = "runbooks.md"
_GROUPS_SHOWN: Final = 12
_FINDINGS_SHOWN: Final = 10
_CHANGES_SHOWN: Final = 12
_RECENT: Final = timedelta(days=2)
_GAP_COLUMNS: Final = ("observed_at", "gaps", "gap_records")
_FLAWS_SHOWN: Final = 20
_S = ChangeStatus
STANDING_TONES: Final = {
    **dict.fromkeys((_S.DONE,), "ok"),
    **dict.fromkeys((_S.UNDONE, _S.PLANNED, _S.APPROVED, _S.REJECTED, _S.EXPIRED), "info"),
    **dict.fromkeys((_S.STARTED, _S.RUNNING, _S.REFUSED, _S.STOPPED, _S.PARTLY, _S.UNVERIFIED), "warning"),
    **dict.fromkeys((_S.FAILED, _S.OVERWRITTEN, _S.UNKNOWN), "critical"),
}
_NOTICE_TONES: Final = {"refusal": "critical", "serious": "critical", "warning": "warning", "info": "info"}
_OUTCOME_TONES: Final = {
    **dict.fromkeys(("OK", "OK_EPOCH_NOT_BUMPED", "OK_BY_DESCRIPTION"), "ok"),
    **dict.fromkeys(("NOT_ATTEMPTED", "LEFT_OUT"), "info"),
}
_TONES: Final = {
    "standing_tone": lambda standing: STANDING_TONES[ChangeStatus(standing)],
    "notice_tone": lambda severity: _NOTICE_TONES.get(severity, "unknown"),
    "outcome_tone": lambda status: _OUTCOME_TONES.get(status, "critical"),
}
"""What the templates ask."""


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


def _runbooks(_: Visit) -> dict[str, Any]:
    return {"runbooks": _sections()}


@cache
def _sections() -> tuple[tuple[str, Markup], ...]:
    """The alert and the text of each section, in the order of the alert rules."""
    _, *sections = re.split(r"^## ", _document(), flags=re.MULTILINE)
    return tuple((alert, _html(text)) for alert, text in (section.split("\n", 1) for section in sections))


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
    ranges = visit.read("export_ranges", columns=export_rows.EXPORT_COLUMNS)
    positions, gaps = export_rows.export_rows(ranges), export_rows.gap_rows(ranges)
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


def _overview(visit: Visit) -> dict[str, Any]:
    rows = share_partitions(visit)
    groups = groups_of(rows)
    worst: list[dict[str, Any]] = groups.slice(0, _GROUPS_SHOWN).to_pylist()
    counts, partition_counts = status_counts(groups), status_counts(rows)
    # Before the first reconciliation those of branches alone.
    findings = findings_where(visit, pc.field("run_id").isin(pa.array(visit.open_runs.run_ids, pa.string())))
    critical = sum(row.severity == "critical" for row in findings)
    named = [(row["group_id"], row["status"], row["status_since"]) for row in worst]
    sentence, tone = headline(named, counts, stopping=_stopping(visit), critical_findings=critical)
    totals = _newest(visit, "run_totals", "observed_at")
    exported = _newest(visit, "export_ranges", "exported_at", ("exported_at",))
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


def _newest(visit: Visit, table: str, column: str, columns: tuple[str, ...] | None = None) -> dict[str, Any] | None:
    """The newest row of a table; what is older than two days is read only where nothing is newer. Answers are kept by
    what was asked: the same for an hour."""
    since: datetime = (visit.now - _RECENT).replace(minute=0, second=0, microsecond=0)
    recent = visit.read(table, columns=columns, where=pc.field(column) >= pa.scalar(since))
    rows = recent if recent.num_rows else visit.read(table, columns=columns)
    newest: list[dict[str, Any]] = rows.sort_by([(column, "descending")]).slice(0, 1).to_pylist()
    return newest[0] if newest else None


def _stopping(visit: Visit) -> int:
    own = pc.field("run_id") == visit.open_runs.reconciliation
    return check_rows.stopping_rules(visit.read("quality_results", where=own))


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
    totals = visit.read("run_totals", columns=_GAP_COLUMNS).sort_by("observed_at")
    before = totals.filter(pc.field("observed_at") < pa.scalar(visit.time_range.begin))
    until = totals.filter(pc.field("observed_at") < pa.scalar(visit.time_range.end))
    gaps, records = (max(0, _last(until, name) - _last(before, name)) for name in _GAP_COLUMNS[1:])
    return gaps, records


def _last(totals: pa.Table, name: str) -> int:
    """A sum since the first export, of the last run; 0 before the first one."""
    return int(totals[name][-1].as_py() or 0) if totals.num_rows else 0


def plan_page(config: TablesConfig, at: int) -> dict[str, Any]:
    """A part of the plans, the newest first. Raises AcktrailError: the tables cannot be read."""
    found = list_plans(config)
    part = part_of(len(found), at)
    return {"plans": found[part.first : part.first + ROWS_A_PAGE], "part": part}


def plan_story(config: TablesConfig, plan_id: str) -> dict[str, Any]:
    """The life of one plan. `plan_problem`: why the stored plan cannot be relied on. Raises UnknownName: there is no
    such plan. AcktrailError: the tables cannot be read."""
    row, plan, problem = read_plan_row(config, plan_id), None, None
    try:
        plan = parse_plan(row["plan"], f"plan {plan_id}")
    except AcktrailError as error:
        problem = error.message
    parts = partition_rows(plan) if plan else []
    return {
        "row": row,
        "status": plan_status(config, plan_id),
        "plan_problem": problem,
        "notices": by_severity(plan.notices) if plan else (),
        "partitions": sorted(parts, key=lambda part: (part["group_id"], part["topic"] or "", part["partition"])),
        "steps": audit_rows(config, plan_id=plan_id),
    }


def audit_check(config: TablesConfig) -> dict[str, Any]:
    """What `acktrail change audit` says, with flaws and the newest hash. `is_whole`: whether audit, plans and results
    are as they were written; None: that could not be checked. A chain that is broken is an answer, no error."""
    nothing: dict[str, Any] = {"flaws": (), "newest_hash": None}
    try:
        report = checked_audit(config)
    except ConfigurationError as error:
        found = error.data.get("findings")
        flaws = tuple(_flaw(*flaw) for flaw in found[:_FLAWS_SHOWN]) if isinstance(found, list) else ()
        return {**nothing, "is_whole": False if flaws else None, "text": error.message, "flaws": flaws}
    except AcktrailError as error:
        return {**nothing, "is_whole": None, "text": error.message}
    if not report.rows and not report.plans_without_audit:
        return {**nothing, "is_whole": True, "text": "Nothing was changed yet."}
    text = f"{report.rows:,} rows are a whole chain; plans and results are those that they vouch for."
    without = report.plans_without_audit + report.executions_without_audit
    killed = f" {counted(without, 'row')} without audit: of a process that was killed in between." if without else ""
    return {**nothing, "is_whole": True, "text": text + killed, "newest_hash": report.newest_hash}


def _flaw(table: str, sequence: int | None, why: str) -> str:
    return f"{table}: {why}" if sequence is None else f"{table}, row {sequence}: {why}"


def _changes(visit: Visit) -> dict[str, Any]:
    at = visit.number("page") or 1
    nothing: dict[str, Any] = {"plans": (), "part": part_of(0, 1)}
    return {
        **_TONES,
        **visit.ask(PLANS, lambda tables: plan_page(tables.config, at), nothing),
        "audit": visit.ask(PLANS, lambda tables: audit_check(tables.config), None),
    }


def _change(visit: Visit) -> dict[str, Any]:
    plan_id = visit.text("plan")
    if not plan_id:
        raise InputError("which plan?", hint="name its id: change?plan=PLAN")
    with visit.reader.lock:
        return {**_TONES, **plan_story(visit.reader.tables.config, plan_id)}


OVERVIEW: Final = WebPage(path="", title="Overview", template="overview.html", context=_overview, menu="Overview")
PAGES: Final = (
    WebPage(path="changes", title="Changes", template="changes.html", context=_changes, menu="Changes"),
    WebPage(path="change", title="Plan", template="change.html", context=_change),
    WebPage(path="export", title="Export", template="export.html", context=_export, menu="Export"),
    WebPage(path="run", title="Run", template="run.html", context=_run),
    WebPage(path="runbooks", title="Runbooks", template="runbooks.html", context=_runbooks),
)
