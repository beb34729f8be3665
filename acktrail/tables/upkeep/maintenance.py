"""One maintenance of all tables, acktrail's own and those of connectors: what it would do, and doing it.
Safe beside exporters and other maintenances, and after a crash at any moment: every step is one commit or none, and the
next run does what is left."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.branches import observation_tables
from acktrail.config import TablesConfig
from acktrail.errors import ConcurrentCommit
from acktrail.format.columns.schemas.table_schemas import POSITIONED_TABLES, TABLES
from acktrail.format.columns.share_partition_keys import first_matches, grouped
from acktrail.tables.commit_order import counted_from_ms, runs_ahead
from acktrail.tables.connector_tables import MADE_BY, OF_CONNECTOR, POSITIONS, ConnectorPositions, is_table_name
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_layout import CHANGES
from acktrail.tables.delta.table_root import files_of
from acktrail.tables.delta.table_snapshot import TableSnapshot, chosen_columns
from acktrail.tables.records.continuity import ensure_whole
from acktrail.tables.records.export_ranges import RANGES_TABLE, copy_ranges
from acktrail.tables.records.record_files import RECORDS
from acktrail.tables.upkeep.file_rewrite import Change, compact_files, compaction_bins
from acktrail.tables.upkeep.retention import AGED_BY, days_to_drop, drop_rows, fitting_from_ms, merged_ranges
from acktrail.times import instant_text, new_run_id, utc_text
from acktrail.times import now_ms as clock_ms

_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
_SMALL_FILES: Final = 8
_BY_SMALL_FILES: Final = {
    *(RECORDS, RANGES_TABLE, POSITIONS, "group_observations", "offset_observations", "share_partition_states"),
    "archived_offsets",
    *("reconciliations", "quality_results", "run_totals", "status_changes", "notifications"),
    *POSITIONED_TABLES,
    *observation_tables(),
    *CHANGES,
}
_OF: Final = ("connector", "source_partition")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """`keep_ms`: how old rows of ``AGED_BY`` may be, `keep_bytes`: how much they may take in whole days; None: all are
    kept. `small_files`: how many a table may have.
    `vacuum_after_ms`: for how long files stay that the newest version does not need: readers of older versions still
    use them."""

    keep_ms: int | None = None
    keep_bytes: int | None = None
    small_files: int = _SMALL_FILES
    vacuum_after_ms: int = 7 * _DAY_MS

    def kept_from_ms(self, tables: Tables, now_ms: int) -> int | None:
        """The time before which rows are not kept; None: all are."""
        aged = None if self.keep_ms is None else now_ms - self.keep_ms
        fitting = None if self.keep_bytes is None else fitting_from_ms(tables, self.keep_bytes, now_ms)
        return max((each for each in (aged, fitting) if each is not None), default=None)


@dataclass(slots=True, kw_only=True)
class TableUpkeep:
    """What one maintenance does, or would do, to one table. Files and bytes are those of the newest version; the log's
    are apart. `small_files` become few; `unneeded_files` are removed. `days_dropped`: the rows that are not kept, by
    the day of their time (UTC; "unknown": they have none)."""

    table: str
    files: int = 0
    bytes: int = 0
    rows: int = 0
    log_bytes: int = 0
    small_files: int = 0
    files_after: int | None = None
    rows_dropped: int = 0
    days_dropped: dict[str, int] = field(default_factory=dict)
    rows_merged: int = 0
    unneeded_files: int = 0

    def drop(self, by_day: Mapping[str, int]) -> None:
        """Note rows that are not kept, by day."""
        self.days_dropped, self.rows_dropped = dict(sorted(by_day.items())), sum(by_day.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """`dropped_before_ms`: the time before which rows are not kept; None: all are kept. `notes`: what the clocks of the
    machines that write and maintain the tables have to do with it."""

    executed: bool
    dropped_before_ms: int | None
    notes: tuple[str, ...]
    tables: tuple[TableUpkeep, ...]


def preview(config: TablesConfig, policy: MaintenancePolicy, now_ms: int | None = None) -> MaintenanceReport:
    """What a maintenance would do; changes nothing. Reads logs, and of rows that may not be kept their times."""
    tables, clock = Tables(config), now_ms or clock_ms()
    at = counted_from_ms(tables, clock)
    before, found = policy.kept_from_ms(tables, at), []
    for snapshot in _all_tables(tables):
        own = _looked_at(snapshot, policy)
        if own.table in AGED_BY:
            own.drop(days_to_drop(tables, own.table, before, at))
        own.unneeded_files = _vacuum(snapshot, _vacuum_hours(policy, at), execute=False)
        found.append(own)
    notes = _notes(tables, clock, at)
    return MaintenanceReport(executed=False, dropped_before_ms=before, notes=notes, tables=tuple(found))


def maintain(
    config: TablesConfig, policy: MaintenancePolicy, *, now_ms: int | None = None, progress: _Progress = lambda _: None
) -> MaintenanceReport:
    """Drop what is not kept, merge ranges, compact files, clean logs, remove files that nothing needs.

    Raises:
        DamagedTables: the tables lost commits or files; nothing is removed from such.
        ConcurrentCommit: others kept committing; run again.
        ConfigurationError, RetryableError: the storage refused or failed; run again.
    """
    tables, clock = Tables(config), now_ms or clock_ms()
    ensure_whole(tables)
    copy_ranges(tables)
    at = counted_from_ms(tables, clock)
    notes = _notes(tables, clock, at)
    before, now = policy.kept_from_ms(tables, at), _EPOCH + dt.timedelta(milliseconds=clock)
    found = [_looked_at(own, policy) for own in _all_tables(tables)]
    progress("dropping rows that are not kept")
    by_name, run_id = {own.table: own for own in found}, new_run_id(at)
    for name in (each for each in AGED_BY if each in by_name):
        by_name[name].drop(drop_rows(tables, name, before, run_id, at))
    for own in found:
        progress(f"compacting {own.table}")
        _compact(tables, policy, own, now)
    for own in found:
        progress(f"cleaning the log of {own.table}")
        _clean(tables, own, _vacuum_hours(policy, at))
    return MaintenanceReport(executed=True, dropped_before_ms=before, notes=notes, tables=tuple(found))


def _notes(tables: Tables, now_ms: int, counted_from: int) -> tuple[str, ...]:
    """Which runs are kept because their time lies in the future, and whether ages are not counted from now."""
    ahead = runs_ahead(tables, _EPOCH + dt.timedelta(milliseconds=now_ms)).items()
    notes = [
        f"run {run_id} wrote at {utc_text(at)}, in the future: its rows are kept until then" for run_id, at in ahead
    ]
    if now_ms - counted_from > _DAY_MS:
        last, now = instant_text(counted_from), instant_text(now_ms)
        notes.append(f"ages are counted from {last}, the newest export; now it is {now}: export, or set the clock")
    return tuple(notes)


def _compact(tables: Tables, policy: MaintenancePolicy, own: TableUpkeep, now: dt.datetime) -> None:
    """Write small files as few: ranges with neighbours merged, positions without superseded ones."""
    name = own.table
    if _grows_by_small_files(name):
        change: Change | None = _without_superseded(tables) if name == POSITIONS else None
        if name == RANGES_TABLE:
            change = partial(merged_ranges, now=now)
        gone = compact_files(tables, name, more_than=_most_small(name, policy), change=change)
        own.rows_merged, own.rows_dropped = (gone, 0) if name == RANGES_TABLE else (0, own.rows_dropped + gone)
    own.files_after = len(_still_there(tables, name).files())


def _clean(tables: Tables, own: TableUpkeep, hours: int) -> None:
    """Remove files that nothing needs, make a checkpoint, and remove the commits before one that is old enough."""
    own.unneeded_files = _vacuum(_still_there(tables, own.table), hours, execute=True)
    snapshot = _still_there(tables, own.table)
    with snapshot.place.translated():
        if not snapshot.place.has(f"_delta_log/{snapshot.version:020d}.checkpoint.parquet"):
            snapshot.delta.create_checkpoint()
        snapshot.delta.cleanup_metadata()


def _still_there(tables: Tables, name: str) -> TableSnapshot:
    found = tables.snapshot(name)
    if found is None:
        raise ConcurrentCommit(f"table {name} was removed meanwhile", hint="run again")
    return found


def _looked_at(snapshot: TableSnapshot, policy: MaintenancePolicy) -> TableUpkeep:
    name, files = snapshot.name, snapshot.files()
    with snapshot.place.translated():
        log_bytes = sum(info.size or 0 for info in files_of(snapshot.place.storage(), "_delta_log", recursive=False))
    found = TableUpkeep(
        table=name,
        files=len(files),
        bytes=sum(file.size_bytes for file in files),
        rows=sum(file.rows or 0 for file in files),
        log_bytes=log_bytes,
    )
    if _grows_by_small_files(name):
        bins = compaction_bins(files, more_than=_most_small(name, policy))
        found.small_files = sum(map(len, bins))
    return found


def _most_small(name: str, policy: MaintenancePolicy) -> int:
    return 1 if name == RANGES_TABLE else policy.small_files


def _vacuum(snapshot: TableSnapshot, hours: int, *, execute: bool) -> int:
    """Remove, or only count, the files that no version of the last `hours` needs. Where a repair kept damaged files,
    only files that the log names are removed."""
    with snapshot.place.translated():
        there = {info.path.removeprefix("/") for info in files_of(snapshot.place.storage())}
        is_full = not any(path.endswith(".damaged") for path in there)
        named = snapshot.delta.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=is_full)
        snapshot.place.ensure_inside(named)
        found = there.intersection(named)  # it names those that are gone already, too
        if found and execute:
            snapshot.delta.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=is_full)
    return len(found)


def _vacuum_hours(policy: MaintenancePolicy, at_ms: int) -> int:
    """As delta-rs counts them, back from the time of this machine's clock."""
    return max(0, math.ceil(policy.vacuum_after_ms / _HOUR_MS) + round((clock_ms() - at_ms) / _HOUR_MS))


def _without_superseded(tables: Tables) -> Change:
    """A change that leaves out rows of ``connector_positions`` which no reader needs any more: those before the
    position that counts now. Later rows are never among them, so commits may come before it is used. Raises
    DamagedTables (a position that counts is missing)."""
    least = _least_needed(tables)

    def change(rows: pa.Table) -> pa.Table:
        needed = least["number"].take(first_matches(rows, least, _OF))
        return rows.filter(pc.fill_null(pc.greater_equal(rows["number"], needed), fill_value=True))

    return change


def _least_needed(tables: Tables) -> pa.Table:
    """By connector and source partition, the least number that is needed; none where no position counts."""
    stored = tables.read(POSITIONS, columns=[*_OF, "number", "table"])
    bound = grouped(stored.filter(stored["table"].is_valid()), _OF, number="max").to_pylist()
    named = {(row["connector"], row["source_partition"]): row["number"] for row in bound}
    rows: list[dict[str, Any]] = []
    for connector in pc.unique(stored["connector"]).to_pylist():
        for source_partition, standing in ConnectorPositions(tables, connector).standings().items():
            if standing.counted is None:
                continue
            numbers = (standing.counted, standing.landed, named.get((connector, source_partition)))
            least = min(number for number in numbers if number is not None)
            rows.append({"connector": connector, "source_partition": str(source_partition), "number": least})
    return pa.Table.from_pylist(rows, schema=chosen_columns(POSITIONS, [*_OF, "number"]))


def _grows_by_small_files(name: str) -> bool:
    """Whether the files of a table are written again as few. Of acktrail's own, some are replaced as a whole, or order
    their files themselves; every table of a connector grows so."""
    return name in _BY_SMALL_FILES or name not in TABLES


def _all_tables(tables: Tables) -> tuple[TableSnapshot, ...]:
    """Every table that is there, acktrail's own first, then those that a connector's sink created; one that someone
    else put under the root is left alone."""
    found = [snapshot for name in TABLES if (snapshot := tables.snapshot(name)) is not None]
    for name in sorted(tables.folders() - TABLES.keys()):
        if is_table_name(name):
            tables.admit(name)
            other = tables.snapshot(name)
            if other is not None and other.properties.get(MADE_BY) == OF_CONNECTOR:
                found.append(other)
    return tuple(found)
