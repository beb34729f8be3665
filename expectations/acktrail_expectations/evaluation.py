"""Run checks on a frame with Great Expectations and say what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd

from acktrail_expectations.check import Check
from acktrail_expectations.engine import ExpectationSuite, ephemeral_context
from acktrail_expectations.results import EXAMPLES, QualityResult

__all__ = ["Subject", "evaluate"]

Subject = Callable[[Mapping[str, Any]], str]
"""Names a row for people."""

_RESULT_FORMAT: Final = {
    "result_format": "BASIC",
    "include_unexpected_rows": True,
    "exclude_unexpected_values": True,
    "partial_unexpected_count": EXAMPLES,
}
"""The counts and a few rows: a list of everything that is unexpected costs minutes when a million rows are."""

_RULE: Final = "rule"
_LONGEST_ERROR: Final = 500


def evaluate(suite: str, checks: Sequence[Check], frame: pd.DataFrame, subject: Subject) -> tuple[QualityResult, ...]:
    """One result for each of `checks`, in their order.

    An expectation that raised, or of which the engine says nothing, has an `error` and is no success. A frame without
    rows breaks no rule.
    """
    outcomes = _outcomes(suite, checks, frame)
    return tuple(_result(suite, check, outcomes.get(check.rule), subject) for check in checks)


def _outcomes(suite: str, checks: Sequence[Check], frame: pd.DataFrame) -> dict[str, Any]:
    context: Any = ephemeral_context()
    asset = context.data_sources.add_pandas("frames").add_dataframe_asset(suite)
    batch = asset.add_batch_definition_whole_dataframe("whole").get_batch({"dataframe": frame})
    wanted = ExpectationSuite(name=suite)
    for check in checks:
        wanted.add_expectation(check.expectation.copy(update={"meta": {_RULE: check.rule}}))
    validated = batch.validate(wanted, result_format=_RESULT_FORMAT)
    return {result.expectation_config.meta[_RULE]: result for result in validated.results}


def _result(suite: str, check: Check, outcome: Any, subject: Subject) -> QualityResult:
    blank = QualityResult(suite=suite, expectation=check.rule, severity=check.severity, success=False)
    error = "the engine gave no result" if outcome is None else _raised(outcome.exception_info)
    if error is not None:
        return replace(blank, error=error)
    details = outcome.result
    return replace(
        blank,
        success=bool(outcome.success),
        element_count=_compared(details),
        unexpected_count=details.get("unexpected_count"),
        observed_value=_observed(details, subject),
    )


def _raised(exception_info: Mapping[str, Any]) -> str | None:
    """What an expectation raised, on one line: the information is one dictionary, or one a metric."""
    several = [exception_info] if "raised_exception" in exception_info else list(exception_info.values())
    messages = [str(info.get("exception_message")) for info in several if info.get("raised_exception")]
    return " ".join(messages[0].split())[:_LONGEST_ERROR] if messages else None


def _compared(details: Mapping[str, Any]) -> int | None:
    total = details.get("element_count")
    return None if total is None else int(total) - int(details.get("missing_count") or 0)


def _observed(details: Mapping[str, Any], subject: Subject) -> str | None:
    if "observed_value" in details:
        return str(details["observed_value"])
    if not details.get("unexpected_count"):
        return None
    rows = pd.DataFrame(details["unexpected_rows"]).to_dict("records")
    return "; ".join(subject(row) for row in rows)
