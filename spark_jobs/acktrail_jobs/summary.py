"""What a job came to."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["HistorySummary", "ReconcileSummary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSummary:
    """What a run holds, as its tables tell: counts by verdict, and of its findings by rule and by severity.

    `moved`: share partitions whose description changed while the state topic was read.
    """

    run_id: str
    share_partitions: int
    moved: int
    verdicts: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    severities: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummary:
    """New records, on how many state partitions, the changes they made, and the commits that these came in."""

    records: int
    changes: int
    state_partitions: int
    steps: int
