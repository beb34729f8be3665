"""Numbers, instants and counts in words, the same on the terminal and in the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from acktrail.plain_tables import printable
from acktrail_dashboard.summary_types import Figure, PartitionRow, RunTotals, Summary
from acktrail_dashboard.verdicts import canonical, severity_tone, verdict_tone


def number(value: int | None) -> str:
    """Digits in groups of three; None is ``unknown``."""
    return "unknown" if value is None else f"{value:,}".replace("-", "\N{MINUS SIGN}")


def counted(count: int, noun: str) -> str:
    """A count with its noun: ``1 gap``, ``2 gaps``."""
    return f"{number(count)} {noun}" + ("" if count == 1 else "s")


def instant(moment: datetime | None) -> str:
    """To the second, in UTC."""
    return "unknown" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def verdict_text(word: str) -> str:
    return printable(canonical(word).replace("_", " "))


def topic_text(topic: str | None, topic_id: str) -> str:
    """The topic's name, else ``topic id`` and its id."""
    return printable(topic) if topic is not None else f"topic id {printable(topic_id) or 'unknown'}"


def notes(row: PartitionRow) -> tuple[str, ...]:
    """Notes beside the numbers of a share partition: why the verdict, what is unknown and why."""
    figures = (("start offset", row.start_offset), ("lag", row.lag), ("archived", row.archived))
    unknown: dict[str, list[str]] = {}
    for name, figure in figures:
        if figure.value is None:
            unknown.setdefault(figure.reason or "not reported", []).append(name)
    gaps = tuple(f"{' and '.join(names)} unknown: {reason}" for reason, names in unknown.items())
    state = () if row.completeness == "complete" else (_completeness(row),)
    says_more = row.reason and (row.moved or verdict_tone(row.verdict) != "ok")
    return tuple(printable(text) for text in ((row.reason,) if says_more else ()) + state + gaps)


def address(state_partition: int | None, offset: int | None) -> str:
    """Where a record of the state topic lies."""
    if state_partition is None:
        return ""
    return f"state partition {state_partition}" + ("" if offset is None else f", offset {number(offset)}")


def headline(summary: Summary) -> tuple[str, str]:
    """The run in one sentence, and its tone."""
    tones = [verdict_tone(row.verdict) for row in summary.partitions]
    if not tones:
        return "No share partition was seen in this run.", "unknown"
    urgent, unknown = tones.count("critical") + tones.count("warning"), tones.count("unknown")
    broken, failed = _serious(row.severity for row in summary.findings), _serious(_failures(summary))
    parts = [f"{number(tones.count('ok'))} of {counted(len(tones), 'share partition')} match the cluster"]
    parts += [f"{number(urgent)} need{'s' if urgent == 1 else ''} attention"] if urgent else []
    parts += [f"{number(unknown)} cannot be judged"] if unknown else []
    parts += [counted(broken, "serious finding")] if broken else []
    parts += [counted(failed, "serious expectation") + " failed"] if failed else []
    sure = "unknown" if unknown else "ok"
    return "; ".join(parts) + ".", "critical" if "critical" in tones or broken or failed else (
        "warning" if urgent else sure
    )


def _failures(summary: Summary) -> Iterable[str]:
    return (row.severity for row in summary.expectations if row.result == "failed")


def _serious(severities: Iterable[str]) -> int:
    return sum(severity_tone(severity) == "critical" for severity in severities)


def lag_line(totals: RunTotals) -> str:
    return _over(totals.lag_unknown, totals, counted(totals.lag_records, "record"))


def archived_line(totals: RunTotals) -> str:
    return _over(totals.archived_unknown, totals, counted(totals.archived_seen, "record") + " seen")


def verdicts_line(totals: RunTotals) -> str:
    return _joined(f"{number(count)} {verdict_text(verdict)}" for verdict, count in totals.verdicts)


def findings_line(totals: RunTotals) -> str:
    return _joined(f"{number(count)} {printable(severity)}" for severity, count in totals.findings)


def quality_line(totals: RunTotals) -> str:
    return f"{number(totals.expectations_passed)} passed, {failed_line(totals)}"


def failed_line(totals: RunTotals) -> str:
    later = totals.expectations_not_evaluated
    return f"{number(totals.expectations_failed)} failed" + (f", {number(later)} not evaluated" if later else "")


def export_line(totals: RunTotals) -> str:
    lost = f" ({counted(totals.gap_records, 'record')} lost)" if totals.gaps else ""
    return (
        f"{counted(totals.records_exported, 'record')} read, {number(totals.records_quarantined)} quarantined, "
        f"{counted(totals.gaps, 'gap')}{lost}"
    )


def _completeness(row: PartitionRow) -> str:
    word = row.completeness.replace("_", " ")
    return f"replayed state: {word}" + (f" ({row.completeness_reason})" if row.completeness_reason else "")


def _over(unknown: int, totals: RunTotals, known: str) -> str:
    """What is known, and of how many share partitions nothing is; a sum over nothing known is not zero."""
    if unknown and unknown == totals.share_partitions:
        return "unknown"
    return known + (f", unknown for {counted(unknown, 'share partition')}" if unknown else "")


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(parts) or "none"


_FIRST_DELIVERIES: Final = (
    "First deliveries are not persisted: a record that a consumer holds right now, or that was delivered and neither "
    "acknowledged nor released yet, looks available here."
)
_LAZY_START: Final = (
    "Kafka writes the start offset lazily: the real one may be past it by records that are already acknowledged or "
    "archived."
)


def unknowns(summary: Summary) -> tuple[str, ...]:
    """One sentence for each thing that is not known in this run, then what Kafka never reports."""
    totals, rows = summary.totals, summary.partitions
    incomplete = Counter(row.completeness for row in rows if row.completeness != "complete")
    lines = [
        *_by_reason("start offset", (row.start_offset for row in rows)),
        *_by_reason("lag", (row.lag for row in rows)),
        *_by_reason("number of archived records", (row.archived for row in rows)),
        *(
            f"The whole state of {counted(count, 'share partition')}: {word.replace('_', ' ')}."
            for word, count in sorted(incomplete.items())
        ),
    ]
    if totals.gaps:
        lost = counted(totals.gap_records, "record")
        why = "Kafka pruned them, or replaced their log, before the export read them"
        lines.append(f"The content of {lost} of the state topic: {why}.")
    if totals.records_quarantined:
        kept = counted(totals.records_quarantined, "record")
        lines.append(f"The content of {kept} of the state topic: they could not be decoded; their bytes are kept.")
    if totals.expectations_not_evaluated:
        lines.append(
            f"Whether {number(totals.expectations_not_evaluated)} of the expectations hold: they were not evaluated."
        )
    if summary.findings_seen_later:
        which = counted(summary.findings_seen_later, "finding")
        lines.append(f"Whether {which} that a later run saw again broke a rule in this run too.")
    return (*lines, _FIRST_DELIVERIES, _LAZY_START)


def _by_reason(what: str, figures: Iterable[Figure]) -> list[str]:
    reasons = Counter(figure.reason or "not reported" for figure in figures if figure.value is None)
    return [f"The {what} of {counted(n, 'share partition')}: {reason}." for reason, n in sorted(reasons.items())]
