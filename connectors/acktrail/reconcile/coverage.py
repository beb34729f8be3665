"""How far each state partition was exported when an observation ended: ranges, gaps, and records in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.source_batches import DROPPED_BY_RETENTION, PRUNED_BEFORE_FIRST_EXPORT
from acktrail.format.columns.schemas.table_schemas import INSTANT
from acktrail.reconcile.observed_run import Observation, StateLog
from acktrail.replay.stored_offsets import OffsetRuns
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.export_ranges import read_ranges

_BEFORE_THE_FIRST: Final = pa.array([PRUNED_BEFORE_FIRST_EXPORT, DROPPED_BY_RETENTION])
"""Gaps before the first offset, where nothing is known anyway."""
QUARANTINE_COLUMNS: Final = ("state_partition", "offset", "group_id", "decode_status")
_FROM_THE_START: Final[Mapping[int, int]] = MappingProxyType({})
QUARANTINED: Final = pc.field("decode_status") != "decoded"
"""Records that could not be decoded. Files without any are skipped by their statistics."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Gap:
    """Offsets of a state partition that no commit of the exporter holds, both ends inclusive."""

    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """One state partition at one observation. `end_offset`: the observation's replay stops before it; None when nothing
    was exported. `quarantined`: how many records below it could not be decoded, the newest at `quarantined_offset`.
    `unattributed_offset`: the newest of them that names no share partition."""

    state_partition: int
    log: StateLog
    end_offset: int | None = None
    gaps: tuple[Gap, ...] = ()
    quarantined: int = 0
    quarantined_offset: int | None = None
    unattributed_offset: int | None = None

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

    @property
    def incomplete_without_state(self) -> str | None:
        """The same for a share partition that no record names."""
        if self.incomplete is not None or self.unattributed_offset is None:
            return self.incomplete
        return self.unattributed_text

    @property
    def unattributed_text(self) -> str:
        """What `unattributed_offset` means for every share partition."""
        return (
            f"the record at offset {self.unattributed_offset} of state partition {self.state_partition} "
            "names no share partition; it may be this one's"
        )


def read_coverage(tables: Tables, observation: Observation) -> dict[int, Coverage]:
    """Coverage of each state partition of the state topic, and of each that was ever exported."""
    coverages = coverage_of(tables, observation)
    snapshot = tables.snapshot("state_records")
    if snapshot is None:
        return coverages
    return count_quarantined(coverages, snapshot.batches(columns=QUARANTINE_COLUMNS, where=QUARANTINED))


def coverage_of(tables: Tables, observation: Observation) -> dict[int, Coverage]:
    """``read_coverage``, quarantined records not counted: by the commits of the observation's own export, and those
    before its second sample."""
    until = pa.scalar(observation.after_began_at, INSTANT)
    known = (pc.field("run_id") == observation.run_id) | (pc.field("exported_at") <= until)
    ranges = read_ranges(tables).filter(known)
    coverages = {}
    for number in sorted({*observation.state_logs, *ranges["state_partition"].to_pylist()}):
        log, own = observation.state_logs.get(number, StateLog()), ranges.filter(pc.field("state_partition") == number)
        exported = own.filter(pc.field("first_offset").is_valid())
        runs = OffsetRuns.of(exported["first_offset"].to_numpy(), exported["last_offset"].to_numpy() + 1)
        end = runs.last_end
        if end is not None and log.log_end_after is not None:
            end = min(end, log.log_end_after)
        coverages[number] = Coverage(state_partition=number, log=log, end_offset=end, gaps=_gaps(own, runs))
    return coverages


def _gaps(ranges: pa.Table, runs: OffsetRuns) -> tuple[Gap, ...]:
    """The gaps that the exporter noted, and any other offsets between two of its commits."""
    is_before = pc.field("gap_reason").isin(_BEFORE_THE_FIRST)
    noted = ranges.filter(pc.field("gap_first").is_valid() & ~is_before)
    pairs = {*zip(noted["gap_first"].to_pylist(), noted["gap_last"].to_pylist(), strict=True)}
    pairs |= {*zip(runs.end[:-1].tolist(), (runs.first[1:] - 1).tolist(), strict=True)}
    return tuple(Gap(first_offset=first, last_offset=last) for first, last in sorted(pairs))


def count_quarantined(
    coverages: Mapping[int, Coverage], batches: Iterable[pa.RecordBatch], positions: Mapping[int, int] = _FROM_THE_START
) -> dict[int, Coverage]:
    """`coverages` with quarantined records counted: `batches` of ``QUARANTINE_COLUMNS`` where ``QUARANTINED``. Those
    before `positions` (by state partition) are counted already."""
    found = dict(coverages)
    for row in (row for batch in batches for row in batch.to_pylist()):
        number, offset = row["state_partition"], row["offset"]
        known = found.get(number)
        if known is None or not positions.get(number, 0) <= offset < (known.end_offset or 0):
            continue
        # a broker skips a type it does not know
        is_skipped = row["group_id"] is not None or row["decode_status"] == "unknown_type"
        found[number] = replace(
            known,
            quarantined=known.quarantined + 1,
            quarantined_offset=_newest(known.quarantined_offset, offset),
            unattributed_offset=_newest(known.unattributed_offset, None if is_skipped else offset),
        )
    return found


def _newest(*offsets: int | None) -> int | None:
    return max((offset for offset in offsets if offset is not None), default=None)
