"""Statuses of share partitions in words and tones, and lengths of time; the same in every report and page."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from acktrail.model.queue_status import STATUS_TABLE, QueueStatus, Urgency
from acktrail_dashboard.wording import counted, verdict_text

_TONES: Final = {
    Urgency.ACT: "critical",
    Urgency.LOOK: "warning",
    Urgency.NOTHING: "ok",
}
_OWN_TONES: Final = {
    QueueStatus.STATE_UNKNOWN: "unknown",
    QueueStatus.REWOUND: "info",
    QueueStatus.NEW: "info",
    QueueStatus.IDLE: "info",
}
STATUSES: Final = tuple(status.value for status in STATUS_TABLE)
"""Worst first."""


def status_tone(status: str | None) -> str:
    """The tone of a status; one that this release does not know is never good news."""
    if status not in STATUSES:
        return "unknown"
    known = QueueStatus(status)
    return _OWN_TONES.get(known, _TONES[STATUS_TABLE[known].urgency])


def status_text(status: str | None) -> str:
    """``release loop``."""
    return verdict_text(status or "status unknown")


def status_rank(status: str | None) -> int:
    """Sort key: the worst first, one that this release does not know before those that need nothing."""
    return STATUSES.index(status if status in STATUSES else QueueStatus.STATE_UNKNOWN.value)


def critical_first(headline: tuple[str, str], *, stopping: int, critical_findings: int) -> tuple[str, str]:
    """A headline about statuses and its tone; before it stand rules that stopped the run, and critical findings:
    numbers that contradict each other are no good news, also where all groups look well."""
    worse = [f"The checks stopped this run: {counted(stopping, 'critical rule')} broken"] if stopping else []
    worse += [counted(critical_findings, "critical finding")] if critical_findings else []
    if not worse:
        return headline
    sentence, _ = headline
    return f"{'. '.join(worse)}. By status alone: {sentence[0].lower()}{sentence[1:]}", "critical"


def is_trouble(status: str | None) -> bool:
    """Whether a person should act or look."""
    return status not in STATUSES or STATUS_TABLE[QueueStatus(status)].urgency is not Urgency.NOTHING


def span_text(span: timedelta) -> str:
    """A length of time by its two largest units: ``2 h 5 min``, ``3 days 4 h``."""
    seconds = max(0, int(span.total_seconds()))
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return counted(days, "day") + (f" {hours} h" if hours else "")
    if hours:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    return f"{minutes} min" if minutes else f"{seconds} s"


def ago(moment: datetime | None, now: datetime) -> str:
    """How long before `now` a moment was."""
    return "at an unknown time" if moment is None else f"{span_text(now - moment)} ago"
