"""What an export did, as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from acktrail.connect.worker import WorkerSummary

__all__ = ["ExportSummary", "Gap", "added", "summed"]

_GAPS_KEPT: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets of one state partition, both inclusive, that are in no row, and why (``connect.contract``)."""

    state_partition: int
    first_offset: int
    last_offset: int
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSummary:
    """What one run wrote. records_read = records_decoded + records_quarantined.

    `status` is ``complete``, ``stopped`` (told to end before it was finished) or ``state_topic_absent`` (no share
    consumer ever came to this cluster). `unanswered` says what brokers were asked and did not answer.
    """

    run_id: str
    cluster_id: str
    status: str
    records_read: int = 0
    records_decoded: int = 0
    records_quarantined: int = 0
    commits: int = 0
    gaps: tuple[Gap, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    """Rows committed, by table."""
    unanswered: tuple[str, ...] = ()


def added(total: WorkerSummary, part: WorkerSummary) -> WorkerSummary:
    """What two workers did, one after the other; `gaps` are at most the newest thousand."""
    return replace(
        part,
        records_read=total.records_read + part.records_read,
        records_quarantined=total.records_quarantined + part.records_quarantined,
        gaps=(total.gaps + part.gaps)[-_GAPS_KEPT:],
        commits=total.commits + part.commits,
        rows={name: total.rows.get(name, 0) + part.rows.get(name, 0) for name in {**total.rows, **part.rows}},
        positions={**total.positions, **part.positions},
    )


def summed(
    parts: Iterable[WorkerSummary], *, run_id: str, cluster_id: str, status: str, unanswered: Iterable[str] = ()
) -> ExportSummary:
    """The sum of what workers did."""
    done = list(parts)
    rows: dict[str, int] = {}
    for part in done:
        for name, count in part.rows.items():
            rows[name] = rows.get(name, 0) + count
    return ExportSummary(
        run_id=run_id,
        cluster_id=cluster_id,
        status=status,
        records_read=sum(part.records_read for part in done),
        records_decoded=sum(part.records_decoded for part in done),
        records_quarantined=sum(part.records_quarantined for part in done),
        commits=sum(part.commits for part in done),
        gaps=tuple(
            Gap(
                state_partition=span.partition,
                first_offset=span.gap_first,
                last_offset=span.gap_last,
                reason=span.gap_reason,
            )
            for part in done
            for span in part.gaps
            if span.gap_first is not None and span.gap_last is not None
        ),
        rows=rows,
        unanswered=tuple(dict.fromkeys(unanswered)),
    )
