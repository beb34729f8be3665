"""What was exported, as rows: how far each state partition was read, and gaps with their reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.model import log_positions
from acktrail.view import wording

EXPORT_COLUMNS: Final = (
    *("cluster_id", "run_id", "state_topic_id", "state_partition", "first_offset", "last_offset", "records_read"),
    *("records_decoded", "records_quarantined", "log_start_offset", "log_end_offset", "gap_first", "gap_last"),
    *("gap_reason", "offset_shift", "exported_at", "records_version"),
)
"""Columns of ``export_ranges`` that are shown."""
_REASONS: Final = {
    log_positions.PRUNED: ("critical", "Kafka pruned them between two exports"),
    log_positions.PRUNED_BEFORE_FIRST_EXPORT: ("info", "Kafka pruned them before the first export"),
    log_positions.LOST_FROM_TABLES: (
        "critical",
        "they were exported, the tables lost them, and Kafka has them no more",
    ),
    log_positions.LOG_REPLACED: ("warning", "the log was replaced here; how many records lie between is not known"),
    log_positions.DROPPED_BY_RETENTION: ("info", "they were exported and are not kept"),
    log_positions.SKIPPED_BY_REQUEST: ("warning", "a person moved the position past them"),
}
"""Tone and meaning of the reasons of a gap."""
GAP_REASONS: Final = tuple(_REASONS)
_FOLDS: Final = {
    "commits": ("exported_at", "count_distinct"),
    "first_offset": ("first_offset", "min"),
    "last_offset": ("last_offset", "max"),
    "gap_last": ("gap_last", "max"),
    "records_read": ("records_read", "sum"),
    "records_decoded": ("records_decoded", "sum"),
    "records_quarantined": ("records_quarantined", "sum"),
    "log_start_offset": ("log_start_offset", "last"),
    "log_end_offset": ("log_end_offset", "last"),
    "offset_shift": ("offset_shift", "last"),
    "exported_at": ("exported_at", "max"),
}
"""Column and aggregation of what is known of a state partition over all its commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRow:
    """Everything exported of one state partition. `first_offset` None: nothing. `next_offset`: where reading continues,
    in offsets of the tables. Log offsets are of the last commit; `behind`: records of the log that were there then and
    are not in the tables. None: not known."""

    state_partition: int
    commits: int
    first_offset: int | None
    last_offset: int | None
    next_offset: int | None
    behind: int | None
    records_read: int
    records_decoded: int
    records_quarantined: int
    log_start_offset: int | None
    log_end_offset: int | None
    exported_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """Offsets of a state partition that no row has. `records` None: how many they are is not known."""

    state_partition: int
    first_offset: int
    last_offset: int
    records: int | None
    reason: str
    meaning: str
    tone: str
    exported_at: datetime | None


def export_rows(ranges: pa.Table) -> tuple[ExportRow, ...]:
    """One row a state partition, from ``EXPORT_COLUMNS`` of ``export_ranges``."""
    in_order = ranges.sort_by([("records_version", "ascending"), ("exported_at", "ascending")])
    folded = in_order.group_by("state_partition", use_threads=False).aggregate(list(_FOLDS.values()))
    rows = folded.sort_by("state_partition").to_pylist() if folded.num_rows else []
    return tuple(_export_row(row) for row in rows if row["state_partition"] is not None)


def _export_row(row: Mapping[str, Any]) -> ExportRow:
    values = {name: row[f"{column}_{fold}"] for name, (column, fold) in _FOLDS.items()}
    sums = {name: values[name] or 0 for name, (_, fold) in _FOLDS.items() if fold == "sum"}
    ends = [end for end in (values["last_offset"], values.pop("gap_last")) if end is not None]
    following, log_end, shift = max(ends) + 1 if ends else None, values["log_end_offset"], values.pop("offset_shift")
    # Kafka's own offsets lie below those of the tables once a log was replaced.
    behind = None if following is None or log_end is None else max(0, log_end + (shift or 0) - following)
    own = {**values, **sums, "next_offset": following, "behind": behind}
    return ExportRow(state_partition=row["state_partition"], **own)


def gap_rows(ranges: pa.Table) -> tuple[GapRow, ...]:
    """Every gap: those that lost something first, then by state partition and offset."""
    gaps = ranges.filter(pc.and_(pc.is_valid(ranges["gap_first"]), pc.is_valid(ranges["gap_last"])))
    return tuple(
        sorted(
            map(_gap, gaps.to_pylist()),
            key=lambda gap: (wording.TONES.index(gap.tone), gap.state_partition, gap.first_offset),
        )
    )


def _gap(row: Mapping[str, Any]) -> GapRow:
    reason = row["gap_reason"]
    tone, meaning = _REASONS.get(reason, ("unknown", "no imported file has them"))
    if reason not in {None, *_REASONS}:
        meaning = "a reason that this release does not know"
    first, last = row["gap_first"], row["gap_last"]
    return GapRow(
        state_partition=row["state_partition"],
        first_offset=first,
        last_offset=last,
        records=None if reason == log_positions.LOG_REPLACED else last - first + 1,
        reason=(reason or "in no file").replace("_", " "),
        meaning=meaning,
        tone=tone,
        exported_at=row["exported_at"],
    )
