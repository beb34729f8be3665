"""The size of a year, foretold from the last day in which a table's log has new rows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from acktrail.config import TablesConfig
from acktrail.tables.delta.table_snapshot import PROPERTY_PREFIX, TableSnapshot
from acktrail.tables.exported.continuity import RANGES_TABLE
from acktrail.tables.upkeep.compaction_plan import MOST_BYTES
from acktrail.tables.upkeep.file_rewrite import table_files
from acktrail.tables.upkeep.log_cleanup import LogFile, log_files
from acktrail.tables.upkeep.maintained_tables import MaintainedTables, grows_by_small_files
from acktrail.tables.upkeep.maintenance import MaintenancePolicy
from acktrail.tables.upkeep.rewrite_commit import MAINTAINED

_DAY_MS: Final = 86_400_000
_SHORTEST_MS: Final = 60_000
_YEAR_DAYS: Final = 365
_CHECKPOINT_BYTES: Final = 730
"""What a file takes in a checkpoint."""
_LOG_DAYS: Final = 30
"""For how long delta-rs keeps a log that no one cleans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyGrowth:
    """What a table gains in a day, by the commits of the last `span_ms`. `log_bytes`: of its commits alone."""

    span_ms: int
    commits: int
    files: int
    rows: int
    bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class YearAhead:
    """A table in a year. `checkpoint_bytes`: what every opening reads; `log_bytes`: commits in the log. The pairs are
    without and with a daily maintenance."""

    rows: int
    bytes: int
    files: tuple[int, int]
    checkpoint_bytes: tuple[int, int]
    log_bytes: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForecast:
    """One table now, a day of it, and a year. `day` and `year` None: `reason`."""

    table: str
    rows: int
    bytes: int
    files: int
    day: DailyGrowth | None = None
    year: YearAhead | None = None
    reason: str | None = None


def forecast(config: TablesConfig, policy: MaintenancePolicy) -> list[TableForecast]:
    """Growth and a year ahead of every table; reads logs alone."""
    return [_of(own, policy) for own in MaintainedTables(config).snapshots()]


def _of(snapshot: TableSnapshot, policy: MaintenancePolicy) -> TableForecast:
    files = table_files(snapshot)
    now: dict[str, Any] = {
        "table": snapshot.name,
        "rows": sum(file.rows or 0 for file in files),
        "bytes": sum(file.size_bytes for file in files),
        "files": len(files),
    }
    day = _growth(snapshot, log_files(snapshot))
    if day is None:
        return TableForecast(**now, reason="its log has no two commits a minute apart")
    return TableForecast(**now, day=day, year=_year(snapshot.name, now, day, policy))


def _year(name: str, now: dict[str, Any], day: DailyGrowth, policy: MaintenancePolicy) -> YearAhead:
    rows, size = (max(0, now[key] + _YEAR_DAYS * getattr(day, key)) for key in ("rows", "bytes"))
    grown = max(1, now["files"] + _YEAR_DAYS * day.files)
    kept = -(-size // MOST_BYTES) + policy.small_files + max(0, day.files)
    if name == RANGES_TABLE:
        kept = 1 + max(0, day.files)
    files = (grown, min(grown, kept) if grows_by_small_files(name) else grown)
    tombstones = max(0, day.files) * policy.vacuum_after_ms // _DAY_MS
    kept_days = max(1, policy.log_keep_ms // _DAY_MS)
    return YearAhead(
        rows=rows,
        bytes=size,
        files=files,
        checkpoint_bytes=(files[0] * _CHECKPOINT_BYTES, (files[1] + tombstones // 4) * _CHECKPOINT_BYTES),
        log_bytes=(_LOG_DAYS * day.log_bytes, kept_days * day.log_bytes),
    )


def _growth(snapshot: TableSnapshot, log: Iterable[LogFile]) -> DailyGrowth | None:
    commits = [file for file in log if file.path.endswith(".json")]
    newest: int | None = None
    oldest = commits_read = log_bytes = files = rows = size = 0
    last = _Change()
    for file in reversed(commits):
        change = _change(snapshot, file)
        if change.at_ms is None:
            continue
        newest = change.at_ms if newest is None else newest
        if newest - change.at_ms > _DAY_MS:
            break
        # The oldest commit of the span only shows when it begins.
        files, rows, size = files + last.files, rows + last.rows, size + last.bytes
        commits_read, log_bytes = commits_read + 1, log_bytes + last.log_bytes
        oldest, last = change.at_ms, change
    span = 0 if newest is None else newest - oldest
    if span < _SHORTEST_MS:
        return None
    daily = _DAY_MS / span
    return DailyGrowth(
        span_ms=span,
        commits=round((commits_read - 1) * daily),
        files=round(files * daily),
        rows=round(rows * daily),
        bytes=round(size * daily),
        log_bytes=round(log_bytes * daily),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """What a commit added, less what it removed. `at_ms` None: it added nothing, or is of a maintenance."""

    at_ms: int | None = None
    files: int = 0
    rows: int = 0
    bytes: int = 0
    log_bytes: int = 0


def _change(snapshot: TableSnapshot, file: LogFile) -> _Change:
    with snapshot.place.translated(), snapshot.place.storage().open_input_stream(file.path) as stream:
        lines = stream.read().split(b"\n")
    actions = [json.loads(line) for line in lines if line]
    added = [each["add"] for each in actions if each.get("add", {}).get("dataChange")]
    removed = [each["remove"] for each in actions if each.get("remove", {}).get("dataChange")]
    info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
    if not added or PROPERTY_PREFIX + MAINTAINED in info:
        return _Change()
    size = sum(each["size"] for each in added)
    rows = sum(json.loads(each["stats"])["numRecords"] for each in added if each.get("stats"))
    gone = sum(each.get("size") or 0 for each in removed)
    return _Change(
        at_ms=info.get("timestamp"),
        files=len(added) - len(removed),
        rows=rows - round(rows * gone / size) if size else 0,  # removed rows are not counted in a log
        bytes=size - gone,
        log_bytes=file.size_bytes,
    )
