"""Expectations by run as a grid, and one result with its examples."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import InputError, UnknownName
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.view.health.status_reader import COUNTED_COLUMNS
from acktrail_dashboard.lists.check_grid import (
    EPOCH,
    STATES,
    CheckResult,
    CheckRun,
    check_code,
    check_grid,
    check_results,
    check_runs,
    counts_of,
    suites_of,
)
from acktrail_dashboard.web.web_page import Visit, WebPage
from acktrail_dashboard.wording import SEVERITIES

_RUNS: Final = ("10", "20", "40")
_GRID_COLUMNS: Final = (
    *("run_id", "suite", "expectation", "severity", "success", "element_count", "unexpected_count", "error"),
    *("evaluated_at", "state"),
)
_RECENT: Final = timedelta(days=3)
_SEVERITIES: Final = SEVERITIES[:-1]
"""An expectation has no severity info."""


def _checks(visit: Visit) -> dict[str, Any]:
    runs = checked_runs(visit, int(visit.choice("runs", _RUNS) or _RUNS[0]))
    results = results_of(visit, runs)
    severity, state = visit.choice("severity", SEVERITIES), visit.choice("state", STATES)
    suites = check_grid(results, runs, suite=visit.text("suite"), severity=severity, state=state)
    is_part = bool(visit.text("suite") or severity or state)
    return {
        "runs": counts_of(runs, suites) if is_part else runs,
        "suites": suites,
        "suite_names": suites_of(results),
        "severities": _SEVERITIES,
        "states": STATES,
        "run_choices": _RUNS,
        "rules": sum(len(suite.rules) for suite in suites),
    }


def checked_runs(visit: Visit, most: int) -> tuple[CheckRun, ...]:
    """The runs validated last; what is older than some days is read only where these have too few."""
    recent = pc.field("evaluated_at") >= pa.scalar(visit.now.replace(minute=0, second=0, microsecond=0) - _RECENT)
    found = check_runs(visit.read("quality_results", columns=COUNTED_COLUMNS, where=recent), most)
    return found if len(found) == most else check_runs(visit.read("quality_results", columns=COUNTED_COLUMNS), most)


def results_of(visit: Visit, runs: tuple[CheckRun, ...], columns: tuple[str, ...] | None = _GRID_COLUMNS) -> pa.Table:
    """The results of these runs: files without them, by their statistics, are not read. `columns` None: all."""
    if not runs:
        return TABLES["quality_results"].empty_table().select(list(columns or TABLES["quality_results"].names))
    times = [run.evaluated_at for run in runs if run.evaluated_at is not None]
    where = pc.field("run_id").isin([run.run_id for run in runs])
    if times:
        where &= pc.field("evaluated_at") >= pa.scalar(min(times))
    return visit.read("quality_results", columns=columns, where=where)


def _check(visit: Visit) -> dict[str, Any]:
    run_id, suite, expectation = (visit.text(name) for name in ("run", "suite", "expectation"))
    at_ms = visit.number("at")
    if at_ms is not None:
        results = _results_at(visit, at_ms, visit.text("of"))
    elif run_id and suite and expectation:
        where = (pc.field("run_id") == run_id) & (pc.field("suite") == suite) & (pc.field("expectation") == expectation)
        results = check_results(visit.read("quality_results", where=where))
    else:
        hint = "name a run, a suite and an expectation: check?run=RUN&suite=SUITE&expectation=EXPECTATION"
        raise InputError("which result?", hint=hint)
    if not results and not visit.problems:
        raise UnknownName("result", f"{expectation} of {suite} in run {run_id}" if run_id else "of this check")
    first = results[0] if results else None
    return {
        "results": results,
        "suite": first.suite if first else suite,
        "expectation": first.expectation if first else expectation,
    }


def _results_at(visit: Visit, at_ms: int, code: str) -> tuple[CheckResult, ...]:
    """The results that the short link of a cell names."""
    try:
        begin = EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError as error:
        raise InputError(f"at {at_ms} is beyond the calendar", hint="milliseconds since the epoch") from error
    within = (pc.field("evaluated_at") >= begin) & (pc.field("evaluated_at") < begin + timedelta(milliseconds=1))
    results = check_results(visit.read("quality_results", where=within))
    return tuple(each for each in results if check_code(each.suite, each.expectation) == code)


CHECKS: Final = WebPage(path="checks", title="Checks", template="checks.html", context=_checks, menu="Checks")
CHECK: Final = WebPage(path="check", title="Check", template="check.html", context=_check)
