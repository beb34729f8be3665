"""Whether a plan's rows are as many as the plan has share partitions.

The other rules of a reset look at the rows that are there: on no row they have nothing to compare.
"""

from __future__ import annotations

from typing import Final

from acktrail_expectations.results import QualityResult
from acktrail_expectations.severity import Severity

__all__ = ["ROW_COUNT", "counted"]

ROW_COUNT: Final = "row_count_as_planned"
"""The rule's name, in the suites ``reset_plan`` and ``reset_result``."""


def counted(suite: str, *, rows: int, planned: int | None, what: str) -> QualityResult:
    """The result of the rule: it fails when the numbers differ, for no share partition at all, and when `planned` is
    not known.

    Args:
        rows: how many there are.
        planned: how many the plan has.
        what: names `rows` and `planned` for people; both are put in.
    """
    return QualityResult(
        suite=suite,
        expectation=ROW_COUNT,
        severity=Severity.CRITICAL,
        success=rows == planned and rows > 0,
        element_count=rows,
        unexpected_count=abs(rows - (planned or 0)),
        observed_value=what.format(rows=rows, planned="unknown" if planned is None else planned),
    )
