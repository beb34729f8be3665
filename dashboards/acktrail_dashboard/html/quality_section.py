"""Expectations: what did not pass in full, what passed folded up by suite."""

from __future__ import annotations

from itertools import groupby
from typing import Final

from acktrail_dashboard.html.html_tables import Column, badge, data_table, section, value
from acktrail_dashboard.html.markup import Child, Markup, code, element, joined
from acktrail_dashboard.summary_types import ExpectationRow, Summary
from acktrail_dashboard.wording import number, quality_line

__all__ = ["quality_section", "result_tone"]

_COLUMNS: Final = (
    Column("Result"),
    Column("Suite"),
    Column("Expectation"),
    Column("Severity"),
    Column("Unexpected", "number"),
    Column("Observed"),
)
_SHOWN: Final = 200


def quality_section(summary: Summary) -> Markup:
    if not summary.expectations:
        nothing = element("p", "None was evaluated in this run.", class_="nothing")
        return section("expectations", "Expectations", nothing)
    open_ = tuple(row for row in summary.expectations if row.result != "passed")
    passed = sorted((row for row in summary.expectations if row.result == "passed"), key=_suite)
    suites = (_suite_line(suite, tuple(own)) for suite, own in groupby(passed, _suite))
    return section(
        "expectations",
        "Expectations",
        _table("Expectations that did not pass", open_) if open_ else None,
        *suites,
        note=quality_line(summary.totals),
    )


def _suite(row: ExpectationRow) -> str:
    return row.suite


def _suite_line(suite: str, passed: tuple[ExpectationRow, ...]) -> Markup:
    head = element("summary", badge(f"{number(len(passed))} passed", "ok"), code(suite))
    return element("details", head, _table(f"Expectations of {suite} that passed", passed), class_="suite")


def _table(caption: str, found: tuple[ExpectationRow, ...]) -> Markup:
    body = (_cells(row) for row in found[:_SHOWN])
    return data_table(caption, _COLUMNS, body, left_off=max(0, len(found) - _SHOWN), nothing="")


def _cells(row: ExpectationRow) -> tuple[Child, ...]:
    of = joined((value(row.unexpected_count, ""), element("span", f" of {number(row.element_count)}", class_="quiet")))
    observed = row.error or row.observed_value or ""
    return badge(row.result, result_tone(row)), code(row.suite), code(row.expectation), row.severity, of, observed


def result_tone(row: ExpectationRow) -> str:
    """A failure weighs as much as its severity."""
    if row.result == "failed":
        return "warning" if row.severity in {"warning", "info"} else "critical"
    return "ok" if row.result == "passed" else "unknown"
