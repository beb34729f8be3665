"""How far each state partition was exported when an observation ended: ranges, gaps, and records in doubt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.connect.source_batches import DROPPED_BY_RETENTION, PRUNED_BEFORE_FIRST_EXPORT
from acktrail.reconcile.observed_run import Observation, StateLog
from acktrail.tables.delta.store import Tables

RANGES: Final = "export_ranges"
_SUMMED: Final = ("state_partition", "first_offset", "last_offset", "gap_first", "gap_last")
_COLUMNS: Final = (*_SUMMED, "gap_reason")
_SUMS: Final = (("first_offset", "min"), ("last_offset", "max"), ("offsets", "sum"), ("lost", "sum"))
_INSTANT: Final = pa.timestamp("us", tz="UTC")
_BEFORE_THE_FIRST: Final = pa.array([PRUNED_BEFORE_FIRST_EXPORT, DROPPED_BY_RETENTION])
_NO_SUMS: Final = pa.schema(
    [
        ("state_partition", pa.int32()),
        *((name, pa.int64()) for name in ("first_offset", "last_offset", "offsets", "lost")),
    ]
).empty_table()
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
class ExportedRange:
    """One state partition: first and last offset exported (None: nothing), how many offsets commits exported, how many
    they noted as lost, and the gaps: noted ones, and any other offsets between two commits."""

    first_offset: int | None = None
    last_offset: int | None = None
    offsets: int = 0
    lost: int = 0
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRanges:
    """What an earlier observation knew of ``export_ranges``: every commit of its run, and every one up to `until`.
    `latest`: when the newest of them was made. All rows that the table (`ranges_table`: its id) had at `ranges_version`
    are known, except some in the files `pending`."""

    ranges_table: str
    ranges_version: int
    pending: frozenset[str]
    run_id: str
    until: datetime
    latest: datetime
    extents: Mapping[int, ExportedRange] = field(default_factory=dict)


class ExportedRanges:
    """The ranges that an observation knows: from the commits of its own export, and those before its second sample.
    Continues from `known` if it covers this observation and no earlier rows were added since: then only files with
    other rows are read. Else all files are read."""

    def __init__(self, tables: Tables, observation: Observation, known: KnownRanges | None = None) -> None:
        self._tables, self._observation = tables, observation
        self._own = _known_to(observation.run_id, observation.after_began_at)
        self._snapshot = tables.snapshot(RANGES)
        statistics = {} if self._snapshot is None else self._snapshot.statistics(["max.exported_at"])
        self._newest = {path: each["max.exported_at"] for path, each in statistics.items()}
        self._paths = frozenset(self._newest)
        self._known = known if known is not None and self._is_part(known) else None
        self.by_state_partition: dict[int, ExportedRange] = self._read()

    def to_save(self) -> KnownRanges | None:
        """What a later observation continues from; None where there are no ranges."""
        if self._snapshot is None:
            return None
        until, pending = self._observation.after_began_at, set[str]()
        latest = until if self._known is None else max(until, self._known.latest)
        newer = (path for path in self._paths if self._newest[path] is None or self._newest[path] > until)
        for path in sorted(newer):
            rows = self._tables.read_files(RANGES, [path], columns=["run_id", "exported_at"])
            own = rows.filter(self._own)
            latest = max(latest, pc.max(own["exported_at"]).as_py() or latest)
            if own.num_rows < rows.num_rows:
                pending.add(path)
        return KnownRanges(
            ranges_table=self._snapshot.table_id,
            ranges_version=self._snapshot.version,
            pending=frozenset(pending),
            run_id=self._observation.run_id,
            until=until,
            latest=latest,
            extents=self.by_state_partition,
        )

    def _is_part(self, known: KnownRanges) -> bool:
        """Whether `known` holds for this observation. Narrows the files down to those that may have other rows."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.table_id != known.ranges_table:
            return False
        before = self._tables.paths_at(RANGES, known.ranges_version)
        if before is None or before - self._paths or known.latest > self._observation.after_began_at:
            return False
        added, earlier = self._paths - before, _known_to(known.run_id, known.until)
        if added and self._tables.read_files(RANGES, sorted(added), columns=["run_id"], where=earlier).num_rows:
            return False
        self._paths = added | (known.pending & self._paths)
        return True

    def _read(self) -> dict[int, ExportedRange]:
        known = {} if self._known is None else dict(self._known.extents)
        total = reduce(_added, self._new_rows(self._own), _NO_SUMS)
        for row in total.to_pylist():
            number = row.pop("state_partition")
            known[number] = self._joined(number, known.get(number), ExportedRange(**row))
        return known

    def _new_rows(self, where: pc.Expression) -> Iterator[pa.Table]:
        """The rows that are not known from earlier, of those that satisfy `where`, piece by piece."""
        batches: Iterable[pa.RecordBatch] = ()
        if self._known is not None:
            is_other = ~_known_to(self._known.run_id, self._known.until)
            paths = sorted(self._paths)
            batches = self._tables.file_batches(RANGES, paths, columns=_COLUMNS, where=where & is_other)
        elif self._snapshot is not None:
            batches = self._snapshot.batches(columns=_COLUMNS, where=where)
        for batch in batches:
            yield _since_first_export(pa.Table.from_batches([batch]))

    def _joined(self, number: int, known: ExportedRange | None, new: ExportedRange) -> ExportedRange:
        """`known` and the commits summed up in `new`."""
        before = known or ExportedRange()
        firsts, lasts = (before.first_offset, new.first_offset), (before.last_offset, new.last_offset)
        joined = ExportedRange(
            first_offset=min((offset for offset in firsts if offset is not None), default=None),
            last_offset=max((offset for offset in lasts if offset is not None), default=None),
            offsets=before.offsets + new.offsets,
            lost=before.lost + new.lost,
        )
        return joined if _is_whole(joined) else replace(joined, gaps=self._gaps(number, known, new))

    def _gaps(self, number: int, known: ExportedRange | None, new: ExportedRange) -> tuple[Gap, ...]:
        """From the new rows where they come after the known ones; else from all rows."""
        where = self._own & (pc.field("state_partition") == number)
        if known is None or (new.first_offset or 0) <= (known.last_offset or 0):
            assert self._snapshot is not None
            rows = _since_first_export(self._snapshot.read(columns=_COLUMNS, where=where))
            return tuple(sorted(_gaps_in(rows.to_pylist(), None)))
        newer = (row for rows in self._new_rows(where) for row in rows.to_pylist())
        return tuple(sorted({*known.gaps, *_gaps_in(newer, known.last_offset)}))


def _since_first_export(ranges: pa.Table) -> pa.Table:
    """The columns ``_SUMMED``, without what Kafka pruned before the first export, and what the tables do not keep any
    more: nothing is known before the first offset anyway."""
    is_before = pc.is_in(ranges["gap_reason"], value_set=_BEFORE_THE_FIRST)
    nothing = pa.scalar(None, pa.int64())
    columns = {name: ranges[name] for name in _SUMMED}
    columns |= {name: pc.if_else(is_before, nothing, ranges[name]) for name in ("gap_first", "gap_last")}
    return pa.table(columns)


def _known_to(run_id: str, until: datetime) -> pc.Expression:
    return (pc.field("run_id") == run_id) | (pc.field("exported_at") <= pa.scalar(until, _INSTANT))


def _is_whole(extent: ExportedRange) -> bool:
    """Whether no offset between the first and the last is missing, and none before."""
    first, last = extent.first_offset, extent.last_offset
    return first is not None and last is not None and not extent.lost and extent.offsets == last + 1 - first


def _gaps_in(rows: Iterable[Mapping[str, Any]], reached: int | None) -> set[Gap]:
    """The gaps that the exporter noted, and any other offsets between two of its commits. `reached`: where the commit
    before these ended."""
    found, exported = set[Gap](), []
    for row in rows:
        if row["gap_first"] is not None:
            found.add(Gap(first_offset=row["gap_first"], last_offset=row["gap_last"]))
        if row["first_offset"] is not None:
            exported.append((row["first_offset"], row["last_offset"]))
    for first, last in sorted(exported):
        if reached is not None and first > reached + 1:
            found.add(Gap(first_offset=reached + 1, last_offset=first - 1))
        reached = last if reached is None else max(reached, last)
    return found


def _added(total: pa.Table, ranges: pa.Table) -> pa.Table:
    """`total`, by state partition, and the rows of `ranges`."""
    columns = [ranges[name] for name in ("state_partition", "first_offset", "last_offset")]
    for first, last in (("first_offset", "last_offset"), ("gap_first", "gap_last")):
        columns.append(pc.fill_null(pc.add(pc.subtract(ranges[last], ranges[first]), 1), 0))
    pieces = pa.concat_tables([total, pa.table(columns, schema=_NO_SUMS.schema)])
    sums = pieces.group_by("state_partition", use_threads=False).aggregate(list(_SUMS))
    names = ["state_partition", *(f"{name}_{how}" for name, how in _SUMS)]
    return sums.select(names).rename_columns(_NO_SUMS.column_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """One state partition at one observation. `end_offset`: the observation's replay stops before it; None when nothing
    was exported. `quarantined`: how many records below it could not be decoded, the newest at `quarantined_at`.
    `unattributed_at`: the newest of them that names no share partition."""

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

    @property
    def incomplete_without_state(self) -> str | None:
        """The same for a share partition that no record names."""
        if self.incomplete is not None or self.unattributed_at is None:
            return self.incomplete
        return self.unattributed_text

    @property
    def unattributed_text(self) -> str:
        """What `unattributed_at` means for every share partition."""
        return (
            f"the record at offset {self.unattributed_at} of state partition {self.state_partition} "
            "names no share partition; it may be this one's"
        )


def read_coverage(tables: Tables, observation: Observation) -> dict[int, Coverage]:
    """Coverage of each state partition of the state topic, and of each that was ever exported."""
    coverages = coverage_of(observation, ExportedRanges(tables, observation).by_state_partition)
    snapshot = tables.snapshot("state_records")
    if snapshot is None:
        return coverages
    return count_quarantined(coverages, snapshot.batches(columns=QUARANTINE_COLUMNS, where=QUARANTINED))


def coverage_of(observation: Observation, ranges: Mapping[int, ExportedRange]) -> dict[int, Coverage]:
    """Coverage by state partition, quarantined records not counted."""
    coverages = {}
    for number in sorted(observation.state_logs.keys() | ranges.keys()):
        exported, log = ranges.get(number, ExportedRange()), observation.state_logs.get(number, StateLog())
        ends = [] if exported.last_offset is None else [exported.last_offset + 1]
        if ends and log.log_end_after is not None:
            ends.append(log.log_end_after)
        end = min(ends, default=None)
        coverages[number] = Coverage(state_partition=number, log=log, end_offset=end, gaps=exported.gaps)
    return coverages


def count_quarantined(
    coverages: Mapping[int, Coverage], batches: Iterable[pa.RecordBatch], positions: Mapping[int, int] = _FROM_THE_START
) -> dict[int, Coverage]:
    """`coverages` with quarantined records counted: `batches` of ``QUARANTINE_COLUMNS`` where ``QUARANTINED``. Those
    before `positions` (by state partition) are counted already."""
    found: dict[int, list[tuple[int, int | None]]] = {}
    for row in (row for batch in batches for row in batch.to_pylist()):
        number, offset = row["state_partition"], row["offset"]
        coverage = coverages.get(number)
        if coverage is not None and positions.get(number, 0) <= offset < (coverage.end_offset or 0):
            # a broker skips a type it does not know
            is_skipped = row["group_id"] is not None or row["decode_status"] == "unknown_type"
            found.setdefault(number, []).append((offset, None if is_skipped else offset))
    return {**coverages, **{number: _with_quarantined(coverages[number], rows) for number, rows in found.items()}}


def _with_quarantined(coverage: Coverage, rows: Sequence[tuple[int, int | None]]) -> Coverage:
    """`rows`: the offset of each record, and again where it names no share partition."""
    newest, unattributed = zip((coverage.quarantined_at, coverage.unattributed_at), *rows, strict=True)
    return replace(
        coverage,
        quarantined=coverage.quarantined + len(rows),
        quarantined_at=max(offset for offset in newest if offset is not None),
        unattributed_at=max((offset for offset in unattributed if offset is not None), default=None),
    )
