"""What the report does not know, and why: said, not hidden."""

from __future__ import annotations

from collections import Counter
from typing import Final

from acktrail_dashboard.html.html_tables import section
from acktrail_dashboard.html.markup import Markup, element
from acktrail_dashboard.summary_types import Figure, Summary
from acktrail_dashboard.wording import counted, number

__all__ = ["unknown_section", "unknowns"]

_FIRST_DELIVERIES: Final = (
    "First deliveries are not persisted: a record that a consumer holds right now, or that was delivered and neither "
    "acknowledged nor released yet, looks available here."
)
_LAZY_START: Final = (
    "Kafka writes the start offset lazily: the real one may be past it by records that are already acknowledged or "
    "archived."
)


def unknowns(summary: Summary) -> tuple[str, ...]:
    """One sentence a thing that is not known in this run, then what Kafka never says."""
    start = _by_reason("start offset", [row.start_offset for row in summary.partitions])
    lag = _by_reason("lag", [row.lag for row in summary.partitions])
    archived = _by_reason("number of archived records", [row.archived for row in summary.partitions])
    return (
        *start,
        *lag,
        *archived,
        *_completeness(summary),
        *_export(summary),
        *_quality(summary),
        *_findings(summary),
        _FIRST_DELIVERIES,
        _LAZY_START,
    )


def unknown_section(summary: Summary) -> Markup:
    lines = (element("li", text) for text in unknowns(summary))
    return section("not-known", "What is not known", element("ul", *lines, class_="plain"))


def _by_reason(what: str, figures: list[Figure]) -> tuple[str, ...]:
    reasons = Counter(figure.reason or "not reported" for figure in figures if figure.value is None)
    return tuple(
        f"The {what} of {counted(count, 'share partition')}: {reason}." for reason, count in sorted(reasons.items())
    )


def _completeness(summary: Summary) -> tuple[str, ...]:
    words = Counter(row.completeness for row in summary.partitions if row.completeness != "complete")
    return tuple(
        f"The whole state of {counted(count, 'share partition')}: {word.replace('_', ' ')}."
        for word, count in sorted(words.items())
    )


def _export(summary: Summary) -> tuple[str, ...]:
    totals, lines = summary.totals, []
    if totals.gaps:
        lost = counted(totals.gap_records, "record")
        why = "Kafka pruned them, or replaced their log, before the export read them"
        lines.append(f"What {lost} of the state topic said: {why}.")
    if totals.records_quarantined:
        kept = counted(totals.records_quarantined, "record")
        lines.append(f"What {kept} of the state topic say: they could not be decoded; their bytes are kept.")
    return tuple(lines)


def _quality(summary: Summary) -> tuple[str, ...]:
    count = summary.totals.expectations_not_evaluated
    return (f"Whether {number(count)} of the expectations hold: they were not evaluated.",) if count else ()


def _findings(summary: Summary) -> tuple[str, ...]:
    count = summary.findings_seen_later
    which = counted(count, "finding")
    return (f"Whether {which} that a later run saw again broke a rule in this run too.",) if count else ()
