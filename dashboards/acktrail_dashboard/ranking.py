"""Who is in trouble: share partitions and groups, the worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from acktrail.plain_tables import KnownSum
from acktrail_dashboard.status_wording import STATUSES, status_rank, status_tone
from acktrail_dashboard.summary_types import GroupTotals, PartitionRow, Summary
from acktrail_dashboard.wording import TONES, VERDICT_MEANINGS, tally, verdict_tone

Rank = tuple[int, int, int, int]
"""Sorts the worst first: the worse tone of status and verdict, the status, the tone of the verdict, the lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedGroup:
    """A group with some of its share partitions, the worst first, and what the others add up to; None: no others."""

    totals: GroupTotals
    shown: tuple[PartitionRow, ...]
    left_off: GroupTotals | None


def rank(row: PartitionRow) -> Rank:
    """Where a share partition stands among all."""
    by_verdict = TONES.index(verdict_tone(row.verdict))
    tone = by_verdict if row.status is None else min(by_verdict, TONES.index(status_tone(row.status)))
    return tone, status_rank(row.status), by_verdict, -(row.lag.value or 0)


def worst_first(rows: Iterable[PartitionRow]) -> tuple[PartitionRow, ...]:
    """Group by group: the group with the worst share partition first, in it the worst share partition."""
    ranked = sorted(rows, key=lambda row: (rank(row), row.group_id, row.topic or "", row.key))
    position = {group_id: at for at, group_id in enumerate(dict.fromkeys(row.group_id for row in ranked))}
    return tuple(sorted(ranked, key=lambda row: position[row.group_id]))


def totals_by_group(rows: Sequence[PartitionRow]) -> tuple[GroupTotals, ...]:
    """One row for each group of `rows`, in the order of `worst_first`."""
    return tuple(_added_up(group_id, tuple(own)) for group_id, own in groupby(rows, _group_id))


def ranked_groups(summary: Summary, most: int) -> tuple[RankedGroup, ...]:
    """Every group that has share partitions, and the `most` worst share partitions of all."""
    chosen = {row.key for row in most_urgent(summary, most)}
    found = []
    for totals, (_, own) in zip(summary.group_totals, groupby(summary.partitions, _group_id), strict=True):
        kept, others = _split(own, lambda row: row.key in chosen)
        left_off = _added_up(totals.group_id, others) if others else None
        found.append(RankedGroup(totals=totals, shown=kept, left_off=left_off))
    return tuple(found)


def most_urgent(summary: Summary, most: int) -> tuple[PartitionRow, ...]:
    """All share partitions, or the `most` that need attention first; in the summary's order."""
    chosen = {row.key for row in sorted(summary.partitions, key=rank)[:most]}
    return tuple(row for row in summary.partitions if row.key in chosen)


def _split(
    rows: Iterable[PartitionRow], keeps: Callable[[PartitionRow], bool]
) -> tuple[tuple[PartitionRow, ...], tuple[PartitionRow, ...]]:
    every = tuple(rows)
    return tuple(row for row in every if keeps(row)), tuple(row for row in every if not keeps(row))


def _group_id(row: PartitionRow) -> str:
    return row.group_id


def _added_up(group_id: str, rows: tuple[PartitionRow, ...]) -> GroupTotals:
    known = [row for row in rows if row.status is not None]
    worst = min(known, key=lambda row: (status_rank(row.status), rank(row)), default=None)
    alike = [row for row in known if worst is not None and row.status == worst.status]
    lag = KnownSum.of(row.lag.value for row in rows)
    archived = [row.archived.value for row in rows if row.archived.value is not None]
    return GroupTotals(
        group_id=group_id,
        status=worst.status if worst else None,
        status_since=min((row.status_since for row in alike if row.status_since is not None), default=None),
        status_reason=worst.status_reason if worst else "",
        share_partitions=len(rows),
        statuses=tally((row.status for row in known if row.status), STATUSES),
        verdicts=tally((row.verdict for row in rows), VERDICT_MEANINGS),
        lag_records=lag.known,
        lag_unknown=lag.unknown,
        archived_seen=sum(archived),
        archived_unknown=len(rows) - len(archived),
    )


def group_statuses(groups: Iterable[GroupTotals]) -> tuple[tuple[str, int], ...]:
    """How many groups have each status as their worst one."""
    counts = Counter(group.status for group in groups if group.status is not None)
    return tally(counts.elements(), STATUSES)
