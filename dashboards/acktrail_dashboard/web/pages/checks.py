"""Expectations by run as a grid, and one result with its examples."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.errors import InputError, UnknownName
from acktrail_dashboard.lists.check_grid import (
    STATES,
    CheckRun,
    check_grid,
    check_results,
    check_runs,
    runs_of_results,
    suites_of,
)
from acktrail_dashboard.web.web_page import Visit, WebPage
from acktrail_dashboard.wording import SEVERITIES

_RUNS: Final = ("10", "20", "40")
_GRID_COLUMNS: Final = (
    *("run_id", "suite", "expectation", "severity", "success", "element_count", "unexpected_count", "error"),
    *("evaluated_at", "state"),
)
_SEVERITIES: Final = SEVERITIES[:-1]
"""An expectation has no severity info."""


def _checks(visit: Visit) -> dict[str, Any]:
    runs = _runs(visit, int(visit.choice("runs", _RUNS) or _RUNS[0]))
    results = _results(visit, runs)
    severity, state = visit.choice("severity", SEVERITIES), visit.choice("state", STATES)
    suites = check_grid(results, runs, suite=visit.text("suite"), severity=severity, state=state)
    return {
        "runs": runs,
        "suites": suites,
        "suite_names": suites_of(results),
        "severities": _SEVERITIES,
        "states": STATES,
        "run_choices": _RUNS,
        "rules": sum(len(suite.rules) for suite in suites),
    }


def _runs(visit: Visit, most: int) -> tuple[CheckRun, ...]:
    """The runs validated last. ``quality_totals`` has a few rows a run; older tables lack it."""
    runs = check_runs(visit.read("quality_totals"), most)
    return runs or runs_of_results(visit.read("quality_results", columns=("run_id", "evaluated_at")), most)


def _results(visit: Visit, runs: tuple[CheckRun, ...]) -> pa.Table:
    """The results of these runs: files without them, by their statistics, are not read."""
    if not runs:
        return TABLES["quality_results"].empty_table().select(list(_GRID_COLUMNS))
    times = [run.evaluated_at for run in runs if run.evaluated_at is not None]
    where = pc.field("run_id").isin([run.run_id for run in runs])
    if times:
        where &= pc.field("evaluated_at") >= pa.scalar(min(times))
    return visit.read("quality_results", columns=_GRID_COLUMNS, where=where)


def _check(visit: Visit) -> dict[str, Any]:
    run_id, suite, expectation = (visit.text(name) for name in ("run", "suite", "expectation"))
    if not (run_id and suite and expectation):
        hint = "name a run, a suite and an expectation: check?run=RUN&suite=SUITE&expectation=EXPECTATION"
        raise InputError("which result?", hint=hint)
    where = (pc.field("run_id") == run_id) & (pc.field("suite") == suite) & (pc.field("expectation") == expectation)
    results = check_results(visit.read("quality_results", where=where))
    if not results and not visit.problems:
        raise UnknownName("result", f"{expectation} of {suite} in run {run_id}")
    return {"results": results, "run_id": run_id, "suite": suite, "expectation": expectation}


CHECKS: Final = WebPage(path="checks", title="Checks", template="checks.html", context=_checks, menu="Checks")
CHECK: Final = WebPage(path="check", title="Check", template="check.html", context=_check)
