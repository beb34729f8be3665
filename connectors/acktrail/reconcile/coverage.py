"""How far each state partition was exported when an observation ended, and which of its records are in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.reconcile.exported_until import ExportedRange, ExportedRanges, Gap
from acktrail.reconcile.observed_run import Observation, StateLog
from acktrail.tables.delta.store import Tables

__all__ = ["QUARANTINED", "QUARANTINE_COLUMNS", "Coverage", "Gap", "count_quarantined", "coverage_of", "read_coverage"]

QUARANTINE_COLUMNS: Final = ("state_partition", "offset", "group_id", "decode_status")
_FROM_THE_START: Final[Mapping[int, int]] = MappingProxyType({})

QUARANTINED: Final = pc.field("decode_status") != "decoded"
"""Records that could not be decoded. Files without any are skipped by their statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """One state partition at one observation.

    `end_offset`: the observation's replay stops before it; None when nothing was exported. `quarantined`: how many
    records below it could not be decoded, the newest at `quarantined_at`. `unattributed_at`: the newest of them that
    names no share partition.
    """

    state_partition: int
    log: StateLog
    end_offset: int | None = None
    gaps: tuple[Gap, ...] = ()
    quarantined: int = 0
    quarantined_at: int | None = None
    unattributed_at: int | None = None

    @property
    def incomplete(self) -> str | None:
        """Why the export may lack records that existed when the observation began; None when it has them all."""
        start, end = self.log.log_start_before, self.log.log_end_before
        if end is None:
            return f"the log end of state partition {self.state_partition} was not seen before the export"
        if end == start or (self.end_offset or 0) >= end:
            return None
        reached = "has not begun" if self.end_offset is None else f"ends at offset {self.end_offset}"
        return (
            f"the export of state partition {self.state_partition} {reached}, "
            f"but its log ended at {end} when the observation began"
        )

    def gap_after(self, offset: int) -> Gap | None:
        """The newest gap that has an offset above `offset`."""
        return max((gap for gap in self.gaps if gap.last_offset > offset), default=None)


def read_coverage(tables: Tables, observation: Observation) -> dict[int, Coverage]:
    """Coverage of each state partition of the state topic, and of each that was ever exported."""
    coverages = coverage_of(observation, ExportedRanges(tables, observation).by_state_partition)
    snapshot = tables.snapshot("state_records")
    if snapshot is None:
        return coverages
    return count_quarantined(coverages, snapshot.batches(columns=QUARANTINE_COLUMNS, where=QUARANTINED))


def coverage_of(observation: Observation, ranges: Mapping[int, ExportedRange]) -> dict[int, Coverage]:
    """Coverage by state partition, quarantined records not counted."""
    numbers = sorted(observation.state_logs.keys() | ranges.keys())
    return {n: _partition_coverage(observation, n, ranges.get(n, ExportedRange())) for n in numbers}


def count_quarantined(
    coverages: Mapping[int, Coverage], batches: Iterable[pa.RecordBatch], positions: Mapping[int, int] = _FROM_THE_START
) -> dict[int, Coverage]:
    """`coverages` with quarantined records counted.

    Args:
        batches: ``QUARANTINE_COLUMNS`` where ``QUARANTINED``.
        positions: by state partition; records before them are counted already.
    """
    counted = dict(coverages)
    for row in (row for batch in batches for row in batch.to_pylist()):
        coverage = counted.get(row["state_partition"])
        begin = positions.get(row["state_partition"], 0)
        if coverage is not None and begin <= row["offset"] < (coverage.end_offset or 0):
            counted[coverage.state_partition] = _with_quarantined_row(coverage, row)
    return counted


def _partition_coverage(observation: Observation, number: int, exported: ExportedRange) -> Coverage:
    coverage = Coverage(state_partition=number, log=observation.state_logs.get(number, StateLog()), gaps=exported.gaps)
    if exported.last_offset is None:
        return coverage
    end, after = exported.last_offset + 1, coverage.log.log_end_after
    return replace(coverage, end_offset=end if after is None else min(end, after))


def _with_quarantined_row(coverage: Coverage, row: Mapping[str, Any]) -> Coverage:
    unattributed = coverage.unattributed_at
    if row["group_id"] is None and row["decode_status"] != "unknown_type":  # a broker skips a type it does not know
        unattributed = max(row["offset"], -1 if unattributed is None else unattributed)
    newest = -1 if coverage.quarantined_at is None else coverage.quarantined_at
    return replace(
        coverage,
        quarantined=coverage.quarantined + 1,
        quarantined_at=max(row["offset"], newest),
        unattributed_at=unattributed,
    )
