"""What verdicts, severities and results mean to a reader: a tone each, in the order of attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from acktrail_dashboard.summary_types import ExpectationRow

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
