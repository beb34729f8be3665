"""``acktrail doctor`` looks at the tables: whose they are, whether they can be read and written."""

from __future__ import annotations

from collections.abc import Iterator

from acktrail.cli.doctor_checks.checks import DoctorCheck, tried
from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError
from acktrail.tables.cluster_check import ensure_same_cluster
from acktrail.tables.delta.store import Tables

__all__ = ["table_checks"]


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
