"""Results of rules as rows: one by one, and as a grid with a row for each rule and a column for each run, the newest
first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import AcktrailError
from acktrail.tables.delta.store import Tables
from acktrail.view import wording


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One stored result. `state` is one of ``RESULTS``; `stops`: it stopped the run. `observed_value`: examples of rows
    that break the rule; `why`: an error, or why nothing was compared."""

    suite: str
    expectation: str
    severity: str
    state: str
    stops: bool
    run_id: str | None
    evaluated_at: datetime | None
    element_count: int | None
    unexpected_count: int | None
    observed_value: str | None
    why: str

    @property
    def tone(self) -> str:
        return wording.result_tone(self.state, self.severity)

    @property
    def urgency(self) -> tuple[int, int, str, str]:
        """Sort key: what fails first, then the worst severity."""
        return wording.RESULTS.index(self.state), wording.severity_rank(self.severity), self.suite, self.expectation

    @property
    def mark(self) -> str:
        """What stands in a cell, so that the grid is read without its colours: ✓, the number of rows that break the
        rule, ✗ where that is not known, a dash."""
        if self.state in {"fails", "noted"}:
            return "✗" if self.unexpected_count is None else f"{self.unexpected_count:,}"
        return "✓" if self.state == "holds" else "\N{EN DASH}"

    @property
    def label(self) -> str:
        """The same in words."""
        if self.state in {"fails", "noted"} and self.unexpected_count is not None:
            return f"{self.state}, {self.unexpected_count:,} unexpected"
        return self.state.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRule:
    """One rule of a suite with a cell for each run (None: the run has no result of it)."""

    suite: str
    expectation: str
    severity: str
    cells: tuple[CheckResult | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckGrid:
    """`runs`: the runs validated last and when, the newest first; `suites`: their rules by suite; `counts`: how many
    rules have each of ``RESULTS``, by run."""

    runs: tuple[tuple[str, datetime], ...]
    suites: Mapping[str, tuple[CheckRule, ...]]
    counts: tuple[Mapping[str, int], ...]


def newest_runs(results: pa.Table, most: int) -> list[tuple[str, datetime]]:
    """The runs validated last and when, the newest first, from rows of ``quality_results``."""
    known = results.select(["run_id", "evaluated_at"]).drop_null()
    newest = known.group_by("run_id").aggregate([("evaluated_at", "max")])
    ordered = newest.sort_by([("evaluated_at_max", "descending"), ("run_id", "descending")]).slice(0, most)
    return list(zip(ordered["run_id"].to_pylist(), ordered["evaluated_at_max"].to_pylist(), strict=True))


def check_grid(results: pa.Table, runs: Sequence[tuple[str, datetime]], *, suite: str = "") -> CheckGrid:
    """The grid of `runs` from rows of ``quality_results``; of several validations of a run the newest counts."""
    own = set(runs)
    by_rule: dict[tuple[str, str], dict[str, CheckResult]] = {}
    for row in results.to_pylist():
        if (row["run_id"], row["evaluated_at"]) in own and suite in {"", row["suite"]}:
            result = check_result(row)
            by_rule.setdefault((result.suite, result.expectation), {})[row["run_id"]] = result
    rules = sorted((_rule(name, found, runs) for name, found in by_rule.items()), key=_urgency)
    return CheckGrid(
        runs=tuple(runs),
        suites={name: tuple(rule for rule in rules if rule.suite == name) for name in sorted({r.suite for r in rules})},
        counts=tuple(Counter(cell.state for rule in rules if (cell := rule.cells[at])) for at in range(len(runs))),
    )


def newest_results(results: pa.Table) -> tuple[CheckResult, ...]:
    """The results of the newest validation: what fails first, then what was not evaluated, the worst first."""
    rows = results.to_pylist()
    newest = max((row["evaluated_at"] for row in rows if row["evaluated_at"] is not None), default=None)
    return tuple(sorted(map(check_result, (r for r in rows if r["evaluated_at"] == newest)), key=lambda r: r.urgency))


def check_result(row: Mapping[str, Any]) -> CheckResult:
    """One row of ``quality_results``, which may lack columns; a state that this release does not know is not
    evaluated."""
    state = row["state"] if row["state"] in wording.RESULTS else "not_evaluated"
    return CheckResult(
        **{name: row.get(name) for name in ("run_id", "evaluated_at", "element_count", "observed_value")},
        suite=row["suite"] or "",
        expectation=row["expectation"] or "",
        severity=wording.canonical(row["severity"]),
        state=state,
        stops=row["success"] is False and row["severity"] == "critical",
        unexpected_count=None if state == "not_evaluated" else row["unexpected_count"],
        why=row.get("error") or row.get("reason") or "",
    )


def _urgency(rule: CheckRule) -> tuple[int, int, str]:
    """Sort key: what fails in the newest run first, then the worst severity."""
    newest = rule.cells[0]
    rank = len(wording.RESULTS) if newest is None else wording.RESULTS.index(newest.state)
    return rank, wording.severity_rank(rule.severity), rule.expectation


def _rule(name: tuple[str, str], by_run: Mapping[str, CheckResult], runs: Sequence[tuple[str, datetime]]) -> CheckRule:
    cells = tuple(by_run.get(run_id) for run_id, _ in runs)
    newest = next(cell for cell in cells if cell is not None)
    return CheckRule(suite=name[0], expectation=name[1], severity=newest.severity, cells=cells)


def stopping_rules(results: pa.Table) -> int:
    """How many critical rules the newest validation found broken: they stopped the run. `results`: those of one run."""
    return sum(each.stops for each in newest_results(results))


def stopping_run(tables: Tables, run_id: str | None) -> int:
    """Like `stopping_rules`, for the results of a stored run; 0 if they cannot be read."""
    try:
        return stopping_rules(tables.read("quality_results", where=pc.field("run_id") == run_id))
    except AcktrailError:
        return 0
