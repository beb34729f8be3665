"""``acktrail doctor --read-tables``: every table to its last row, and what they say of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from acktrail.cli.doctor_checks.checks import Check, tried
from acktrail.cli.progress import table_progress
from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.tables.cluster_check import reads_as_own
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.damage_survey import DamageReport, find_damage
from acktrail.tables.exported.presence import unranged_records
from acktrail.tables.exported.raw_bytes import contradictions
from acktrail.tables.exported.record_files import RECORDS

__all__ = ["reading_checks"]

_REPAIR = "`acktrail repair` shows what can be mended"
_Progress = Callable[[str, int], None]


def reading_checks(config: TablesConfig) -> Iterator[Check]:
    """Damaged files, records that are missing, doubled or in no range, bytes that say something else than columns; then
    how many rows each other table has. Reads everything."""
    tables = Tables(config)
    with table_progress() as progress:
        try:
            found = find_damage(tables, progress)
        except AcktrailError as error:
            yield Check(what="tables, reading", status="missing", detail=error.message, hint=error.hint)
            return
        for each in found.damages:
            detail = f"{each.damage.file} {each.damage.cause}"
            yield Check(what=f"table {each.table}", status="missing", detail=detail, hint=_REPAIR)
        yield tried("records and ranges", lambda: _records(tables, found))
        damaged = {each.table for each in found.damages}
        if RECORDS not in damaged:
            yield tried("records and raw bytes", lambda: _bytes(tables, progress))
        for name in TABLES:
            if name not in damaged and name != RECORDS and tables.exists(name):
                yield tried(f"table {name}", _counting(tables, name, progress))


def _records(tables: Tables, found: DamageReport) -> str:
    if found.presence is None or found.lost is None:
        raise ConfigurationError("cannot be compared before the damage above is mended", hint=_REPAIR)
    faults = []
    if found.lost:
        records = sum(each.records for each in found.lost)
        faults.append(f"{records:,} records are missing, the first ones: {found.lost[0]}")
    elif not found.is_whole:
        faults.append("state_records lost a commit that export_ranges tells of")
    unranged = unranged_records(tables, found.presence)
    if unranged:
        faults.append(
            f"{sum(each.records for each in unranged):,} records are in no range, the first ones: {unranged[0]}"
        )
    if found.presence.doubles:
        number, rows = next(iter(found.presence.doubles.items()))
        faults.append(f"records are there twice, {rows:,} of state partition {number}")
    if faults:
        raise ConfigurationError("; ".join(faults), hint=_REPAIR)
    return f"{found.presence.rows.total():,} records, each in one range"


def _bytes(tables: Tables, progress: _Progress) -> str:
    snapshot = tables.snapshot(RECORDS)
    if snapshot is None:
        return "no records"
    if not reads_as_own(snapshot):
        return "not compared: the records are in another dialect"
    read = 0
    for file in snapshot.files():
        for rows in contradictions(tables, [file.path]):
            if rows.num_rows:
                place = f"state partition {rows['state_partition'][0]}, offset {rows['offset'][0]}"
                raise ConfigurationError(
                    f"{file.path}: raw bytes and decoded columns differ at {place}: {rows['columns'][0]}",
                    hint="restore the file from the storage's own versions or a backup",
                )
        read += file.rows or 0
        progress(RECORDS, read)
    return f"{read:,} records say what their bytes say"


def _counting(tables: Tables, name: str, progress: _Progress) -> Callable[[], str]:
    def count() -> str:
        rows, snapshot = 0, tables.snapshot(name)
        for batch in () if snapshot is None else snapshot.batches():
            rows += batch.num_rows
            progress(name, rows)
        return f"{rows:,} rows"

    return count
