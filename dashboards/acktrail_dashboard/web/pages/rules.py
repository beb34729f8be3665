"""Results of rules by run, and one result with its examples; the catalogue of rules, and one rule, which needs no
network."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import UnknownName
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.tables.delta.table_snapshot import one_of
from acktrail.view import check_rows, finding_rows
from acktrail_dashboard.web.web_page import Visit, WebPage

_RUNS: Final = 20
_COLUMNS: Final = (
    *("run_id", "suite", "expectation", "severity", "success", "element_count", "unexpected_count", "error"),
    *("evaluated_at", "state"),
)
_RECENT: Final = timedelta(days=3)


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
    where = one_of("run_id", [run_id for run_id, _ in runs])
    where &= pc.field("evaluated_at") >= pa.scalar(min(at for _, at in runs))
    return visit.read("quality_results", columns=columns, where=where)


def _check(visit: Visit) -> dict[str, Any]:
    run_id, suite, expectation = visit.needed("run", "suite", "expectation")
    where = (pc.field("run_id") == run_id) & (pc.field("suite") == suite) & (pc.field("expectation") == expectation)
    rows = visit.read("quality_results", where=where).sort_by([("evaluated_at", "descending")]).to_pylist()
    if not rows and not visit.problems:
        raise UnknownName("result", f"{expectation} of {suite} in run {run_id}")
    return {"results": [*map(check_rows.check_result, rows)]}


def _rules(visit: Visit) -> dict[str, Any]:
    return {"subjects": rule_catalogue().by_subject, "count": len(rule_catalogue().rules), "open": _open_by_rule(visit)}


def _rule(visit: Visit) -> dict[str, Any]:
    (rule_id,) = visit.needed("id")
    if rule_id not in rule_catalogue().by_id:
        raise UnknownName("rule", rule_id)
    rule = rule_catalogue().by_id[rule_id]
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
    WebPage(path="rules", title="Rules", template="rules.html", context=_rules),
    WebPage(path="rule", title="Rule", template="rule.html", context=_rule),
    WebPage(path="checks", title="Checks", template="checks.html", context=_checks, menu="Checks"),
    WebPage(path="check", title="Check", template="check.html", context=_check),
)
