"""Results of expectations as a grid: a row a rule, a column a run, the newest on the left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.view.health.status_reader import suite_totals
from acktrail_dashboard.wording import SEVERITIES, canonical

STATES: Final = ("fails", "not_evaluated", "noted", "holds")
"""What is known of a rule in a run; the one that asks for a person first."""

_BROKEN: Final = ("fails", "noted")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_TONES: Final = {"holds": "ok", "noted": "info", "not_evaluated": "unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """One validation of a run, with its counts."""

    run_id: str
    evaluated_at: datetime | None
    holds: int
    fails: int
    noted: int
    not_evaluated: int
    critical_fails: int

    @property
    def at_ms(self) -> int | None:
        """When it was validated, in milliseconds since the epoch: names the validation in short links."""
        return None if self.evaluated_at is None else (self.evaluated_at - EPOCH) // _MS


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCell:
    """What one run shows about one rule. `state` None: the run has no result of it."""

    state: str | None
    tone: str = "unknown"
    unexpected_count: int | None = None

    @property
    def text(self) -> str:
        """What stands in the cell, so that the grid is read without its colours: ✓, the number of rows that break the
        rule, ✗ where that is not known, a dash or nothing."""
        if self.state in _BROKEN:
            return "✗" if self.unexpected_count is None else f"{self.unexpected_count:,}"
        return {"holds": "✓", "not_evaluated": "\N{EN DASH}"}.get(self.state or "", "")

    @property
    def label(self) -> str:
        """The same in words."""
        if self.state is None:
            return "no result"
        if self.state in _BROKEN and self.unexpected_count is not None:
            return f"{self.state}, {self.unexpected_count:,} unexpected"
        return self.state.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRule:
    """One expectation with a cell for each run. `severity` as in its newest result."""

    suite: str
    expectation: str
    severity: str
    cells: tuple[CheckCell, ...]

    @property
    def code(self) -> str:
        """See `check_code`."""
        return check_code(self.suite, self.expectation)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSuite:
    """The rules of a suite: those that fail in the newest run first, then the worst severity."""

    suite: str
    rules: tuple[CheckRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One stored result. `observed_value`: examples of rows that break the rule; `why`: an error, or why nothing was
    compared."""

    suite: str
    expectation: str
    severity: str
    state: str
    tone: str
    run_id: str
    evaluated_at: datetime | None
    element_count: int | None
    unexpected_count: int | None
    observed_value: str | None
    why: str | None


def check_code(suite: str, expectation: str) -> str:
    """Names an expectation of a suite in short links, which a grid has many of.

    >>> check_code("state_records", "record_decoded")
    'e8083378'
    """
    return f"{crc32(f'{suite} {expectation}'.encode()):08x}"


def check_runs(results: pa.Table, most: int) -> tuple[CheckRun, ...]:
    """The runs validated last, the newest first, from rows of ``quality_results``; of several validations of a run the
    newest counts."""
    totals = suite_totals(results)
    chosen = _newest_runs(totals, most)
    counted = ("holds", "fails", "noted", "not_evaluated", "critical_fails")
    own = totals.filter(pc.is_in(totals["run_id"], value_set=pa.array([run for run, _ in chosen], pa.string())))
    rows = own.select(["run_id", "evaluated_at", *counted]).to_pylist()
    found = []
    for run_id, at in chosen:
        mine = [row for row in rows if (row["run_id"], row["evaluated_at"]) == (run_id, at)]
        sums = {name: sum(row[name] or 0 for row in mine) for name in counted}
        found.append(CheckRun(run_id=run_id, evaluated_at=at, **sums))
    return tuple(found)


def _newest_runs(rows: pa.Table, most: int) -> list[tuple[str, datetime]]:
    """The runs validated last and when, the newest first."""
    known = rows.select(["run_id", "evaluated_at"]).drop_null()
    newest = known.group_by("run_id").aggregate([("evaluated_at", "max")])
    ordered = newest.sort_by([("evaluated_at_max", "descending"), ("run_id", "descending")]).slice(0, most)
    return list(zip(ordered["run_id"].to_pylist(), ordered["evaluated_at_max"].to_pylist(), strict=True))


def check_grid(
    results: pa.Table, runs: Sequence[CheckRun], *, suite: str = "", severity: str = "", state: str = ""
) -> tuple[CheckSuite, ...]:
    """The grid of `runs` from rows of ``quality_results``, by suite. `state`: only rules with this state in the newest
    of the runs."""
    rows = _newest(results.to_pylist())
    by_rule: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        by_rule.setdefault((row["suite"] or "", row["expectation"] or ""), {})[row["run_id"]] = row
    rules = (_rule(name, own, runs) for name, own in by_rule.items())
    wanted = [
        rule
        for rule in rules
        if suite in {"", rule.suite} and severity in {"", rule.severity} and state in {"", _now(rule)}
    ]
    return tuple(
        CheckSuite(suite=name, rules=tuple(sorted((rule for rule in wanted if rule.suite == name), key=_urgency)))
        for name in sorted({rule.suite for rule in wanted})
    )


def counts_of(runs: Sequence[CheckRun], suites: Iterable[CheckSuite]) -> tuple[CheckRun, ...]:
    """The runs with the counts of these rules alone."""
    rules = [rule for suite in suites for rule in suite.rules]
    found = []
    for column, run in enumerate(runs):
        cells = [rule.cells[column] for rule in rules]
        states = Counter(cell.state for cell in cells)
        broken = sum(
            cell.state == "fails" and rule.severity == "critical" for rule, cell in zip(rules, cells, strict=True)
        )
        found.append(
            replace(
                run,
                holds=states["holds"],
                fails=states["fails"],
                noted=states["noted"],
                not_evaluated=states["not_evaluated"],
                critical_fails=broken,
            )
        )
    return tuple(found)


def suites_of(results: pa.Table) -> tuple[str, ...]:
    """The names of all suites in rows of ``quality_results``."""
    return tuple(sorted(name for name in results["suite"].unique().to_pylist() if name))


def check_results(results: pa.Table) -> tuple[CheckResult, ...]:
    """Every stored result of one expectation in one run, the newest first."""
    rows = sorted(results.to_pylist(), key=lambda row: str(row["evaluated_at"]), reverse=True)
    return tuple(_result(row) for row in rows)


def _newest(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of the newest validation of each run."""
    every = list(rows)
    newest: dict[str, Any] = {}
    for row in every:
        newest[row["run_id"]] = max(row["evaluated_at"], newest.get(row["run_id"], row["evaluated_at"]))
    return [row for row in every if row["evaluated_at"] == newest[row["run_id"]]]


def _rule(name: tuple[str, str], by_run: Mapping[str, Mapping[str, Any]], runs: Sequence[CheckRun]) -> CheckRule:
    newest = next((by_run[run.run_id] for run in runs if run.run_id in by_run), None)
    severity = canonical(None if newest is None else newest["severity"])
    cells = tuple(_cell(by_run.get(run.run_id)) for run in runs)
    return CheckRule(suite=name[0], expectation=name[1], severity=severity, cells=cells)


def _cell(row: Mapping[str, Any] | None) -> CheckCell:
    if row is None:
        return CheckCell(state=None)
    state = row["state"]
    return CheckCell(state=state, tone=_tone(state, row["severity"]), unexpected_count=row["unexpected_count"])


def _result(row: Mapping[str, Any]) -> CheckResult:
    state = row["state"]
    return CheckResult(
        **{name: row[name] for name in ("run_id", "evaluated_at", "element_count", "observed_value")},
        suite=row["suite"] or "",
        expectation=row["expectation"] or "",
        severity=canonical(row["severity"]),
        state=state,
        tone=_tone(state, row["severity"]),
        unexpected_count=None if state == "not_evaluated" else row["unexpected_count"],
        why=row["error"] or row["reason"],
    )


def _tone(state: str, severity: str | None) -> str:
    """A failure weighs as much as its severity."""
    if state == "fails":
        return "warning" if canonical(severity) == "warning" else "critical"
    return _TONES.get(state, "unknown")


def _now(rule: CheckRule) -> str:
    return (rule.cells[0].state if rule.cells else None) or ""


def _urgency(rule: CheckRule) -> tuple[int, int, str]:
    state, severity = _now(rule), rule.severity
    return (
        STATES.index(state) if state in STATES else len(STATES),
        SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES),
        rule.expectation,
    )
