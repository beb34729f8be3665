"""``reconcile_checks``: the newest reconciliation, what it covered, and the newest check whether another one is due."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from acktrail.columnar.schemas.table_schemas import TABLES
from acktrail.config import TablesConfig, reconcile_every
from acktrail.errors import ConcurrentCommit, DamagedTables
from acktrail.reconcile.schedule.cluster_fingerprint import ClusterFingerprint, cluster_fingerprint, records_version
from acktrail.reconcile.schedule.reconcile_due import CheckDecision, DueCheck, LastReconciliation, decide
from acktrail.tables.cluster_check import create_anew_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot

CHECKS: Final = "reconcile_checks"
_OF_EXPORTS: Final = ("offset_observations", "group_observations", "state_records")
_NOTHING: Final[Mapping[str, Any]] = {**dict.fromkeys(TABLES[CHECKS].names), "checks": 0}


def check_due(tables: TablesConfig, exported_run_id: str, run_id: str, now: dt.datetime | None = None) -> DueCheck:
    """Decide whether run `run_id` should reconcile after the export `exported_run_id`, and note the decision.

    Reads the brokers' answers to that export from the tables, without a broker and without Spark.

    Raises:
        ConfigurationError: ACKTRAIL_RECONCILE_EVERY is no duration, or the tables cannot be read or written.
    """
    every, instant, stored = reconcile_every(), now or _now(), Tables(tables)
    found = cluster_fingerprint(stored, exported_run_id, "before", records_version(stored.snapshot("state_records")))
    row = _row(stored)
    decided = decide(instant, _last(row), found, every)
    changes = {"checked_run_id": exported_run_id, "checked_at": instant, "decision": decided.decision.value}
    if decided.decision is CheckDecision.RUN:
        own = {"attempt_run_id": run_id, "attempted_at": instant, "checks": 0}
    else:
        own = {"checks": row["checks"] + 1}
    _replace_row(stored, {**row, **changes, **own, "reason": decided.reason})
    return decided


def note_begun(tables: Tables, cluster_id: str | None, run_id: str, now: dt.datetime | None = None) -> None:
    """Note that run `run_id` begins, unless that is noted already: the interval to the next one starts here."""
    row = _row(tables)
    if row["attempt_run_id"] != run_id:
        _replace_row(tables, {**row, "attempt_run_id": run_id, "attempted_at": now or _now()}, cluster_id)


def note_reconciled(
    tables: Tables, cluster_id: str | None, run_id: str, records: str | None, now: dt.datetime | None = None
) -> None:
    """Note that run `run_id` was reconciled, with all of `records` (``cluster_fingerprint.records_version``)."""
    seen = cluster_fingerprint(tables, run_id, "after", records)
    own = {
        "run_id": run_id,
        "reconciled_at": now or _now(),
        "records_version": seen.records,
        "offsets_digest": seen.offsets,
        "groups_digest": seen.groups,
        "checks": 0,
    }
    _replace_row(tables, {**_row(tables), **own}, cluster_id)


def last_reconciliation(tables: Tables) -> LastReconciliation:
    """The newest reconciliation in the table."""
    return _last(_row(tables))


def _last(row: Mapping[str, Any]) -> LastReconciliation:
    seen = ClusterFingerprint(
        records=row["records_version"], offsets=row["offsets_digest"], groups=row["groups_digest"]
    )
    names = ("run_id", "reconciled_at", "attempted_at")
    return LastReconciliation(covered=seen, **{name: row[name] for name in names})


def _row(tables: Tables) -> Mapping[str, Any]:
    """The only row; an empty one where the table cannot be read: a reconciliation is due then, and replaces it."""
    try:
        rows = tables.read(CHECKS).to_pylist()
    except DamagedTables:
        return _NOTHING
    return rows[0] if rows else _NOTHING


def _replace_row(tables: Tables, row: Mapping[str, Any], cluster_id: str | None = None) -> None:
    """Replace the only row. Another writer may win: at worst one more reconciliation follows."""
    owner = cluster_id or row["cluster_id"] or _cluster_of(tables)
    if owner is None:
        return
    create_anew_for(tables, CHECKS, owner)
    with contextlib.suppress(ConcurrentCommit):
        tables.replace(CHECKS, pa.Table.from_pylist([{**row, "cluster_id": owner}], schema=TABLES[CHECKS]))


def _cluster_of(tables: Tables) -> str | None:
    """The cluster of these tables, from the properties of one of them, else from a row."""
    for snapshot in filter(None, map(tables.snapshot, _OF_EXPORTS)):
        named = snapshot.properties.get("cluster_id") or next(_named(snapshot), None)
        if named is not None:
            return named
    return None


def _named(snapshot: TableSnapshot) -> Iterator[str]:
    for batch in snapshot.batches(columns=["cluster_id"]):
        yield from pc.drop_null(pc.unique(batch.column(0))).to_pylist()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
