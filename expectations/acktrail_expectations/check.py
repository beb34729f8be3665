"""One rule of a suite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from acktrail_expectations.gx.engine import Expectation, core
from acktrail_expectations.severity import Severity

__all__ = ["Check", "at_least", "compared_columns", "equal"]

_COLUMN_ARGUMENTS: Final = ("column", "column_A", "column_B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """An expectation with the name people know the rule by, unique in its suite, and what its failure means.

    `only_where`: what a row must have for the rule to apply to it, for rules that few rows or none need to have.
    """

    rule: str
    expectation: Expectation
    severity: Severity
    only_where: str = ""


def equal(column: str, other: str) -> Expectation:
    """`column` equals `other` where both are known."""
    return core.ExpectColumnPairValuesToBeEqual(
        column_A=column, column_B=other, ignore_row_if="either_value_is_missing"
    )


def at_least(column: str, bound: str) -> Expectation:
    """`column` is not below `bound` where both are known."""
    return core.ExpectColumnPairValuesAToBeGreaterThanB(
        column_A=column, column_B=bound, or_equal=True, ignore_row_if="either_value_is_missing"
    )


def compared_columns(expectation: Expectation) -> tuple[str, ...]:
    """The columns of a frame that `expectation` compares."""
    single = (getattr(expectation, argument, None) for argument in _COLUMN_ARGUMENTS)
    return (*(name for name in single if name is not None), *getattr(expectation, "column_list", ()))
