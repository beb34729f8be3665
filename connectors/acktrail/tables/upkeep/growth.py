"""What each table gains in a day, by the last day in which its log has new rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from acktrail.config import TablesConfig
from acktrail.tables.delta.damaged_files import files_of
from acktrail.tables.delta.table_snapshot import PROPERTY_PREFIX, TableSnapshot
from acktrail.tables.upkeep.maintained_tables import MaintainedTables
from acktrail.tables.upkeep.rewrite_commit import MAINTAINED

_DAY_MS: Final = 86_400_000
_SHORTEST_MS: Final = 60_000
_LOG: Final = "_delta_log"


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyGrowth:
    """What a table gains in a day without maintenance; `log_bytes`: by its commits alone."""

    commits: int
    files: int
    rows: int
    bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableGrowth:
    """One table now, and a day of it; None: its log has no two commits with new rows a minute apart."""

    table: str
    rows: int
    bytes: int
    files: int
    day: DailyGrowth | None


def growth(config: TablesConfig) -> list[TableGrowth]:
    """Of every table; reads logs alone."""
    return [_of(own) for own in MaintainedTables(config).snapshots()]


def _of(snapshot: TableSnapshot) -> TableGrowth:
    files = snapshot.files()
    return TableGrowth(
        table=snapshot.name,
        rows=sum(file.rows or 0 for file in files),
        bytes=sum(file.size_bytes for file in files),
        files=len(files),
        day=_daily(snapshot),
    )


def _daily(snapshot: TableSnapshot) -> DailyGrowth | None:
    found: list[tuple[int, DailyGrowth]] = []
    for at_ms, change in _changes(snapshot):
        found.append((at_ms, change))
        if found[0][0] - at_ms > _DAY_MS:
            break
    span = found[0][0] - found[-1][0] if found else 0
    if span < _SHORTEST_MS:
        return None
    changes = [asdict(change) for _, change in found[:-1]]  # the oldest commit only shows when the span begins
    return DailyGrowth(**{name: round(sum(each[name] for each in changes) * _DAY_MS / span) for name in changes[0]})


def _changes(snapshot: TableSnapshot) -> Iterator[tuple[int, DailyGrowth]]:
    """When each commit with new rows was made, ms since the epoch, and what it added, less what it removed; the newest
    first. Those of a maintenance are left out."""
    with snapshot.place.translated():
        storage = snapshot.place.storage()
        log = (info for info in files_of(storage, _LOG, recursive=False) if info.extension == "json")
        for info in sorted(log, key=lambda info: info.base_name, reverse=True):
            with storage.open_input_stream(f"{_LOG}/{info.base_name}") as stream:
                actions = [json.loads(line) for line in stream.read().split(b"\n") if line]
            about: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
            change = _change(actions, info.size)
            if change is not None and "timestamp" in about and PROPERTY_PREFIX + MAINTAINED not in about:
                yield about["timestamp"], change


def _change(actions: list[dict[str, Any]], log_bytes: int) -> DailyGrowth | None:
    added, removed = (
        [each[kind] for each in actions if each.get(kind, {}).get("dataChange")] for kind in ("add", "remove")
    )
    size = sum(each["size"] for each in added)
    if not size:
        return None
    rows = sum(json.loads(each["stats"])["numRecords"] for each in added if each.get("stats"))
    gone = sum(each.get("size") or 0 for each in removed)
    return DailyGrowth(
        commits=1,
        files=len(added) - len(removed),
        rows=rows - round(rows * gone / size),  # removed rows are not counted in a log
        bytes=size - gone,
        log_bytes=log_bytes,
    )
