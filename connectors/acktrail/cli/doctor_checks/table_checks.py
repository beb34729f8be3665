"""``acktrail doctor`` checks the tables: their cluster, their rights; with ``--read-tables`` every row of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from acktrail.cli.doctor_checks.checks import DoctorCheck, tried
from acktrail.cli.progress import table_progress
from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.tables.cluster_check import ensure_same_cluster, reads_as_own
from acktrail.tables.delta.store import Tables
from acktrail.tables.exported.damage_report import DamageReport, find_damage
from acktrail.tables.exported.raw_bytes import contradictions
from acktrail.tables.exported.record_files import RECORDS

_REPAIR = "`acktrail repair` shows what can be repaired"
_Progress = Callable[[str, int], None]


def table_checks(config: TablesConfig, cluster_id: str | None) -> Iterator[DoctorCheck]:
    """Each table that cannot be read; then their cluster, and whether they can be written."""
    tables = Tables(config)
    there, damaged = [], []
    for name in TABLES:
        try:
            if tables.exists(name):
                there.append(name)
        except AcktrailError as error:
            damaged.append(DoctorCheck(what=f"table {name}", status="missing", detail=error.message, hint=error.hint))
    yield from damaged
    if not damaged:
        found = f"{len(there)} tables" if "state_records" in there else "nothing exported yet"
        yield DoctorCheck(what="tables", status="ok", detail=f"{tables.root}: {found}")
    if cluster_id is not None and there:
        yield tried("tables' cluster", lambda: _same_cluster(tables, cluster_id, there))
    yield tried("tables, writing", lambda: _writable(tables))


def _same_cluster(tables: Tables, cluster_id: str, names: list[str]) -> str:
    ensure_same_cluster(tables, cluster_id, names)
    return f"cluster {cluster_id}"


def _writable(tables: Tables) -> str:
    tables.probe_write()
    return f"{tables.root} can be written"


def reading_checks(config: TablesConfig) -> Iterator[DoctorCheck]:
    """What ``find_damage`` reports, as `acktrail repair` shows it; raw bytes that contradict decoded columns; then the
    number of rows of each other table. Reads everything."""
    tables = Tables(config)
    with table_progress() as progress:
        try:
            report = find_damage(tables, progress)
        except AcktrailError as error:
            yield DoctorCheck(what="tables, reading", status="missing", detail=error.message, hint=error.hint)
            return
        for each in report.damages:
            detail = f"{each.file} {each.cause}"
            yield DoctorCheck(what=f"table {each.table}", status="missing", detail=detail, hint=_REPAIR)
        yield tried("records and ranges", lambda: _records(report))
        damaged = {each.table for each in report.damages}
        if RECORDS not in damaged:
            yield tried("records and raw bytes", lambda: _bytes(tables, progress))
        for name in TABLES:
            if name not in damaged and name != RECORDS and tables.exists(name):
                yield tried(f"table {name}", lambda name=name: _rows(tables, name, progress))  # type: ignore[misc]  # bound now


def _records(report: DamageReport) -> str:
    if report.presence is None:
        raise ConfigurationError("cannot be compared before the damage above is repaired", hint=_REPAIR)
    faults = report.record_faults()
    if faults:
        raise ConfigurationError("; ".join(faults), hint=_REPAIR)
    return f"{report.presence.rows.total():,} records, each in one range"


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
    return f"{read:,} records agree with their bytes"


def _rows(tables: Tables, name: str, progress: _Progress) -> str:
    rows, snapshot = 0, tables.snapshot(name)
    for batch in () if snapshot is None else snapshot.batches():
        rows += batch.num_rows
        progress(name, rows)
    return f"{rows:,} rows"
