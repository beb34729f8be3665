"""What was read of the state topic, and what pruning took before it was read."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.contract import PRUNED_BEFORE_FIRST_EXPORT
from acktrail_dashboard.rows.run_tables import TableRow, row_value, rows
from acktrail_dashboard.summary_types import ExportRow, GapRow

EXPORT_COLUMNS: Final = (
    "cluster_id", "run_id", "state_topic_id", "state_partition", "first_offset", "last_offset", "records_read",
    "records_decoded", "records_quarantined", "log_start_offset", "log_end_offset", "gap_first", "gap_last",
    "gap_reason", "exported_at",
)  # fmt: skip
"""Columns of ``export_ranges`` that a summary needs."""

_TOTALS: Final = {
    "commits": ("exported_at", "count_distinct"),
    "first_offset": ("first_offset", "min"),
    "last_offset": ("last_offset", "max"),
    "records_read": ("records_read", "sum"),
    "records_decoded": ("records_decoded", "sum"),
    "records_quarantined": ("records_quarantined", "sum"),
    "log_start_offset": ("log_start_offset", "last"),
    "log_end_offset": ("log_end_offset", "last"),
    "exported_at": ("exported_at", "max"),
}
"""Column and aggregation of each field of an `ExportRow`."""


def export_rows(ranges: pa.Table) -> tuple[ExportRow, ...]:
    """One row a state partition over all its commits."""
    in_order = ranges.sort_by([("exported_at", "ascending")])
    folded = in_order.group_by("state_partition", use_threads=False).aggregate(list(_TOTALS.values()))
    return tuple(row_value(ExportRow, _fields(row)) for row in rows(folded, order=("state_partition",)))


def _fields(row: TableRow) -> TableRow:
    values = {name: row[f"{column}_{fold}"] for name, (column, fold) in _TOTALS.items()}
    sums = {name: values[name] or 0 for name, (_, fold) in _TOTALS.items() if fold == "sum"}
    return {"state_partition": row["state_partition"], **values, **sums}


def commit_count(ranges: pa.Table) -> int:
    """Number of the exporter's commits: a commit has one instant, and a row for each state partition in it."""
    commits: int = ranges.group_by(["run_id", "exported_at"], use_threads=False).aggregate([]).num_rows
    return commits


def gap_rows(ranges: pa.Table) -> tuple[GapRow, ...]:
    """Every gap since the first export, by state partition and offset."""
    is_before = pc.fill_null(pc.equal(ranges["gap_reason"], PRUNED_BEFORE_FIRST_EXPORT), fill_value=False)
    gaps = ranges.filter(pc.and_not(pc.is_valid(ranges["gap_first"]), is_before))
    return tuple(
        row_value(GapRow, row, first_offset=row["gap_first"], last_offset=row["gap_last"])
        for row in rows(gaps, order=("state_partition", "gap_first"))
    )
