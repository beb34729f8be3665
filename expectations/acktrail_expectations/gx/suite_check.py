"""One rule of a suite, and the expectations that most rules are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from acktrail_expectations.gx.engine import Expectation, core
from acktrail_expectations.results import QualitySeverity

_COLUMN_ARGUMENTS: Final = ("column", "column_A", "column_B")
_EITHER_MISSING: Final = "either_value_is_missing"


@dataclass(frozen=True, slots=True)
class SuiteCheck:
    """An expectation with the name people know the rule by, unique in its suite, and what its failure means.

    `only_where`: what a row must have for the rule to apply to it, for rules that few rows or none need to have.
    """

    rule: str
    expectation: Expectation
    severity: QualitySeverity
    only_where: str = ""


critical = partial(SuiteCheck, severity=QualitySeverity.CRITICAL)
error = partial(SuiteCheck, severity=QualitySeverity.ERROR)
warning = partial(SuiteCheck, severity=QualitySeverity.WARNING)


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
