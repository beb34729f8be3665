"""Numbers, instants, counts and verdicts in words and tones, the same on the terminal and in the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from acktrail.plain_tables import KnownSum, printable
from acktrail_dashboard.summary_types import ExpectationRow, Figure, FindingSubject, PartitionRow, RunTotals, Summary

TONES: Final = ("critical", "warning", "unknown", "info", "ok")
"""Most urgent first."""

_VERDICTS: Final = {
    "match": ("ok", "the replayed value lies between the cluster's two answers"),
    "live_ahead": (
        "critical",
        "the cluster has come further than the durable state: records of the state topic are missing",
    ),
    "durable_ahead": (
        "critical",
        "the durable state is further than the cluster: it lost or never loaded what was written",
    ),
    "missing_state": ("critical", "the cluster describes it, the state topic holds nothing of it"),
    "orphan_state": ("warning", "the state topic holds it, but its group or topic is gone or does not list it"),
    "before_log_start": (
        "warning",
        "the start offset is below the log: legal, put right at the next load; lag is overstated",
    ),
    "past_log_end": (
        "critical",
        "the state reaches beyond the log's end: a reset beyond it, or a truncated or replaced log",
    ),
    "not_authorized": ("warning", "its group or topic may not be described: a right (DESCRIBE) is missing"),
    "unknown": ("unknown", "not enough is known to compare"),
}
VERDICT_MEANINGS: Final = {verdict: meaning for verdict, (_, meaning) in _VERDICTS.items()}

_SEVERITY_TONES: Final = {"critical": "critical", "error": "critical", "warning": "warning", "info": "info"}
SEVERITIES: Final = tuple(_SEVERITY_TONES)


def canonical(word: str | None) -> str:
    """A verdict as a key: lower case, underscores; ``unknown`` where there is none."""
    return "_".join((word or "unknown").lower().replace("-", " ").replace("_", " ").split()) or "unknown"


def verdict_tone(verdict: str) -> str:
    """The tone of a verdict; one that this release does not know is never good news."""
    return _VERDICTS.get(canonical(verdict), ("unknown", ""))[0]


def severity_tone(severity: str) -> str:
    return _SEVERITY_TONES.get(canonical(severity), "unknown")


def result_tone(row: ExpectationRow) -> str:
    """The tone of an expectation: a failure weighs as much as its severity."""
    if row.result == "failed":
        return "warning" if row.severity == "warning" else "critical"
    return {"passed": "ok", "noted": "info"}.get(row.result, "unknown")


def tally(words: Iterable[str], order: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """How often each word occurs, known words in `order`, then the others by name."""
    counts = Counter(words)
    known = tuple(order)
    rest = sorted(word for word in counts if word not in known)
    return tuple((word, counts[word]) for word in (*known, *rest) if counts[word])


def number(value: int | None) -> str:
    """Digits in groups of three; None is ``unknown``."""
    return "unknown" if value is None else f"{value:,}".replace("-", "\N{MINUS SIGN}")


def known_sum(parts: tuple[int, int]) -> str:
    """The sum that is known, and of how many share partitions it is not, as one number."""
    return str(KnownSum(*parts))


def counted(count: int, noun: str) -> str:
    """A count with its noun: ``1 gap``, ``2 gaps``."""
    return f"{number(count)} {noun}" + ("" if count == 1 else "s")


def byte_text(count: int) -> str:
    """A number of bytes in the unit that gives it at most three digits before the point: ``1.5 MB``."""
    size, units = float(count), ("bytes", "kB", "MB", "GB", "TB")
    for unit in units:
        if size < 999.95 or unit == units[-1]:
            break
        size /= 1_000
    return counted(count, "byte") if unit == "bytes" else f"{size:,.1f} {unit}"


def instant(moment: datetime | None) -> str:
    """To the second, in UTC."""
    return "unknown" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def verdict_text(word: str) -> str:
    return printable(canonical(word).replace("_", " "))


def topic_text(topic: str | None, topic_id: str) -> str:
    """The topic's name, else ``topic id`` and its id."""
    return printable(topic) if topic is not None else f"topic id {printable(topic_id) or 'unknown'}"


def subject_text(row: FindingSubject) -> str:
    """Who a finding is about, by name: ``billing, orders 0``; else its subject."""
    topic = "" if row.topic_id is None else topic_text(row.topic, row.topic_id)
    place = topic if row.partition is None else f"{topic} {row.partition}"
    if row.group_id is None:
        return place or printable(row.subject)
    return ", ".join(part for part in (printable(row.group_id), place) if part)


def notes(row: PartitionRow) -> tuple[str, ...]:
    """Notes beside the numbers of a share partition: why the verdict, what is unknown and why."""
    figures = (("start offset", row.start_offset), ("lag", row.lag), ("archived", row.archived))
    unknown: dict[str, list[str]] = {}
    for name, figure in figures:
        if figure.value is None:
            unknown.setdefault(figure.reason or "not reported", []).append(name)
    gaps = tuple(f"{' and '.join(names)} unknown: {reason}" for reason, names in unknown.items())
    why = f" ({row.completeness_reason})" if row.completeness_reason else ""
    state = f"replayed state: {row.completeness.replace('_', ' ')}{why}"
    says_more = row.reason and (row.moved or verdict_tone(row.verdict) != "ok")
    known = (*([row.reason] if says_more else []), *([] if row.completeness == "complete" else [state]))
    return tuple(map(printable, (*known, *gaps)))


def address(state_partition: int | None, offset: int | None) -> str:
    """Where a record of the state topic lies."""
    if state_partition is None:
        return ""
    return f"state partition {state_partition}" + ("" if offset is None else f", offset {number(offset)}")


def trail(summary: Summary) -> tuple[str, str]:
    """Whether the exported trail agrees with the cluster, in one sentence, and its tone."""
    tones = [verdict_tone(row.verdict) for row in summary.partitions]
    if not tones:
        return "No share partition was seen in this run.", "unknown"
    urgent, unknown = tones.count("critical") + tones.count("warning"), tones.count("unknown")
    broken = _serious(row.severity for row in summary.findings)
    failed = _serious(row.severity for row in summary.expectations if row.result == "failed")
    parts = [f"{number(tones.count('ok'))} of {counted(len(tones), 'share partition')} match the cluster"]
    parts += [f"{number(urgent)} need{'s' if urgent == 1 else ''} attention"] if urgent else []
    parts += [f"{number(unknown)} cannot be judged"] if unknown else []
    parts += [counted(broken, "serious finding")] if broken else []
    parts += [counted(failed, "serious expectation") + " failed"] if failed else []
    sure = "unknown" if unknown else "ok"
    return "; ".join(parts) + ".", "critical" if "critical" in tones or broken or failed else (
        "warning" if urgent else sure
    )


def _serious(severities: Iterable[str]) -> int:
    return sum(severity_tone(severity) == "critical" for severity in severities)


def lag_line(totals: RunTotals) -> str:
    return _over(KnownSum(totals.lag_records, totals.lag_unknown), "records")


def archived_line(totals: RunTotals) -> str:
    return _over(KnownSum(totals.archived_seen, totals.archived_unknown), "records seen")


def verdicts_line(totals: RunTotals) -> str:
    return ", ".join(f"{number(count)} {verdict_text(verdict)}" for verdict, count in totals.verdicts) or "none"


def findings_line(totals: RunTotals) -> str:
    return ", ".join(f"{number(count)} {printable(severity)}" for severity, count in totals.findings) or "none"


def quality_line(totals: RunTotals) -> str:
    return f"{number(totals.expectations_passed)} passed, {failed_line(totals)}"


def failed_line(totals: RunTotals) -> str:
    counts = {"noted": totals.expectations_noted, "not evaluated": totals.expectations_not_evaluated}
    more = "".join(f", {number(count)} {word}" for word, count in counts.items() if count)
    return f"{number(totals.expectations_failed)} failed{more}"


def export_line(totals: RunTotals) -> str:
    lost = f" ({counted(totals.gap_records, 'record')} lost)" if totals.gaps else ""
    return (
        f"{counted(totals.records_exported, 'record')} read, {number(totals.records_quarantined)} quarantined, "
        f"{counted(totals.gaps, 'gap')}{lost}"
    )


def _over(records: KnownSum, noun: str) -> str:
    """What is known, and of how many share partitions nothing is."""
    if records.unknown and records.known:
        return f"{records} {noun}, unknown for {counted(records.unknown, 'share partition')}"
    return "unknown" if records.unknown else f"{records} {noun}"


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
