"""Rules as expectations of Great Expectations, evaluated on frames of pandas, and what acktrail records of its results.

Importing this module loads Great Expectations, which takes seconds: who may not need it imports it late.
"""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import pandas as pd

from acktrail.model.rules.catalogue import QUALITY_RULES, QualityRule, QualitySeverity
from acktrail_expectations.frames.frame_columns import BATCH_RULES
from acktrail_expectations.results import EXAMPLES, NOT_KNOWN, QualityResult

logging.getLogger("great_expectations").setLevel(logging.WARNING)  # it logs a line for each engine that it lacks
gc.disable()  # while it makes a million objects that stay: a third of the time of its import
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # beside PySpark it warns of pandas 3
    import great_expectations.expectations as gxe
    from great_expectations.execution_engine import PandasExecutionEngine
    from great_expectations.validator.validator import Validator
gc.freeze()
gc.enable()

OWNER: Final = "acktrail"
NO_ROW: Final = "no row to compare"
"""The reason of every rule on a frame without rows."""
RESULT_FORMAT: Final = {
    "result_format": "BASIC",
    "include_unexpected_rows": True,
    "exclude_unexpected_values": True,
    "partial_unexpected_count": EXAMPLES,
}
"""The counts and a few rows: a list of everything that is unexpected costs minutes when a million rows are."""
_LONGEST_ERROR: Final = 500
_KINDS: Final[Mapping[tuple[str, bool], tuple[Any, Callable[[list[str], list[Any]], dict[str, Any]]]]] = {
    ("unique", False): (gxe.ExpectCompoundColumnsToBeUnique, lambda columns, _: {"column_list": columns}),
    ("=", False): (gxe.ExpectColumnPairValuesToBeEqual, lambda columns, _: _pair(*columns)),
    (">=", False): (
        gxe.ExpectColumnPairValuesAToBeGreaterThanB, lambda columns, _: {**_pair(*columns), "or_equal": True}
    ),
    (">=", True): (gxe.ExpectColumnValuesToBeBetween, lambda columns, v: {"column": columns[0], "min_value": v[0]}),
    ("<=", True): (gxe.ExpectColumnValuesToBeBetween, lambda columns, v: {"column": columns[0], "max_value": v[0]}),
    ("=", True): (gxe.ExpectColumnValuesToBeInSet, lambda columns, v: {"column": columns[0], "value_set": v}),
    ("in", True): (gxe.ExpectColumnValuesToBeInSet, lambda columns, v: {"column": columns[0], "value_set": v}),
    ("not in", True): (gxe.ExpectColumnValuesToNotBeInSet, lambda columns, v: {"column": columns[0], "value_set": v}),
    ("known", False): (gxe.ExpectColumnValuesToNotBeNull, lambda columns, _: {"column": columns[0]}),
    ("unknown", False): (gxe.ExpectColumnValuesToBeNull, lambda columns, _: {"column": columns[0]}),
    ("batches", False): (
        gxe.ExpectColumnValuesToBeInSet, lambda columns, _: {"column": columns[0], "value_set": [True]}
    ),
}  # fmt: skip
"""Great Expectations' class for a relation, without and with values, and what it is given."""
Label = Callable[[Mapping[str, Any]], str]
"""Names a row of a frame for people."""


def _pair(column: str, other: str) -> dict[str, Any]:
    """Rows where one of two columns is missing are not compared."""
    return {"column_A": column, "column_B": other, "ignore_row_if": "either_value_is_missing"}


@dataclass(frozen=True, slots=True)
class SuiteCheck:
    """A rule as an expectation. `columns`: those of a frame that the engine compares; `compares`: those that the rule
    is about, where the frame has their comparison as a column of its own."""

    rule: QualityRule
    expectation: Any
    columns: tuple[str, ...]
    compares: tuple[str, ...]


@cache
def checks_of(suite: str) -> tuple[SuiteCheck, ...]:
    """The rules of a suite, in the order of the catalogue."""
    return tuple(check_of(rule) for rule in QUALITY_RULES if suite in rule.suites)


def check_of(rule: QualityRule) -> SuiteCheck:
    """A rule as an expectation, with what people should know of it. Raises KeyError: it is about batches, and there is
    no function of its name."""
    condition = rule.expect
    assert condition is not None, rule
    is_error = rule.severity is QualitySeverity.ERROR  # Great Expectations has no such severity; `meta` has
    documents = {
        "severity": "warning" if is_error else rule.severity.value,
        "description": rule.title,
        "notes": [rule.meaning, f"Why {rule.severity.value}: {rule.why}", f"What to do: {rule.advice}"],
        "meta": {
            "rule": rule.id,
            "severity": rule.severity.value,
            "owner": OWNER,
            "sources": list(rule.sources),
            "since": rule.since,
            "page": f"docs/{rule.page}",
        },
    }
    of_batches = BATCH_RULES[rule.id].bounds if condition.relation == "batches" else None
    columns = condition.columns if of_batches is None else (rule.id,)
    compares = condition.columns if of_batches is None else ("batches", *of_batches)
    kind, arguments = _KINDS[condition.relation, bool(condition.values)]
    expectation = kind(**arguments(list(columns), list(condition.values)), **documents)
    return SuiteCheck(rule, expectation, columns, compares)


def evaluate(suite: str, checks: Sequence[SuiteCheck], frame: pd.DataFrame, label: Label) -> tuple[QualityResult, ...]:
    """One result for each of `checks`, in their order.

    An expectation that raised, or that the engine gives no result for, has an `error` and is no success. One that found
    no row to compare has neither: its `success` is None, and `reason` says why.
    """
    if frame.empty:
        return tuple(not_evaluated(suite, check.rule, NO_ROW) for check in checks)
    outcomes = _outcomes(checks, frame)
    return tuple(_result_of(suite, check, outcomes.get(check.rule.id), frame, label) for check in checks)


def _outcomes(checks: Sequence[SuiteCheck], frame: pd.DataFrame) -> dict[str, Any]:
    """Great Expectations' results by rule.

    All are evaluated together by one validator on its pandas engine, without a data context: nothing is stored and no
    frame is hashed. Of the frame each gets what it compares, because the engine copies all that it is given, several
    times; those on the same columns share a batch and its metrics.
    """
    there = frame.columns
    batches = {",".join(check.columns): frame[there[there.isin(check.columns)]] for check in checks}
    validator = Validator(execution_engine=PandasExecutionEngine(batch_data_dict=batches))
    validator.metrics_calculator.show_progress_bars = False
    configurations = [check.expectation.configuration for check in checks]
    for check, configuration in zip(checks, configurations, strict=True):
        configuration.kwargs["batch_id"] = ",".join(check.columns)
    results = validator.graph_validate(
        configurations=configurations, runtime_configuration={"result_format": dict(RESULT_FORMAT)}
    )
    return {result.expectation_config.meta["rule"]: result for result in results}


def not_evaluated(suite: str, rule: QualityRule, reason: str) -> QualityResult:
    """The result of a rule that compared nothing."""
    return replace(_failed(suite, rule), success=None, element_count=0, unexpected_count=0, reason=reason)


def _failed(suite: str, rule: QualityRule, error: str | None = None) -> QualityResult:
    return QualityResult(suite=suite, expectation=rule.id, severity=rule.severity, success=False, error=error)


def _result_of(suite: str, check: SuiteCheck, outcome: Any, frame: pd.DataFrame, label: Label) -> QualityResult:
    """Great Expectations' result of one of `checks` on `frame` (None: it gave none) as acktrail records it."""
    error = "the engine gave no result" if outcome is None else _raised(outcome.exception_info)
    if error is not None:
        return _failed(suite, check.rule, error)
    details = outcome.result
    total, missing = details.get("element_count"), int(details.get("missing_count") or 0)
    compared = None if total is None else int(total) - missing
    if compared == 0:
        return not_evaluated(suite, check.rule, _why_not_compared(check, frame))
    broken = details.get("unexpected_count")
    examples = frame.loc[pd.DataFrame(details["unexpected_rows"]).index].to_dict("records") if broken else ()
    return replace(
        _failed(suite, check.rule),
        success=bool(outcome.success),
        element_count=compared,
        unexpected_count=broken,
        observed_value="; ".join(map(label, examples)) or None,
    )


def _why_not_compared(check: SuiteCheck, frame: pd.DataFrame) -> str:
    if check.rule.where:
        return f"no {check.rule.where} among {len(frame)} rows"
    unknown = ", ".join(name for name in check.compares if frame[name].isna().all())
    return f"{NOT_KNOWN}{unknown or ' beside '.join(check.compares)}, in any of {len(frame)} rows"


def _raised(exception_info: Mapping[str, Any]) -> str | None:
    """What an expectation raised, on one line: the information is one dictionary, or one a metric."""
    several = [exception_info] if "raised_exception" in exception_info else list(exception_info.values())
    messages = [str(info.get("exception_message")) for info in several if info.get("raised_exception")]
    return " ".join(messages[0].split())[:_LONGEST_ERROR] if messages else None
