"""What a stopped gate says: which rule, where, what to do, and the page of the rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from acktrail.model.rules.catalogue import RULE_BY_ID
from acktrail.plain_tables import printable
from acktrail_expectations.results import QualityResult

MOST_RULES: Final = 5
"""Rules that are explained; more are counted."""


def stopped_lines(failures: Sequence[QualityResult]) -> list[str]:
    """A line for each of the first rules that stop a run. Names of groups and topics are made printable."""
    lines = [_line(result) for result in failures[:MOST_RULES]]
    more = len(failures) - MOST_RULES
    return [*lines, f"and {more} more"] if more > 0 else lines


def _line(result: QualityResult) -> str:
    rule = RULE_BY_ID.get(result.expectation)
    where = printable(result.error or result.observed_value or "")
    text = f"{result.expectation} ({result.suite})" + (f", first: {where}" if where else "")
    return text if rule is None else f"{text}. What to do: {rule.advice} See docs/{rule.page}"
