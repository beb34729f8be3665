"""What ``acktrail doctor`` checks of the tables: whether each can be read, whose they are, whether they can be written,
and the audit of changes. It needs the extra `tables`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

from acktrail.cli.doctor_checks import DoctorCheck, missing, tried
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, NoTables
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.tables.cluster_check import ensure_same_cluster
from acktrail.tables.commit_order import runs_ahead
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_root import EMPTY_FOLDER, NO_FOLDER
from acktrail.tables.records.known_names import KnownNames, known_names
from acktrail.tables.records.record_files import RECORDS
from acktrail.times import utc_text
from acktrail.view.audit_integrity import checked_audit


def exported_names(target: TablesConfig) -> KnownNames | None:
    """Names in the tables; None where they cannot be read, which is a check itself, or without an export."""
    try:
        tables = Tables(target)
        return known_names(tables) if tables.exists(RECORDS) else None
    except AcktrailError:
        return None


def _absent_tables(tables: Tables) -> DoctorCheck | None:
    """The check where there are no tables: an export may make them in a new folder, and nowhere else."""
    try:
        why = tables.why_absent()
    except AcktrailError as error:
        return missing("tables", error)
    if why is None:
        return None
    if why in (NO_FOLDER, EMPTY_FOLDER):
        return DoctorCheck(what="tables", status="ok", detail=f"{tables.root}: {why}; an export makes the tables")
    hint = "correct --tables or ACKTRAIL_TABLES"
    return DoctorCheck(what="tables", status="missing", detail=f"{tables.root}: {why}", hint=hint)


def table_checks(config: TablesConfig, cluster_id: str | None) -> Iterator[DoctorCheck]:
    """Each table that cannot be read; then their cluster, runs from the future, and whether they can be written."""
    tables = Tables(config)
    absent = _absent_tables(tables)
    if absent is not None:
        yield absent
        yield tried("tables, writing", tables.probe_write, f"{tables.root} can be written")
        return
    there, damaged = [], []
    for name in TABLES:
        try:
            if tables.exists(name):
                there.append(name)
        except AcktrailError as error:
            damaged.append(missing(f"table {name}", error))
    yield from damaged
    if not damaged:
        found = f"{len(there)} tables" if RECORDS in there else "nothing exported yet"
        yield DoctorCheck(what="tables", status="ok", detail=f"{tables.root}: {found}")
    if cluster_id is not None and there:
        yield tried("tables' cluster", lambda: ensure_same_cluster(tables, cluster_id, there), f"cluster {cluster_id}")
    if ahead := runs_ahead(tables, dt.datetime.now(dt.UTC)) if not damaged else None:
        text = ", ".join(f"run {run_id} at {utc_text(at)}" for run_id, at in ahead.items())
        hint = "compare the clock of this machine, and of those that export, with the right time"
        yield DoctorCheck(what="clocks", status="missing", detail=f"in the future: {text}", hint=hint)
    yield tried("tables, writing", tables.probe_write, f"{tables.root} can be written")


def audit_checks(config: TablesConfig, anchor: Path | None) -> Iterator[DoctorCheck]:
    """Whether the audit of changes is consistent, and what it was compared with; nothing where there is no audit, and
    no anchor says that there was one."""
    is_kept = anchor is not None and anchor.exists()
    try:
        found = checked_audit(config, anchor=anchor, moves_on=False)
    except NoTables as error:
        if is_kept:
            yield missing("audit", error)
        return
    except AcktrailError as error:
        yield missing("audit", error)
        return
    if is_kept:
        yield DoctorCheck(what="audit", status="ok", detail=found.words)
    elif found.rows:
        where = "FILE" if anchor is None else str(anchor)
        hint = f"keep one where those who can write the tables cannot: acktrail change audit --anchor {where}"
        yield DoctorCheck(what="audit", status="note", detail=found.words, hint=hint)
