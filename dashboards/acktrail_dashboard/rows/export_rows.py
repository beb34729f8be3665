"""What was read of the state topic, and what pruning took before it was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.contract import PRUNED_BEFORE_FIRST_EXPORT
from acktrail_dashboard.rows.run_tables import rows
from acktrail_dashboard.summary_types import ExportRow, GapRow

__all__ = ["EXPORT_COLUMNS", "commit_count", "export_rows", "gap_rows"]

EXPORT_COLUMNS: Final = (
    "cluster_id",
    "run_id",
    "state_topic_id",
    "state_partition",
    "first_offset",
    "last_offset",
    "records_read",
    "records_decoded",
    "records_quarantined",
    "log_start_offset",
    "log_end_offset",
    "gap_first",
    "gap_last",
    "gap_reason",
    "exported_at",
)
"""Columns of ``export_ranges`` that a summary needs."""

_FOLDS: Final = (
    ("exported_at", "max"),
    ("first_offset", "min"),
    ("last_offset", "max"),
    ("records_read", "sum"),
    ("records_decoded", "sum"),
    ("records_quarantined", "sum"),
    ("log_start_offset", "last"),
    ("log_end_offset", "last"),
    ("exported_at", "count_distinct"),
)


def export_rows(ranges: pa.Table) -> tuple[ExportRow, ...]:
    """One row a state partition over all its commits, however many."""
    in_order = ranges.sort_by([("exported_at", "ascending")])
    folded = in_order.group_by("state_partition", use_threads=False).aggregate(list(_FOLDS))
    return tuple(_row(row) for row in rows(folded, order=("state_partition",)))


def commit_count(ranges: pa.Table) -> int:
    """Number of the exporter's commits: a commit has one instant, and a row for each state partition in it."""
    commits: int = ranges.group_by(["run_id", "exported_at"], use_threads=False).aggregate([]).num_rows
    return commits


def gap_rows(ranges: pa.Table) -> tuple[GapRow, ...]:
    """Every gap since the first export, by state partition and offset."""
    is_before = pc.fill_null(pc.equal(ranges["gap_reason"], PRUNED_BEFORE_FIRST_EXPORT), fill_value=False)
    gaps = ranges.filter(pc.and_not(pc.is_valid(ranges["gap_first"]), is_before))
    return tuple(
        GapRow(
            state_partition=commit["state_partition"],
            first_offset=commit["gap_first"],
            last_offset=commit["gap_last"],
            exported_at=commit["exported_at"],
        )
        for commit in rows(gaps, order=("state_partition", "gap_first"))
    )


def _row(folded: Mapping[str, Any]) -> ExportRow:
    return ExportRow(
        state_partition=folded["state_partition"],
        commits=folded["exported_at_count_distinct"],
        first_offset=folded["first_offset_min"],
        last_offset=folded["last_offset_max"],
        records_read=folded["records_read_sum"] or 0,
        records_decoded=folded["records_decoded_sum"] or 0,
        records_quarantined=folded["records_quarantined_sum"] or 0,
        log_start_offset=folded["log_start_offset_last"],
        log_end_offset=folded["log_end_offset_last"],
        exported_at=folded["exported_at_max"],
    )
