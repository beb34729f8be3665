"""The rules of a suite, the expectations that most rules are, and their results on a frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pandas as pd

from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.model.rules.quality_rule import QualitySeverity
from acktrail_expectations.gx.engine import Expectation, core, validated
from acktrail_expectations.results import EXAMPLES, NOT_KNOWN, QualityResult

_COLUMN_ARGUMENTS: Final = ("column", "column_A", "column_B")
_EITHER_MISSING: Final = "either_value_is_missing"


@dataclass(frozen=True, slots=True)
class SuiteCheck:
    """An expectation with the name people know the rule by, unique in its suite, and what its failure means.

    `only_where`: what a row must have for the rule to apply to it, for rules that few rows or none need to have.
    `compares`: the columns that it is about, where the frame has their comparison as a column of its own.
    """

    rule: str
    expectation: Expectation
    severity: QualitySeverity
    only_where: str = ""
    compares: tuple[str, ...] = ()


def rule_check(rule: str, expectation: Expectation, **details: Any) -> SuiteCheck:
    """The check of a rule of the catalogue, which says how bad a breach is. Raises KeyError: it has no such rule."""
    return SuiteCheck(rule=rule, expectation=expectation, severity=RULE_BY_ID[rule].severity, **details)


def equal(column: str, other: str) -> Expectation:
    """`column` equals `other` where both are known."""
    return core.ExpectColumnPairValuesToBeEqual(column_A=column, column_B=other, ignore_row_if=_EITHER_MISSING)


def at_least(column: str, bound: str) -> Expectation:
    """`column` is not below `bound` where both are known."""
    return core.ExpectColumnPairValuesAToBeGreaterThanB(
        column_A=column, column_B=bound, or_equal=True, ignore_row_if=_EITHER_MISSING
    )


def one_of(column: str, *values: object) -> Expectation:
    """`column` is one of `values` where it is known."""
    return core.ExpectColumnValuesToBeInSet(column=column, value_set=list(values))


def is_true(column: str) -> Expectation:
    """`column` is true where it is known."""
    return core.ExpectColumnValuesToBeInSet(column=column, value_set=[True])


def none_of(column: str, *values: object) -> Expectation:
    return core.ExpectColumnValuesToNotBeInSet(column=column, value_set=list(values))


def unique(*columns: str) -> Expectation:
    """No two rows have the same values in `columns`."""
    return core.ExpectCompoundColumnsToBeUnique(column_list=list(columns))


def not_null(column: str) -> Expectation:
    return core.ExpectColumnValuesToNotBeNull(column=column)


def compared_columns(expectation: Expectation) -> tuple[str, ...]:
    """The columns of a frame that `expectation` compares."""
    single = (getattr(expectation, argument, None) for argument in _COLUMN_ARGUMENTS)
    return (*(name for name in single if name is not None), *getattr(expectation, "column_list", ()))


NO_ROW: Final = "no row to compare"
"""The reason of every rule on a frame without rows."""


@dataclass(frozen=True, slots=True)
class RowLabel:
    """Names a row for people, from these columns of it."""

    columns: tuple[str, ...]
    text: Callable[[Mapping[str, Any]], str]


RESULT_FORMAT: Final = {
    "result_format": "BASIC",
    "include_unexpected_rows": True,
    "exclude_unexpected_values": True,
    "partial_unexpected_count": EXAMPLES,
}
"""The counts and a few rows: a list of everything that is unexpected costs minutes when a million rows are."""

_LONGEST_ERROR: Final = 500


def evaluate(
    suite: str, checks: Sequence[SuiteCheck], frame: pd.DataFrame, subject: RowLabel
) -> tuple[QualityResult, ...]:
    """One result for each of `checks`, in their order.

    An expectation that raised, or that the engine gives no result for, has an `error` and is no success. One that found
    no row to compare has neither: its `success` is None, and `reason` says why.
    """
    if frame.empty:
        return evaluate_nothing(suite, checks)
    # Of each frame only what is compared: the engine copies all that it is given, several times.
    wanted = {check.rule: set(compared_columns(check.expectation)) for check in checks}
    columns = {rule: tuple(name for name in frame.columns if name in names) for rule, names in wanted.items()}
    outcomes = validated({check.rule: check.expectation for check in checks}, frame, columns, RESULT_FORMAT)
    return tuple(result_of(suite, check, outcomes.get(check.rule), frame, subject) for check in checks)


def evaluate_nothing(suite: str, checks: Sequence[SuiteCheck]) -> tuple[QualityResult, ...]:
    """The results on a frame without rows."""
    return tuple(not_evaluated(suite, check, NO_ROW) for check in checks)


def not_evaluated(suite: str, check: SuiteCheck, reason: str) -> QualityResult:
    """The result of a rule that compared nothing."""
    return replace(_failed(suite, check), success=None, element_count=0, unexpected_count=0, reason=reason)


def _failed(suite: str, check: SuiteCheck, error: str | None = None) -> QualityResult:
    return QualityResult(suite=suite, expectation=check.rule, severity=check.severity, success=False, error=error)


def result_of(suite: str, check: SuiteCheck, outcome: Any, frame: pd.DataFrame, subject: RowLabel) -> QualityResult:
    """Great Expectations' result of one of `checks` on `frame` (None: it gave none) as acktrail records it."""
    error = "the engine gave no result" if outcome is None else _raised(outcome.exception_info)
    if error is not None:
        return _failed(suite, check, error)
    details = outcome.result
    total, missing = details.get("element_count"), int(details.get("missing_count") or 0)
    compared = None if total is None else int(total) - missing
    if compared == 0:
        return not_evaluated(suite, check, _why_not_compared(check, frame))
    broken, observed = details.get("unexpected_count"), details.get("observed_value")
    if observed is None and broken:
        rows = frame.loc[pd.DataFrame(details["unexpected_rows"]).index, list(subject.columns)]
        observed = "; ".join(map(subject.text, rows.to_dict("records")))
    return replace(
        _failed(suite, check),
        success=bool(outcome.success),
        element_count=compared,
        unexpected_count=broken,
        observed_value=None if observed is None else str(observed),
    )


def _why_not_compared(check: SuiteCheck, frame: pd.DataFrame) -> str:
    if check.only_where:
        return f"no {check.only_where} among {len(frame)} rows"
    columns = check.compares or compared_columns(check.expectation)
    unknown = ", ".join(name for name in columns if frame[name].isna().all())
    return f"{NOT_KNOWN}{unknown or ' beside '.join(columns)}, in any of {len(frame)} rows"


def _raised(exception_info: Mapping[str, Any]) -> str | None:
    """What an expectation raised, on one line: the information is one dictionary, or one a metric."""
    several = [exception_info] if "raised_exception" in exception_info else list(exception_info.values())
    messages = [str(info.get("exception_message")) for info in several if info.get("raised_exception")]
    return " ".join(messages[0].split())[:_LONGEST_ERROR] if messages else None
