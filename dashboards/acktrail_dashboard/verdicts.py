"""What verdicts, severities and results mean to a reader: a tone each, in the order of attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from acktrail_dashboard.summary_types import ExpectationRow

TONES: Final = ("critical", "warning", "unknown", "info", "ok")
"""Most urgent first."""

SEVERITIES: Final = ("critical", "error", "warning", "info")

VERDICT_MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "match": "the replayed value lies between the cluster's two answers",
        "live_ahead": "the cluster has come further than the durable state: records of the state topic are missing",
        "durable_ahead": "the durable state is further than the cluster: it lost or never loaded what was written",
        "missing_state": "the cluster describes it, the state topic holds nothing of it",
        "orphan_state": "the state topic holds it, but its group or topic is gone or does not list it",
        "before_log_start": "the start offset is below the log: legal, put right at the next load; lag is overstated",
        "past_log_end": "the state reaches beyond the log's end: a reset beyond it, or a truncated or replaced log",
        "not_authorized": "its group or topic may not be described: a right (DESCRIBE) is missing",
        "unknown": "not enough is known to compare",
    }
)

_VERDICT_TONES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "match": "ok",
        "live_ahead": "critical",
        "durable_ahead": "critical",
        "missing_state": "critical",
        "orphan_state": "warning",
        "before_log_start": "warning",
        "past_log_end": "critical",
        "not_authorized": "warning",
    }
)

_SEVERITY_TONES: Final[Mapping[str, str]] = MappingProxyType(
    {"critical": "critical", "error": "critical", "warning": "warning", "info": "info"}
)


def canonical(word: str | None) -> str:
    """A verdict as a key: lower case, underscores; ``unknown`` where there is none."""
    return "_".join((word or "unknown").lower().replace("-", " ").replace("_", " ").split()) or "unknown"


def verdict_tone(verdict: str) -> str:
    """The tone of a verdict; one that this release does not know is never good news."""
    return _VERDICT_TONES.get(canonical(verdict), "unknown")


def severity_tone(severity: str) -> str:
    return _SEVERITY_TONES.get(canonical(severity), "unknown")


def result_tone(row: ExpectationRow) -> str:
    """The tone of an expectation: a failure weighs as much as its severity."""
    if row.result == "failed":
        return "warning" if row.severity in {"warning", "info"} else "critical"
    return "ok" if row.result == "passed" else "unknown"


def urgency(verdict: str) -> int:
    """Sort key: what needs a person comes first."""
    return TONES.index(verdict_tone(verdict))


def tally(words: Iterable[str], order: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """How often each word occurs, known words in `order`, then the others by name."""
    counts = Counter(words)
    known = tuple(order)
    rest = sorted(word for word in counts if word not in known)
    return tuple((word, counts[word]) for word in (*known, *rest) if counts[word])
