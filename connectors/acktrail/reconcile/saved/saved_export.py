"""The column `exported` of ``replay_memory``: what a reconciliation knew of the export, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from acktrail.reconcile.coverage import Coverage
from acktrail.reconcile.exported_until import ExportedRange, Gap, KnownRanges

_QUARANTINED: Final = {
    "quarantined": "quarantined",
    "quarantined_at": "quarantined_offset",
    "unattributed_at": "unattributed_offset",
}
"""Fields of a ``Coverage`` and their names in the table, where names that end in ``_at`` are times."""

_Row = Mapping[str, Any]


def exported_column(known: KnownRanges, coverage: Coverage) -> dict[str, Any]:
    """The value of the state partition of `coverage`."""
    exported = known.extents.get(coverage.state_partition, ExportedRange())
    return {
        "ranges_table": known.table_id,
        "ranges_version": known.version,
        "pending": sorted(known.pending),
        "until": known.until,
        "latest": known.latest,
        **asdict(exported),
        **{column: getattr(coverage, name) for name, column in _QUARANTINED.items()},
    }


def known_ranges(run_id: str, exported: Mapping[int, _Row | None]) -> KnownRanges | None:
    """What run `run_id` knew, out of the column's values by state partition; None where one is missing."""
    rows = {number: row for number, row in exported.items() if row is not None}
    if not rows or len(rows) < len(exported):
        return None
    first = next(iter(rows.values()))
    return KnownRanges(
        table_id=first["ranges_table"],
        version=first["ranges_version"],
        pending=frozenset(first["pending"] or ()),
        run_id=run_id,
        until=first["until"],
        latest=first["latest"],
        extents={number: _exported_range(row) for number, row in rows.items() if _is_exported(row)},
    )


def quarantined_of(row: _Row | None) -> dict[str, Any]:
    """The fields of a ``Coverage`` about records that could not be decoded, out of one value of the column."""
    return {} if row is None else {name: row[column] for name, column in _QUARANTINED.items()}


def _is_exported(row: _Row) -> bool:
    return row["first_offset"] is not None or bool(row["gaps"])


def _exported_range(row: _Row) -> ExportedRange:
    gaps = tuple(Gap(**gap) for gap in row["gaps"] or ())
    return ExportedRange(**{name: row[name] for name in ("first_offset", "last_offset", "offsets", "lost")}, gaps=gaps)
