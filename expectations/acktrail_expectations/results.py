"""Outcomes of expectations, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from acktrail_expectations.severity import Severity

__all__ = ["QualityResult", "ValidationSummary", "merged", "result_rows"]

EXAMPLES: Final = 3
"""How many rows that break a rule are named."""

_BETWEEN: Final = "; "


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityResult:
    """One expectation in one run.

    `element_count`: rows that were compared; a rule on a second column leaves out rows where it is not known.
    `unexpected_count`: rows that break the rule. `observed_value`: the first few of them, or the value itself.
    `error`: why it could not be evaluated, then neither count is known and `success` is False.
    """

    suite: str
    expectation: str
    severity: Severity
    success: bool
    element_count: int | None = None
    unexpected_count: int | None = None
    observed_value: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSummary:
    """Everything evaluated for one run. `recorded`: these results are what ``quality_results`` says of the run."""

    cluster_id: str | None
    run_id: str
    results: tuple[QualityResult, ...]
    recorded: bool = True

    @property
    def failed(self) -> tuple[QualityResult, ...]:
        """Results that are not a success, also those that could not be evaluated."""
        return tuple(result for result in self.results if not result.success)

    @property
    def critical_failures(self) -> tuple[QualityResult, ...]:
        """What stops a run. A critical expectation that could not be evaluated vouches for nothing: it counts."""
        return tuple(result for result in self.failed if result.severity is Severity.CRITICAL)


def merged(results: Iterable[QualityResult]) -> tuple[QualityResult, ...]:
    """Results of the same expectations on parts of a table as results on the whole, in order of first appearance."""
    found: dict[tuple[str, str], QualityResult] = {}
    for result in results:
        name = (result.suite, result.expectation)
        found[name] = _both(found[name], result) if name in found else result
    return tuple(found.values())


def _both(one: QualityResult, other: QualityResult) -> QualityResult:
    error = one.error or other.error
    examples = [text for value in (one.observed_value, other.observed_value) if value for text in value.split(_BETWEEN)]
    return replace(
        one,
        success=one.success and other.success,
        element_count=None if error else (one.element_count or 0) + (other.element_count or 0),
        unexpected_count=None if error else (one.unexpected_count or 0) + (other.unexpected_count or 0),
        observed_value=_BETWEEN.join(examples[:EXAMPLES]) or None,
        error=error,
    )


def result_rows(summary: ValidationSummary, evaluated_at: datetime) -> list[dict[str, Any]]:
    """Rows of ``QUALITY_RESULTS``."""
    return [
        {
            "cluster_id": summary.cluster_id,
            "run_id": summary.run_id,
            "suite": result.suite,
            "expectation": result.expectation,
            "severity": result.severity.value,
            "success": result.success,
            "element_count": result.element_count,
            "unexpected_count": result.unexpected_count,
            "observed_value": result.observed_value,
            "error": result.error,
            "evaluated_at": evaluated_at,
        }
        for result in summary.results
    ]
