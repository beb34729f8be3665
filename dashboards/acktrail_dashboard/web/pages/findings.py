"""Findings, the worst first, one finding, and one state record as evidence; results of rules by run, and one result
with its examples; the catalogue of rules, and one rule, which needs no network."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError, UnknownName
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.rules.catalogue import QUALITY_RULES, RULE_BY_ID, RULES_BY_SUBJECT
from acktrail.tables.exported.record_files import RECORDS, record_at
from acktrail.times import ago_ms, time_ms
from acktrail.view import check_rows, finding_rows, record_evidence
from acktrail.view.wording import SEVERITIES
from acktrail_dashboard.web.web_page import Visit, WebPage

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RUNS: Final = 20
_COLUMNS: Final = (
    *("run_id", "suite", "expectation", "severity", "success", "element_count", "unexpected_count", "error"),
    *("evaluated_at", "state"),
)
_RECENT: Final = timedelta(days=3)


def _since(visit: Visit) -> datetime | None:
    """The instant that ``since`` names: how long ago, or a time; None: it is not there. Raises InputError: it is
    neither."""
    text = visit.text("since").strip()
    if not text:
        return None
    ago = ago_ms(text, (visit.now - _EPOCH) // timedelta(milliseconds=1))
    try:
        return _EPOCH + timedelta(milliseconds=time_ms("since", text) if ago is None else ago)
    except OverflowError as error:
        raise InputError(f"since {text!r} is beyond the calendar", hint="give a duration such as 24h") from error


def _findings(visit: Visit) -> dict[str, Any]:
    wanted = finding_rows.FindingFilter(
        rule=visit.text("rule"),
        severity=visit.choice("severity", SEVERITIES),
        group_id=visit.text("group"),
        first_seen=_since(visit),
        shown=visit.choice("shown", finding_rows.SHOWN) or "open",
    )
    runs, at = visit.open_runs, visit.number("page") or 1
    return {
        "list": finding_rows.finding_page(visit.read("findings"), wanted, runs=runs, topics=visit.topics, at=at),
        "wanted": wanted,
        "run_id": runs.reconciliation,
        "is_new": not visit.exists("findings"),
    }


def _finding(visit: Visit) -> dict[str, Any]:
    rule, subject = visit.text("rule"), visit.text("subject")
    if not rule or not subject:
        raise InputError("which finding?", hint="name its rule and subject: finding?rule=RULE&subject=SUBJECT")
    where = (pc.field("rule") == rule) & (pc.field("subject") == subject)
    rows = visit.read("findings", where=where).sort_by([("last_seen_at", "descending")]).to_pylist()
    if not rows and not visit.problems:
        raise UnknownName("finding", f"{rule} of {subject}")
    row = finding_rows.finding_row(rows[0], visit.topics, visit.open_runs) if rows else None
    if row is None or row.evidence_offset is None:
        return {"row": row, **_evidence(visit, None, None)}
    return {"row": row, **_evidence(visit, row.evidence_state_partition, row.evidence_offset)}


def _record(visit: Visit) -> dict[str, Any]:
    state_partition, offset = visit.number("state-partition"), visit.number("offset")
    if state_partition is None or offset is None:
        hint = "name a state partition and an offset: record?state-partition=0&offset=0"
        raise InputError("which state record?", hint=hint)
    return {"row": None, **_evidence(visit, state_partition, offset)}


def _evidence(visit: Visit, state_partition: int | None, offset: int | None) -> dict[str, Any]:
    """A state record and where it is; None: nowhere."""
    place = {"state_partition": state_partition, "offset": offset}
    if state_partition is None or offset is None:
        return {**place, "evidence": None}
    row = visit.ask(RECORDS, lambda tables: record_at(tables, state_partition, offset), None)
    return {**place, "evidence": None if row is None else record_evidence.record_evidence(row, visit.topics)}


def _checks(visit: Visit) -> dict[str, Any]:
    runs = _checked_runs(visit, _RUNS)
    results = _results_of(visit, runs)
    return {
        "grid": check_rows.check_grid(results, runs, suite=visit.text("suite")),
        "suite": visit.text("suite"),
        "suite_names": sorted(name for name in results["suite"].unique().to_pylist() if name),
    }


def _checked_runs(visit: Visit, most: int) -> list[tuple[str, datetime]]:
    """The runs validated last; what is older than some days is read only where these have too few."""
    recent = pc.field("evaluated_at") >= pa.scalar(visit.now.replace(minute=0, second=0, microsecond=0) - _RECENT)
    columns = ("run_id", "evaluated_at")
    found = check_rows.newest_runs(visit.read("quality_results", columns=columns, where=recent), most)
    return found if len(found) == most else check_rows.newest_runs(visit.read("quality_results", columns=columns), most)


def _results_of(visit: Visit, runs: list[tuple[str, datetime]], columns: tuple[str, ...] | None = _COLUMNS) -> pa.Table:
    """The results of these runs: files without them, by their statistics, are not read. `columns` None: all."""
    if not runs:
        return TABLES["quality_results"].empty_table().select(list(columns or TABLES["quality_results"].names))
    where = pc.field("run_id").isin([run_id for run_id, _ in runs])
    where &= pc.field("evaluated_at") >= pa.scalar(min(at for _, at in runs))
    return visit.read("quality_results", columns=columns, where=where)


def _check(visit: Visit) -> dict[str, Any]:
    run_id, suite, expectation = (visit.text(name) for name in ("run", "suite", "expectation"))
    if not (run_id and suite and expectation):
        hint = "name a run, a suite and an expectation: check?run=RUN&suite=SUITE&expectation=EXPECTATION"
        raise InputError("which result?", hint=hint)
    where = (pc.field("run_id") == run_id) & (pc.field("suite") == suite) & (pc.field("expectation") == expectation)
    rows = visit.read("quality_results", where=where).sort_by([("evaluated_at", "descending")]).to_pylist()
    if not rows and not visit.problems:
        raise UnknownName("result", f"{expectation} of {suite} in run {run_id}")
    return {"results": [*map(check_rows.check_result, rows)]}


def _rules(visit: Visit) -> dict[str, Any]:
    return {"subjects": RULES_BY_SUBJECT, "count": len(QUALITY_RULES), "open": _open_by_rule(visit)}


def _rule(visit: Visit) -> dict[str, Any]:
    rule_id = visit.text("id")
    if not rule_id:
        raise InputError("which rule?", hint="name its id: rule?id=RULE")
    if rule_id not in RULE_BY_ID:
        raise UnknownName("rule", rule_id)
    rule = RULE_BY_ID[rule_id]
    opened, results = _open_by_rule(visit), _results_of(visit, _checked_runs(visit, 1), columns=None)
    own = results.filter(pc.is_in(results["expectation"], value_set=pa.array(rule.ids)))
    return {
        "rule": rule,
        "asked": rule_id,
        "open": sum(opened.get(each, 0) for each in rule.ids),
        "results": check_rows.newest_results(own),
    }


def _open_by_rule(visit: Visit) -> dict[str, int]:
    """How many findings are open, or may be, by rule."""
    findings = visit.read("findings", columns=("rule", "run_id"))
    of_open, _ = finding_rows.open_and_gone(findings, visit.open_runs)
    own = findings.filter(of_open)
    return {each["values"]: each["counts"] for each in pc.value_counts(own["rule"]).to_pylist()}


PAGES: Final = (
    WebPage(path="findings", title="Findings", template="findings.html", context=_findings, menu="Findings"),
    WebPage(path="finding", title="Finding", template="finding.html", context=_finding),
    WebPage(path="record", title="State record", template="finding.html", context=_record),
    WebPage(path="rules", title="Rules", template="rules.html", context=_rules),
    WebPage(path="rule", title="Rule", template="rule.html", context=_rule),
    WebPage(path="checks", title="Checks", template="checks.html", context=_checks, menu="Checks"),
    WebPage(path="check", title="Check", template="check.html", context=_check),
)
