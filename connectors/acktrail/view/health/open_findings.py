"""Findings as people read them: topics by name, the worst first, open ones before others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.compute as pc

from acktrail.tables.delta.store import Tables
from acktrail.tables.open_runs import OpenRuns

SEVERITIES: Final = ("critical", "error", "warning", "info")
"""Worst first."""
_COLUMNS: Final = (
    *("run_id", "rule", "severity", "subject", "detail", "group_id", "topic_id", "topic", "partition"),
    *("evidence_state_partition", "evidence_offset", "first_seen_at", "last_seen_at", "times_seen"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFinding:
    """One finding. `topic` is the id where no name is known; group, topic and partition are None where the subject is
    no share partition. `evidence`: state partition and offset of the state record that shows it; None: none does.
    `is_open`: the newest reconciliation saw it, or the newest audit of
    a branch, by whose rule it is."""

    severity: str
    rule: str
    group_id: str | None
    topic: str | None
    topic_id: str | None
    partition: int | None
    subject: str
    detail: str
    evidence: tuple[int, int | None] | None
    first_seen_at: dt.datetime | None
    last_seen_at: dt.datetime | None
    times_seen: int | None
    is_open: bool

    @property
    def urgency(self) -> tuple[Any, ...]:
        """Sort key, worst first, then the one seen first."""
        rank = SEVERITIES.index(self.severity) if self.severity in SEVERITIES else len(SEVERITIES)
        begun = 0.0 if self.first_seen_at is None else self.first_seen_at.timestamp()
        return not self.is_open, rank, begun, self.rule, self.subject


def open_findings(tables: Tables, runs: OpenRuns, *, closed_too: bool = False) -> tuple[SeenFinding, ...]:
    """The findings that the newest `runs` saw, worst first; behind them, where `closed_too`, those that only earlier
    ones saw. Where no run is known there are none. Raises ConfigurationError, RetryableError: a table cannot be
    read."""
    where = None if closed_too else pc.field("run_id").isin(list(runs.run_ids))
    rows = tables.read("findings", columns=_COLUMNS, where=where).to_pylist() if runs.run_ids else []
    names = _topic_names(tables) if any(row["topic"] is None and row["topic_id"] is not None for row in rows) else {}
    return tuple(sorted((_finding(row, runs, names) for row in rows), key=lambda finding: finding.urgency))


def _finding(row: Mapping[str, Any], runs: OpenRuns, names: Mapping[str, str]) -> SeenFinding:
    place = row["evidence_state_partition"]
    return SeenFinding(
        **{name: row[name] for name in ("rule", "group_id", "topic_id", "partition", "subject", "times_seen")},
        **{name: row[name] for name in ("first_seen_at", "last_seen_at")},
        severity=row["severity"] or "unknown",
        topic=row["topic"] or names.get(row["topic_id"], row["topic_id"]),
        detail=row["detail"] or "",
        evidence=None if place is None else (place, row["evidence_offset"]),
        is_open=bool(runs.is_open(row["rule"], row["run_id"])),
    )


def _topic_names(tables: Tables) -> dict[str, str]:
    rows = tables.read("topics", columns=["topic_id", "topic"], where=pc.field("topic").is_valid())
    return dict(zip(rows["topic_id"].to_pylist(), rows["topic"].to_pylist(), strict=True))
