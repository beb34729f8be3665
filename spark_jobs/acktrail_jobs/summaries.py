"""What a job came to."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Difference", "HistorySummary", "ReconcileSummary", "VerifySummary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSummary:
    """What a run holds, as its tables tell: counts by verdict, and of its findings by rule and by severity.

    `moved`: share partitions whose description changed while the state topic was read. `went_on_from`: the run whose
    memory the replay went on from; None: it replayed everything, and `replayed_all` says why.
    """

    run_id: str
    share_partitions: int
    moved: int
    verdicts: dict[str, int] = field(default_factory=dict)
    findings: dict[str, int] = field(default_factory=dict)
    severities: dict[str, int] = field(default_factory=dict)
    went_on_from: str | None = field(default=None, compare=False)
    replayed_all: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySummary:
    """New records, on how many state partitions, the changes they made, and the commits that these came in."""

    records: int
    changes: int
    state_partitions: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that was kept and is not what the records say. `subject` is a coordinator key, or a state partition."""

    table: str
    state_partition: int
    subject: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySummary:
    """What was compared: share partitions that replay remembers, changes that the history tells and the records that
    made them. `differences` has the first one of each state partition in each table."""

    share_partitions: int
    records: int
    changes: int
    differences: tuple[Difference, ...] = ()
