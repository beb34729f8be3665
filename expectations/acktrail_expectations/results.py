"""Outcomes of expectations, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

EXAMPLES: Final = 3
"""How many rows that break a rule are named."""

NOT_KNOWN: Final = "not known: "
"""Begins the reason of a rule that has rows, but no known values to compare them with."""

_BETWEEN: Final = "; "


class QualitySeverity(StrEnum):
    """What a failure means for the run."""

    WARNING = "warning"
    """Legal, or explained by things outside the tables: somebody should know."""
    ERROR = "error"
    """Something is wrong or lost and recorded as such; what is published is still true."""
    CRITICAL = "critical"
    """What would be published is wrong, or acting on it would lose records: the run stops."""


class RuleState(StrEnum):
    """What is known of a rule in a run."""

    HOLDS = "holds"
    FAILS = "fails"
    NOT_EVALUATED = "not_evaluated"
    """Nothing was compared, or the expectation raised: the rule is neither kept nor broken."""


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
        return RuleState.HOLDS if self.success else RuleState.FAILS

    @property
    def is_critical(self) -> bool:
        return self.severity is QualitySeverity.CRITICAL

    @property
    def row(self) -> dict[str, Any]:
        """The fields and the state as columns of ``QUALITY_RESULTS``."""
        return {**asdict(self), "severity": self.severity.value, "state": self.state.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSummary:
    """Everything evaluated for one run. `recorded`: ``quality_results`` has these results of the run.

    `run_rows`: how many rows the tables had of the run then (JSON, count by table); None where they were not counted.
    """

    cluster_id: str | None
    run_id: str
    results: tuple[QualityResult, ...]
    recorded: bool = True
    run_rows: str | None = None

    @property
    def failed(self) -> tuple[QualityResult, ...]:
        """Rules that are broken, and expectations that raised."""
        return tuple(result for result in self.results if result.success is False)

    @property
    def holding(self) -> tuple[QualityResult, ...]:
        """Rules that compared something and found nothing against them."""
        return tuple(result for result in self.results if result.state is RuleState.HOLDS)

    @property
    def not_evaluated(self) -> tuple[QualityResult, ...]:
        """Rules about which nothing is known: no row was compared, or the expectation raised."""
        return tuple(result for result in self.results if result.state is RuleState.NOT_EVALUATED)

    @property
    def critical_not_evaluated(self) -> tuple[QualityResult, ...]:
        """Critical rules about which nothing is known."""
        return tuple(result for result in self.not_evaluated if result.is_critical)

    @property
    def critical_without_bounds(self) -> tuple[QualityResult, ...]:
        """Critical rules that should have been evaluated: there were rows, and what bounds them was not known."""
        return tuple(r for r in self.critical_not_evaluated if r.reason and r.reason.startswith(NOT_KNOWN))

    @property
    def critical_failures(self) -> tuple[QualityResult, ...]:
        """What stops a run. A critical expectation that raised counts; one that found nothing to compare does not."""
        return tuple(result for result in self.failed if result.is_critical)


def headline(summary: ValidationSummary) -> str:
    """How many rules hold, fail and were not evaluated."""
    broken = sum(result.state is RuleState.FAILS for result in summary.results)
    found = f"{len(summary.holding)} of {len(summary.results)} expectations hold, {broken} fail"
    open_ = len(summary.not_evaluated)
    critical = _critical(summary.not_evaluated)
    return f"{found}, {open_} not evaluated" + (f" ({critical} of them critical)" if critical else "")


def unevaluated_lines(summary: ValidationSummary) -> tuple[str, ...]:
    """What was not evaluated and why, a line for each suite and reason, those with critical rules first."""
    alike: dict[tuple[str, str], list[QualityResult]] = {}
    for result in summary.not_evaluated:
        alike.setdefault((result.suite, result.error or result.reason or ""), []).append(result)
    worst = sorted(alike.items(), key=lambda item: -_critical(item[1]))
    return tuple(
        f"{suite}: {len(results)} not evaluated, {_critical(results)} of them critical: {reason}"
        for (suite, reason), results in worst
    )


def _critical(results: Iterable[QualityResult]) -> int:
    return sum(result.is_critical for result in results)


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
    known = [success for success in (one.success, other.success) if success is not None]
    return replace(
        one,
        success=all(known) if known else None,
        element_count=None if error else (one.element_count or 0) + (other.element_count or 0),
        unexpected_count=None if error else (one.unexpected_count or 0) + (other.unexpected_count or 0),
        observed_value=_BETWEEN.join(examples[:EXAMPLES]) or None,
        error=error,
        reason=None if known else one.reason,
    )
