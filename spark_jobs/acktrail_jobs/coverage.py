"""How much of each state partition was exported when an observation ended, and what of it cannot be relied on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.tables.store import Tables
from acktrail_jobs.observation import Observation, StateLog

__all__ = ["Coverage", "Gap", "read_coverage"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Gap:
    """Offsets of a state partition that no commit of the exporter holds, both ends inclusive."""

    first_offset: int
    last_offset: int


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
    extents = _extents(tables, observation)
    found = {
        partition: _covered(tables, observation, partition, extents.get(partition, {}))
        for partition in sorted(observation.state_logs.keys() | extents.keys())
    }
    return _with_quarantined(tables, found)


_RANGE_COLUMNS: Final = ("state_partition", "first_offset", "last_offset", "gap_first", "gap_last")
_SUMS: Final = (("first_offset", "min"), ("last_offset", "max"), ("offsets", "sum"), ("lost", "sum"))


def _known_then(observation: Observation) -> pc.Expression:
    """Commits of the observation's own export, and those made before its second sample."""
    return (pc.field("run_id") == observation.run_id) | (
        pc.field("exported_at") <= pa.scalar(observation.after_began_at, pa.timestamp("us", tz="UTC"))
    )


def _extents(tables: Tables, observation: Observation) -> dict[int, dict[str, Any]]:
    """First and last exported offset of each state partition with the number of offsets exported and lost."""
    snapshot = tables.snapshot("export_ranges")
    if snapshot is None:
        return {}
    total: pa.Table | None = None
    for batch in snapshot.batches(columns=_RANGE_COLUMNS, where=_known_then(observation)):
        pieces = [_summed(_with_lengths(pa.Table.from_batches([batch])))]
        total = _summed(pa.concat_tables(pieces if total is None else [total, *pieces]))
    return {} if total is None else {row["state_partition"]: row for row in total.to_pylist()}


def _with_lengths(ranges: pa.Table) -> pa.Table:
    columns = [ranges[name] for name in ("state_partition", "first_offset", "last_offset")]
    lengths = [_length(ranges, "first_offset", "last_offset"), _length(ranges, "gap_first", "gap_last")]
    return pa.table([*columns, *lengths], ["state_partition", "first_offset", "last_offset", "offsets", "lost"])


def _length(ranges: pa.Table, first: str, last: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.add(pc.subtract(ranges[last], ranges[first]), 1), 0)


def _summed(pieces: pa.Table) -> pa.Table:
    sums = pieces.group_by("state_partition", use_threads=False).aggregate(list(_SUMS))
    return sums.select(["state_partition", *(f"{name}_{how}" for name, how in _SUMS)]).rename_columns(
        ["state_partition", *(name for name, _ in _SUMS)]
    )


def _covered(tables: Tables, observation: Observation, partition: int, extent: Mapping[str, Any]) -> Coverage:
    coverage = Coverage(state_partition=partition, log=observation.state_logs.get(partition, StateLog()))
    if extent.get("last_offset") is None:
        return replace(coverage, gaps=_gaps(tables, observation, partition) if extent else ())
    exported = extent["last_offset"] + 1
    after = coverage.log.log_end_after
    is_whole = extent["lost"] == 0 and extent["offsets"] == exported - extent["first_offset"]
    return replace(
        coverage,
        end_offset=exported if after is None else min(exported, after),
        gaps=() if is_whole else _gaps(tables, observation, partition),
    )


def _gaps(tables: Tables, observation: Observation, partition: int) -> tuple[Gap, ...]:
    """The gaps that the exporter noted, and any other offsets between two of its commits."""
    where = _known_then(observation) & (pc.field("state_partition") == partition)
    ranges = tables.read("export_ranges", columns=_RANGE_COLUMNS, where=where).to_pylist()
    noted = [Gap(first_offset=r["gap_first"], last_offset=r["gap_last"]) for r in ranges if r["gap_first"] is not None]
    exported = sorted((r["first_offset"], r["last_offset"]) for r in ranges if r["first_offset"] is not None)
    return tuple(sorted({*noted, *_between(exported)}))


def _between(exported: Sequence[tuple[int, int]]) -> Iterator[Gap]:
    reached: int | None = None
    for first, last in exported:
        if reached is not None and first > reached + 1:
            yield Gap(first_offset=reached + 1, last_offset=first - 1)
        reached = last if reached is None else max(reached, last)


def _with_quarantined(tables: Tables, found: Mapping[int, Coverage]) -> dict[int, Coverage]:
    coverages = dict(found)
    for row in _quarantined(tables):
        coverage = coverages.get(row["state_partition"])
        if coverage is not None and row["offset"] < (coverage.end_offset or 0):
            coverages[coverage.state_partition] = _one_more(coverage, row)
    return coverages


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


def _quarantined(tables: Tables) -> Iterable[dict[str, Any]]:
    """Address and status of every record that could not be read. Files without any are passed over unread."""
    snapshot = tables.snapshot("state_records")
    if snapshot is None:
        return
    columns = ("state_partition", "offset", "group_id", "decode_status")
    for batch in snapshot.batches(columns=columns, where=pc.field("decode_status") != "decoded"):
        yield from batch.to_pylist()
