"""Every check has a result, and what could not be evaluated is no success."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from acktrail.model.rules.catalogue import QUALITY_RULES, Condition, QualitySeverity
from acktrail_expectations import evaluation
from acktrail_expectations.evaluation import SuiteCheck, check_of, evaluate
from acktrail_expectations.gate import (
    QualityResult,
    RuleState,
    ValidationSummary,
    headline,
    merged,
    unevaluated_lines,
)

FRAME = pd.DataFrame({"a": pd.array([1, 2, None, 5], "Int64"), "b": pd.array([1, 3, 3, None], "Int64")})


def subject(row: Mapping[str, Any]) -> str:
    """Names a row."""
    return f"a={row['a']}"


def check(name: str, expect: str, where: str = "") -> SuiteCheck:
    """A rule that expects `expect`, as rules.toml has it."""
    return check_of(replace(QUALITY_RULES[0], id=name, expect=Condition.parse(expect), where=where))


def only(check: SuiteCheck, frame: pd.DataFrame = FRAME) -> QualityResult:
    (result,) = evaluate("suite", [check], frame, subject)
    return result


def test_counts_are_of_what_was_compared() -> None:
    """A row where one side is not known is neither compared nor unexpected."""
    result = only(check("a_ge_b", "a >= b"))

    assert (result.success, result.element_count, result.unexpected_count) == (False, 2, 1)
    assert result.observed_value == "a=2"


def test_nothing_to_compare_is_not_evaluated() -> None:
    """A rule that compared no row neither holds nor fails, and says why."""
    rule = check("a_is_b", "a = b")
    apart, unknown, empty = (only(rule, frame) for frame in (FRAME.iloc[2:], FRAME.iloc[2:3], FRAME.iloc[:0]))

    for result in (apart, unknown, empty):
        assert (result.state, result.success) == (RuleState.NOT_EVALUATED, None)
        assert (result.element_count, result.unexpected_count) == (0, 0)
    assert apart.reason == "not known: a beside b, in any of 2 rows"
    assert unknown.reason == "not known: a, in any of 1 rows"
    assert empty.reason == "no row to compare"
    special = check("r", "a = b", where="recorded gap")
    assert only(special, FRAME.iloc[2:]).reason == "no recorded gap among 2 rows"


def test_a_missing_value_that_must_be_there_is_compared() -> None:
    """A column of nothing but missing values breaks the rule that it has values, and keeps the one that it has none."""
    frame = FRAME.assign(a=pd.array([None] * 4, "Int64"))

    there = only(check("there", "a known"), frame)
    absent = only(check("absent", "a unknown"), frame)

    assert (there.state, there.element_count, there.unexpected_count) == (RuleState.FAILS, 4, 4)
    assert (absent.state, absent.element_count) == (RuleState.HOLDS, 4)


def test_an_expectation_that_raised_is_an_error() -> None:
    """A missing column is no failure of the data and no success: it has an error and no counts."""
    result = only(check("gone", "a = no_such_column"))

    assert not result.success
    assert result.error is not None
    assert "\n" not in result.error
    assert (result.element_count, result.unexpected_count) == (None, None)


def test_a_rule_that_raised_takes_no_other_with_it() -> None:
    """Rules on the same columns share what the engine computes of them, and nothing else."""
    checks = (
        check("gone", "a = no_such_column"),
        check("there", "a known"),
    )

    gone, there = evaluate("suite", checks, FRAME, subject)

    assert gone.error is not None
    assert (there.error, there.success, there.unexpected_count) == (None, False, 1)


def test_a_rule_without_a_result_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the engine says nothing of was not evaluated."""
    monkeypatch.setattr(evaluation, "_outcomes", lambda *_: {})

    result = only(check("one", "a = b"))

    assert (result.success, result.error) == (False, "the engine gave no result")


def test_few_rows_stand_for_many() -> None:
    """However many rows break a rule, three are named and all are counted."""
    frame = pd.DataFrame({"a": pd.array(range(500), "Int64"), "b": pd.array([-1] * 500, "Int64")})

    result = only(check("a_is_b", "a = b"), frame)

    assert (result.unexpected_count, result.observed_value) == (500, "a=0; a=1; a=2")


def result(**values: object) -> QualityResult:
    blank = QualityResult(suite="s", expectation="e", severity=QualitySeverity.CRITICAL, success=True)
    return QualityResult(**{**{name: getattr(blank, name) for name in QualityResult.__slots__}, **values})  # type: ignore[arg-type]


def test_parts_add_up() -> None:
    """Results on parts of a table are the result on the whole, in whatever order the parts come: counts add up, one
    failure fails, the first few rows are named, by the numbers in their names."""
    held = result(element_count=10, unexpected_count=0)
    failed = result(success=False, element_count=5, unexpected_count=4, observed_value="0/3; 0/10; 1/0")
    later = result(success=False, element_count=5, unexpected_count=2, observed_value="0/9; 2/0")
    other = result(expectation="f", element_count=1, unexpected_count=0)
    whole = result(success=False, element_count=20, unexpected_count=6, observed_value="0/3; 0/9; 0/10")

    assert merged((held, other, failed, later)) == (whole, other)
    assert merged((later, failed, other, held)) == (whole, other)


def test_parts_that_were_not_evaluated() -> None:
    """What could not be evaluated on one part was not evaluated; a part without rows takes nothing from the others."""
    error = result(success=False, error="no column")
    held = result(element_count=3, unexpected_count=0)
    nothing = result(success=None, element_count=0, unexpected_count=0, reason="none")

    assert merged((held, error)) == (error,)
    assert merged((nothing, held)) == merged((held, nothing)) == (held,)
    assert merged((nothing, nothing)) == (nothing,)


def test_what_was_not_evaluated_is_counted_and_explained() -> None:
    """It is in no count of what holds; each reason has one line, that with critical rules first. It stops no run, but a
    critical expectation that raised does: it vouches for nothing."""
    results = (
        result(expectation="a", severity=QualitySeverity.ERROR, success=None, reason="no end"),
        result(expectation="b", success=None, reason="no row"),
        result(expectation="c", severity=QualitySeverity.WARNING, success=None, reason="no row"),
        result(expectation="d", element_count=3),
        result(expectation="e", severity=QualitySeverity.ERROR, success=False, unexpected_count=1),
    )
    summary = ValidationSummary(cluster_id=None, run_id="r", results=results)

    assert headline(summary) == "1 of 5 expectations hold, 1 fail, 3 not evaluated (1 of them critical)"
    assert unevaluated_lines(summary) == (
        "s: 2 not evaluated, 1 of them critical: no row",
        "s: 1 not evaluated, 0 of them critical: no end",
    )
    assert summary.critical_failures == ()
    raised = result(success=False, error="no column")
    assert ValidationSummary(cluster_id=None, run_id="r", results=(*results, raised)).critical_failures == (raised,)
