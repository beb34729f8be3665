"""One rule of a suite."""

from __future__ import annotations

from dataclasses import dataclass

from acktrail_expectations.engine import Expectation, core
from acktrail_expectations.severity import Severity

__all__ = ["Check", "at_least", "equal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """An expectation with the name people know the rule by, unique in its suite, and what its failure means."""

    rule: str
    expectation: Expectation
    severity: Severity


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
