"""Expansions of topics with what the audit proves of groups, one line each, the worst first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model.expansion.expansion_texts import ORDERING_VERDICTS, ordering_rank

LIST_COLUMNS: Final = (
    "event_id", "topic_id", "topic", "sequence", "old_count", "new_count", "last_seen_old_at", "first_seen_new_at",
    "settles_at", "status", "is_single", "key_mapping",
)  # fmt: skip
"""The columns of ``PARTITION_EXPANSIONS`` of a line."""
FENCE_WIDTHS: Final = ("event_id", "fence_low", "fence_high")
"""The columns of ``EXPANSION_FENCES`` that a line sums up."""
VERDICT_COLUMNS: Final = ("event_id", "group_id", "verdict")
"""The columns of ``ORDERING_AUDITS`` that a line sums up."""
START_COUNTS: Final = ("event_id", "skipped_records")
"""The columns of ``START_AUDITS`` that a line sums up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpansionLine:
    """One expansion. `verdicts`: destinations by verdict, worst first; `groups`: groups by their worst verdict.
    `widest`: records in the widest fence, None where the high end of none is known. `skipped`: records that groups
    skipped, without those of `unknown_starts` beginnings of a group with a partition."""

    row: Mapping[str, Any]
    verdicts: tuple[tuple[str, int], ...]
    groups: tuple[tuple[str, int], ...]
    widest: int | None
    unknown_fences: int
    skipped: int | None
    unknown_starts: int

    @property
    def worst(self) -> str:
        """Empty where nothing was audited."""
        return self.verdicts[0][0] if self.verdicts else ""

    @property
    def urgency(self) -> tuple[int, bool, float]:
        """Sort key: worst verdict, skipped records, newest first."""
        seen: datetime | None = self.row["first_seen_new_at"]
        rank = ordering_rank(self.worst) if self.worst else len(ORDERING_VERDICTS)
        return rank, not self.skipped, -(seen.timestamp() if seen else 0.0)


def expansion_lines(
    expansions: pa.Table, fences: pa.Table, audits: pa.Table, starts: pa.Table
) -> tuple[ExpansionLine, ...]:
    """All expansions, the worst first, from rows of the tables of the audit. Cost: each table is read once; only what
    is counted becomes Python's."""
    by_group = _verdicts_by_group(audits)
    widths, unknown = _fences(fences)
    skips, unknown_starts = _starts(starts)
    lines = [
        ExpansionLine(
            row=row,
            verdicts=_in_order(by_group[row["event_id"]].values()),
            groups=_in_order(Counter([min(own, key=ordering_rank)]) for own in by_group[row["event_id"]].values()),
            widest=widths.get(row["event_id"]),
            unknown_fences=unknown.get(row["event_id"], 0),
            skipped=skips.get(row["event_id"]),
            unknown_starts=unknown_starts.get(row["event_id"], 0),
        )
        for row in expansions.to_pylist()
    ]
    return tuple(sorted(lines, key=lambda line: line.urgency))


def _verdicts_by_group(audits: pa.Table) -> dict[str, dict[str, Counter[str]]]:
    """Destinations by verdict, of each group in each expansion."""
    rows = audits.select(list(VERDICT_COLUMNS)).group_by(list(VERDICT_COLUMNS)).aggregate([([], "count_all")])
    found: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in rows.to_pylist():
        found[row["event_id"]][row["group_id"]][row["verdict"] or "none given"] += row["count_all"]
    return found


def _in_order(counts: Iterable[Mapping[str, int]]) -> tuple[tuple[str, int], ...]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return tuple(sorted(total.items(), key=lambda pair: (ordering_rank(pair[0]), pair[0])))


def _fences(fences: pa.Table) -> tuple[dict[str, int], dict[str, int]]:
    """The widest fence of each expansion, and how many are not known."""
    width = pc.subtract(fences["fence_high"], fences["fence_low"])
    rows = fences.select(["event_id"]).append_column("width", width)
    rows = rows.append_column("unknown", pc.cast(pc.is_null(fences["fence_low"]), pa.int64()))
    found = rows.group_by("event_id").aggregate([("width", "max"), ("unknown", "sum")]).to_pylist()
    widths = {row["event_id"]: row["width_max"] for row in found if row["width_max"] is not None}
    return widths, {row["event_id"]: row["unknown_sum"] or 0 for row in found}


def _starts(starts: pa.Table) -> tuple[dict[str, int | None], dict[str, int]]:
    """Skipped records of each expansion, as far as they are known, and for how many beginnings they are not."""
    rows = starts.select(["event_id", "skipped_records"])
    rows = rows.append_column("unknown", pc.cast(pc.is_null(starts["skipped_records"]), pa.int64()))
    found = rows.group_by("event_id").aggregate([("skipped_records", "sum"), ("unknown", "sum")]).to_pylist()
    skips = {row["event_id"]: row["skipped_records_sum"] for row in found}
    return skips, {row["event_id"]: row["unknown_sum"] or 0 for row in found}
