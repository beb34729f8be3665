"""How much of each state partition was exported when an observation ended, and what of it cannot be relied on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.reconcile.exported_until import Extent, Extents, Gap
from acktrail.reconcile.observed_run import Observation, StateLog
from acktrail.tables.delta.store import Tables

__all__ = ["QUARANTINED", "QUARANTINE_COLUMNS", "Coverage", "Gap", "covered", "read_coverage", "with_quarantined"]

QUARANTINE_COLUMNS: Final = ("state_partition", "offset", "group_id", "decode_status")
_NOWHERE: Final[Mapping[int, int]] = MappingProxyType({})

QUARANTINED: Final = pc.field("decode_status") != "decoded"
"""Records that could not be read. Files without any are passed over unread, by their statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """One state partition at one observation.

    `end_offset`: the observation's replay stops before it; None when nothing was exported. `quarantined` records below
    it could not be read, the newest at `quarantined_at`; `unattributed_at` is the newest that names no share partition.
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
        """Why the export may lack records that were there when the observation began; None when it lacks none."""
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
    """Coverage by state partition: those of the state topic, and any that was ever exported."""
    coverages = covered(observation, Extents(tables, observation).by_state_partition)
    snapshot = tables.snapshot("state_records")
    if snapshot is None:
        return coverages
    return with_quarantined(coverages, snapshot.batches(columns=QUARANTINE_COLUMNS, where=QUARANTINED))


def covered(observation: Observation, extents: Mapping[int, Extent]) -> dict[int, Coverage]:
    """Coverage without what could not be read."""
    numbers = sorted(observation.state_logs.keys() | extents.keys())
    return {number: _covered(observation, number, extents.get(number, Extent())) for number in numbers}


def with_quarantined(
    coverages: Mapping[int, Coverage], batches: Iterable[pa.RecordBatch], positions: Mapping[int, int] = _NOWHERE
) -> dict[int, Coverage]:
    """`coverages` with the records in `batches` (``QUARANTINE_COLUMNS``, where ``QUARANTINED``) that could not be read
    counted, but for those before `positions` by state partition."""
    found = dict(coverages)
    for row in (row for batch in batches for row in batch.to_pylist()):
        coverage = found.get(row["state_partition"])
        begin = positions.get(row["state_partition"], 0)
        if coverage is not None and begin <= row["offset"] < (coverage.end_offset or 0):
            found[coverage.state_partition] = _one_more(coverage, row)
    return found


def _covered(observation: Observation, number: int, extent: Extent) -> Coverage:
    coverage = Coverage(state_partition=number, log=observation.state_logs.get(number, StateLog()), gaps=extent.gaps)
    if extent.last_offset is None:
        return coverage
    exported, after = extent.last_offset + 1, coverage.log.log_end_after
    return replace(coverage, end_offset=exported if after is None else min(exported, after))


def _one_more(coverage: Coverage, row: Mapping[str, Any]) -> Coverage:
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
