"""Results of rules: what each says about a run, about parts of a table together, and as rows of ``quality_results``.

For example, two parts of a table whose rows break a rule::

    rows 0/9 and 0/12 break it                   fails, 2 unexpected: "0/9; 0/12"
    none of the other part                       together: fails, 2 unexpected of all rows compared
    recorded of the run, whose rows are the same the recorded results are those of the run
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.errors import ConcurrentCommit
from acktrail.format.columns.schemas.table_schemas import QUALITY_RESULTS
from acktrail.model.rules.catalogue import QualitySeverity
from acktrail.tables.delta.store import Tables

EXAMPLES: Final = 3
"""How many rows that break a rule are named."""

NOT_KNOWN: Final = "not known: "
"""Begins the reason of a rule that has rows, but no known values to compare them with."""
PRESUMED: Final = "not judged where rows break what it presumes: "
"""Begins the reason of a rule that holds in the rows that were left to compare."""
_BETWEEN: Final = "; "
_NUMBER: Final = re.compile(r"([0-9]+)")


class RuleState(StrEnum):
    """What is known of a rule in a run; nothing where no row was compared or the expectation raised. A rule that is
    there for information is noted where it is broken, and never fails."""

    HOLDS = "holds"
    FAILS = "fails"
    NOTED = "noted"
    NOT_EVALUATED = "not_evaluated"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityResult:
    """One expectation in one run.

    `success` is None when no row was compared; then `reason` says why. `element_count`: rows that were compared; a rule
    on a second column leaves out rows where it is not known. `unexpected_count`: rows that break the rule.
    `observed_value`: the first few of them, or the value itself. `error`: why it could not be evaluated, then neither
    count is known and `success` is False.
    """

    suite: str
    expectation: str
    severity: QualitySeverity
    success: bool | None
    element_count: int | None = None
    unexpected_count: int | None = None
    observed_value: str | None = None
    error: str | None = None
    reason: str | None = None

    @property
    def state(self) -> RuleState:
        if self.success is None or self.error is not None:
            return RuleState.NOT_EVALUATED
        if self.success:
            return RuleState.HOLDS
        return RuleState.NOTED if self.severity is QualitySeverity.INFO else RuleState.FAILS

    @property
    def row(self) -> dict[str, Any]:
        """The fields and the state as columns of ``QUALITY_RESULTS``."""
        return {**asdict(self), "severity": self.severity.value, "state": self.state.value}


RESULTS: Final = pa.schema([QUALITY_RESULTS.field(each.name) for each in fields(QualityResult)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSummary:
    """Everything evaluated for one run. `recorded`: ``quality_results`` has these results of the run.

    `run_rows`: how many rows the tables had of the run then (JSON, count by table); None where they were not counted.
    `evaluated_at`: when the results were recorded.
    """

    cluster_id: str | None
    run_id: str
    results: tuple[QualityResult, ...]
    recorded: bool = True
    run_rows: str | None = None
    evaluated_at: datetime | None = None

    @property
    def failed(self) -> tuple[QualityResult, ...]:
        """Broken rules that are not only for information, and expectations that raised."""
        return tuple(of for of in self.results if of.success is False and of.state is not RuleState.NOTED)

    @property
    def states(self) -> Counter[str]:
        """How many rules are in each state."""
        return Counter(result.state for result in self.results)

    @property
    def not_evaluated(self) -> tuple[QualityResult, ...]:
        return tuple(result for result in self.results if result.state is RuleState.NOT_EVALUATED)

    @property
    def critical_without_bounds(self) -> tuple[QualityResult, ...]:
        """Critical rules that should have been evaluated: there were rows, and what bounds them was not known."""
        return tuple(r for r in critical_among(self.not_evaluated) if r.reason and r.reason.startswith(NOT_KNOWN))

    @property
    def critical_failures(self) -> tuple[QualityResult, ...]:
        """What stops a run. A critical expectation that raised counts; one that found nothing to compare does not."""
        return critical_among(self.failed)


def critical_among(results: Iterable[QualityResult]) -> tuple[QualityResult, ...]:
    return tuple(result for result in results if result.severity is QualitySeverity.CRITICAL)


def headline(summary: ValidationSummary) -> str:
    """How many rules hold, fail, are noted and were not evaluated."""
    states = summary.states
    noted = states[RuleState.NOTED]
    legal = f", {noted} noted for information" if noted else ""
    held = f"{states[RuleState.HOLDS]} of {len(summary.results)} expectations hold"
    found = f"{held}, {states[RuleState.FAILS]} fail{legal}"
    critical = len(critical_among(summary.not_evaluated))
    of_them = f" ({critical} of them critical)" if critical else ""
    return f"{found}, {len(summary.not_evaluated)} not evaluated{of_them}"


def unevaluated_lines(summary: ValidationSummary) -> tuple[str, ...]:
    """What was not evaluated and why, a line for each suite and reason, those with critical rules first."""
    alike: dict[tuple[str, str], list[QualityResult]] = {}
    for result in summary.not_evaluated:
        alike.setdefault((result.suite, result.error or result.reason or ""), []).append(result)
    lines = [(len(critical_among(own)), len(own), suite, reason) for (suite, reason), own in alike.items()]
    return tuple(
        f"{suite}: {count} not evaluated, {critical} of them critical: {reason}"
        for critical, count, suite, reason in sorted(lines, key=lambda line: -line[0])
    )


def merged(results: Iterable[QualityResult]) -> tuple[QualityResult, ...]:
    """Results of the same expectations on parts of a table as results on the whole, in order of first appearance."""
    found: dict[tuple[str, str], QualityResult] = {}
    for result in results:
        name = (result.suite, result.expectation)
        found[name] = _merge_two(found[name], result) if name in found else result
    return tuple(found.values())


def _merge_two(one: QualityResult, other: QualityResult) -> QualityResult:
    error = one.error or other.error
    examples = [text for value in (one.observed_value, other.observed_value) if value for text in value.split(_BETWEEN)]
    doubts = [each.reason for each in (one, other) if (each.reason or "").startswith(PRESUMED)]
    known = [each.success for each in (one, other) if each.success is False or (each.success and not doubts)]
    return replace(
        one,
        success=all(known) if known else None,
        element_count=None if error else (one.element_count or 0) + (other.element_count or 0),
        unexpected_count=None if error else (one.unexpected_count or 0) + (other.unexpected_count or 0),
        observed_value=_BETWEEN.join(sorted(examples, key=_in_order)[:EXAMPLES]) or None,
        error=error,
        reason=None if known else next(iter(doubts), one.reason),
    )


def _in_order(example: str) -> list[str | int]:
    """Numbers by their value: state record 0/9 comes before 0/10, whichever part was evaluated first."""
    return [int(part) if part.isdecimal() else part for part in _NUMBER.split(example)]


def recorded(store: Tables, run_id: str) -> ValidationSummary | None:
    """The newest validation of a run in ``quality_results``; None when there is none."""
    rows = store.read("quality_results", where=pc.field("run_id") == run_id).to_pylist()
    if not rows:
        return None
    evaluated_at = max(row["evaluated_at"] for row in rows)
    newest = [row for row in rows if row["evaluated_at"] == evaluated_at]
    cluster_id, run_rows = newest[0]["cluster_id"], newest[0]["run_rows"]
    results = tuple(map(stored_result, newest))
    return ValidationSummary(
        cluster_id=cluster_id, run_id=run_id, results=results, run_rows=run_rows, evaluated_at=evaluated_at
    )


def stored_result(row: Mapping[str, Any]) -> QualityResult:
    """A row of ``QUALITY_RESULTS``, or some of its columns."""
    values: dict[str, Any] = {field.name: row.get(field.name) for field in fields(QualityResult)}
    return QualityResult(**{**values, "severity": QualitySeverity(row["severity"])})


def record(
    store: Tables,
    summary: ValidationSummary,
    counter: str,
    before: int | None,
    positions: Mapping[str, int] | None = None,
) -> ValidationSummary:
    """Append `summary`'s results and give it with the time of that. In the same commit `counter`, an app transaction,
    counts on from `before`, and `positions` are set. Where another validation was quicker, nothing of this one lands,
    and its results of the same rows take the place.

    Raises:
        ConcurrentCommit: the other one was of another run, or of other rows.
    """
    own = {"cluster_id": summary.cluster_id, "run_id": summary.run_id, "run_rows": summary.run_rows}
    now = datetime.now(UTC)
    rows = [{**own, "evaluated_at": now, **result.row} for result in summary.results]
    moved = {**(positions or {}), counter: (before or 0) + 1}
    new = pa.Table.from_pylist(rows, schema=QUALITY_RESULTS)
    try:
        store.append("quality_results", new, transactions=moved, expected={counter: before})
    except ConcurrentCommit:
        others = recorded(store, summary.run_id)
        if others is None or others.run_rows != summary.run_rows:
            raise
        return others
    return replace(summary, evaluated_at=now)
