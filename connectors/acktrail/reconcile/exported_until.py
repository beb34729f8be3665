"""Ranges of offsets exported of each state partition when an observation ended; known ones are not read again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import EXPORT_RANGES
from acktrail.connect.contract import PRUNED_BEFORE_FIRST_EXPORT
from acktrail.reconcile.observed_run import Observation
from acktrail.tables.delta.store import Tables

RANGES: Final = "export_ranges"

_SUMMED: Final = ("state_partition", "first_offset", "last_offset", "gap_first", "gap_last")
_READ: Final = (*_SUMMED, "gap_reason")
_COLUMNS: Final = ("run_id", "exported_at", *_READ)
_SUMS: Final = (("first_offset", "min"), ("last_offset", "max"), ("offsets", "sum"), ("lost", "sum"))


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

    `latest`: when the newest of them was made. All rows that the table (`table_id`) had at `version` are known, except
    some in the files `pending`.
    """

    table_id: str
    version: int
    pending: frozenset[str]
    run_id: str
    until: datetime
    latest: datetime
    extents: Mapping[int, ExportedRange] = field(default_factory=dict)


class ExportedRanges:
    """The ranges that an observation knows: from the commits of its own export, and those before its second sample.

    Continues from `known` if it covers this observation and no earlier rows were added since: then only files with
    other rows are read. Else all files are read.
    """

    def __init__(self, tables: Tables, observation: Observation, known: KnownRanges | None = None) -> None:
        self._tables = tables
        self._observation = observation
        self._snapshot = tables.snapshot(RANGES)
        statistics = {} if self._snapshot is None else self._snapshot.statistics(["max.exported_at"])
        self._newest = {path: each["max.exported_at"] for path, each in statistics.items()}
        self._known: KnownRanges | None = None
        self._paths = frozenset(self._newest)
        if known is not None and self._is_part(known):
            self._known = known
        self.by_state_partition: dict[int, ExportedRange] = dict(self._read())

    def to_save(self) -> KnownRanges | None:
        """What a later observation continues from; None where there are no ranges."""
        if self._snapshot is None:
            return None
        until, pending = self._observation.after_began_at, set[str]()
        latest = until if self._known is None else max(until, self._known.latest)
        for path in sorted(path for path in self._paths if self._is_newer(path, until)):
            rows = self._tables.read_files(RANGES, [path], columns=["run_id", "exported_at"])
            own = rows.filter(_known_then(self._observation))
            latest = max(latest, pc.max(own["exported_at"]).as_py() or latest)
            if own.num_rows < rows.num_rows:
                pending.add(path)
        return KnownRanges(
            table_id=self._snapshot.table_id,
            version=self._snapshot.version,
            pending=frozenset(pending),
            run_id=self._observation.run_id,
            until=until,
            latest=latest,
            extents=self.by_state_partition,
        )

    def _is_part(self, known: KnownRanges) -> bool:
        """Whether `known` holds for this observation. Narrows the files down to those that may have other rows."""
        snapshot = self._snapshot
        if snapshot is None or snapshot.table_id != known.table_id or known.latest > self._observation.after_began_at:
            return False
        before = self._tables.paths_at(RANGES, known.version)
        if before is None or before - self._paths:
            return False
        added = self._paths - before
        if added and self._rows(added, where=_known_to(known.run_id, known.until)).num_rows:
            return False
        self._paths = added | (known.pending & self._paths)
        return True

    def _is_newer(self, path: str, until: datetime) -> bool:
        return self._newest[path] is None or self._newest[path] > until

    def _rows(self, paths: Iterable[str], where: pc.Expression) -> pa.Table:
        return self._tables.read_files(RANGES, sorted(paths), columns=list(_COLUMNS), where=where)

    def _read(self) -> Iterator[tuple[int, ExportedRange]]:
        known: Mapping[int, ExportedRange] = {} if self._known is None else self._known.extents
        yield from known.items()
        total = _NO_SUMS
        for rows in self._new_rows():
            total = _summed(pa.concat_tables([total, _with_lengths(rows)]))
        for row in total.to_pylist():
            number = row.pop("state_partition")
            yield number, self._joined(number, known.get(number), ExportedRange(**row))

    def _new_rows(self) -> Iterator[pa.Table]:
        """The rows that this observation knows and `known` does not, piece by piece."""
        own = _known_then(self._observation)
        if self._known is not None:
            yield self._fresh(own)
        elif self._snapshot is not None:
            for batch in self._snapshot.batches(columns=list(_READ), where=own):
                yield _since_first_export(pa.Table.from_batches([batch]))

    def _fresh(self, where: pc.Expression) -> pa.Table:
        """The same from the files that may have such rows."""
        assert self._known is not None
        if not self._paths:
            return _NO_RANGES
        is_other = ~_known_to(self._known.run_id, self._known.until)
        return _since_first_export(self._rows(self._paths, where & is_other))

    def _joined(self, number: int, known: ExportedRange | None, new: ExportedRange) -> ExportedRange:
        """`known` and the commits summed up in `new`."""
        before = known or ExportedRange()
        joined = ExportedRange(
            first_offset=_chosen(min, before.first_offset, new.first_offset),
            last_offset=_chosen(max, before.last_offset, new.last_offset),
            offsets=before.offsets + new.offsets,
            lost=before.lost + new.lost,
        )
        return joined if _is_whole(joined) else replace(joined, gaps=self._gaps(number, known, new))

    def _gaps(self, number: int, known: ExportedRange | None, new: ExportedRange) -> tuple[Gap, ...]:
        """From the new rows where they come after the known ones; else from all rows."""
        where = _known_then(self._observation) & (pc.field("state_partition") == number)
        if known is None or (new.first_offset or 0) <= (known.last_offset or 0):
            assert self._snapshot is not None
            rows = _since_first_export(self._snapshot.read(columns=list(_READ), where=where))
            return tuple(sorted(_gaps_in(rows.to_pylist(), None)))
        return tuple(sorted({*known.gaps, *_gaps_in(self._fresh(where).to_pylist(), known.last_offset)}))


def _since_first_export(ranges: pa.Table) -> pa.Table:
    """The columns ``_SUMMED`` of rows of ``_READ``, without what Kafka pruned before the first export: nothing is known
    before the first exported offset anyway."""
    is_before = pc.fill_null(pc.equal(ranges["gap_reason"], PRUNED_BEFORE_FIRST_EXPORT), fill_value=False)
    nothing = pa.scalar(None, pa.int64())
    columns = {name: ranges[name] for name in _SUMMED}
    columns |= {name: pc.if_else(is_before, nothing, ranges[name]) for name in ("gap_first", "gap_last")}
    return pa.table(columns)


def _known_then(observation: Observation) -> pc.Expression:
    """Commits of the observation's own export, and those made before its second sample."""
    return _known_to(observation.run_id, observation.after_began_at)


def _known_to(run_id: str, until: datetime) -> pc.Expression:
    return (pc.field("run_id") == run_id) | (pc.field("exported_at") <= pa.scalar(until, _INSTANT))


def _is_whole(extent: ExportedRange) -> bool:
    """Whether no offset between the first and the last is missing, and none before."""
    first, last = extent.first_offset, extent.last_offset
    return first is not None and last is not None and not extent.lost and extent.offsets == last + 1 - first


def _chosen(choose: Callable[[Iterable[int]], int], *offsets: int | None) -> int | None:
    given = [offset for offset in offsets if offset is not None]
    return choose(given) if given else None


def _gaps_in(rows: Iterable[Mapping[str, Any]], reached: int | None) -> set[Gap]:
    """The gaps that the exporter noted, and any other offsets between two of its commits. `reached`: where the commit
    before these ended."""
    noted, exported = set[Gap](), []
    for row in rows:
        if row["gap_first"] is not None:
            noted.add(Gap(first_offset=row["gap_first"], last_offset=row["gap_last"]))
        if row["first_offset"] is not None:
            exported.append((row["first_offset"], row["last_offset"]))
    return noted | set(_between(sorted(exported), reached))


def _between(exported: Sequence[tuple[int, int]], reached: int | None) -> Iterator[Gap]:
    for first, last in exported:
        if reached is not None and first > reached + 1:
            yield Gap(first_offset=reached + 1, last_offset=first - 1)
        reached = last if reached is None else max(reached, last)


def _with_lengths(ranges: pa.Table) -> pa.Table:
    columns = [ranges[name] for name in ("state_partition", "first_offset", "last_offset")]
    lengths = [_length(ranges, "first_offset", "last_offset"), _length(ranges, "gap_first", "gap_last")]
    return pa.table([*columns, *lengths], schema=_NO_SUMS.schema)


def _length(ranges: pa.Table, first: str, last: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.add(pc.subtract(ranges[last], ranges[first]), 1), 0)


def _summed(pieces: pa.Table) -> pa.Table:
    sums = pieces.group_by("state_partition", use_threads=False).aggregate(list(_SUMS))
    names = ["state_partition", *(f"{name}_{how}" for name, how in _SUMS)]
    return sums.select(names).rename_columns(_NO_SUMS.column_names)


_INSTANT: Final = pa.timestamp("us", tz="UTC")
_NO_RANGES: Final = EXPORT_RANGES.empty_table().select(list(_SUMMED))
_NO_SUMS: Final = pa.schema(
    [
        ("state_partition", pa.int32()),
        *((name, pa.int64()) for name in ("first_offset", "last_offset", "offsets", "lost")),
    ]
).empty_table()
