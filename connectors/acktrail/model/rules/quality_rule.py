"""One rule of the catalogue, and the severities that a breach of it can have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class QualitySeverity(StrEnum):
    """What a breach means.

    Info: legal, and good to know. Warning: legal, or explained by things outside the tables, but a person should know.
    Error: something is wrong or lost and recorded as such; what is published is still true. Critical: what would be
    published is wrong, or acting on it would lose records, so the run stops.
    """

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRule:
    """One rule, for people and for everything that reports a breach of it.

    `id`: as stored in ``findings`` and ``quality_results``; `also`: ids of the same rule where another part of acktrail
    reports it. `title`: the rule in a few words. `meaning`: what a breach means. `why`: why it has this severity.
    `advice`: what to do. `sources`: KIP, Kafka class or Kafka issue that it follows from. `since`: the first Kafka
    release (or draft) that it applies to. `tables`: what it reads. `suites`: the suites of the gate that evaluate it;
    none for a rule that only findings or offline replays report.
    """

    id: str
    severity: QualitySeverity
    title: str
    meaning: str
    why: str
    advice: str
    sources: tuple[str, ...]
    tables: tuple[str, ...]
    since: str = "Kafka 4.0"
    suites: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.id, *self.also)

    @property
    def stops_gate(self) -> bool:
        """Whether a breach stops a run."""
        return self.severity is QualitySeverity.CRITICAL and bool(self.suites)

    @property
    def page(self) -> str:
        """Where the rule is described, relative to the folder of the documents."""
        return f"rules.md#{self.id}"
