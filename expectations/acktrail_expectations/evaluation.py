"""Run checks on a frame with Great Expectations and say what came out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from acktrail_expectations.check import Check
from acktrail_expectations.engine import Expectation, validated
from acktrail_expectations.results import EXAMPLES, QualityResult

__all__ = ["Subject", "evaluate"]


@dataclass(frozen=True, slots=True)
class Subject:
    """Names a row for people, from these columns of it."""

    columns: tuple[str, ...]
    text: Callable[[Mapping[str, Any]], str]


_RESULT_FORMAT: Final = {
    "result_format": "BASIC",
    "include_unexpected_rows": True,
    "exclude_unexpected_values": True,
    "partial_unexpected_count": EXAMPLES,
}
"""The counts and a few rows: a list of everything that is unexpected costs minutes when a million rows are."""

_COLUMN_ARGUMENTS: Final = ("column", "column_A", "column_B")
_LONGEST_ERROR: Final = 500


def evaluate(suite: str, checks: Sequence[Check], frame: pd.DataFrame, subject: Subject) -> tuple[QualityResult, ...]:
    """One result for each of `checks`, in their order.

    An expectation that raised, or of which the engine says nothing, has an `error` and is no success.
    """
    frames = {check.rule: _narrowed(frame, check.expectation, subject) for check in checks}
    outcomes = validated({check.rule: check.expectation for check in checks}, frames, _RESULT_FORMAT)
    return tuple(_result(suite, check, outcomes.get(check.rule), subject) for check in checks)


def _narrowed(frame: pd.DataFrame, expectation: Expectation, subject: Subject) -> pd.DataFrame:
    """The columns that `expectation` compares and `subject` names: the engine copies all that it is given, several
    times. A column that is not there is left to the engine's own error."""
    found = (getattr(expectation, argument, None) for argument in _COLUMN_ARGUMENTS)
    compared = {*(name for name in found if name is not None), *getattr(expectation, "column_list", ())}
    wanted = compared | set(subject.columns)
    return frame[[name for name in frame.columns if name in wanted]]


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
    return "; ".join(subject.text(row) for row in rows)
