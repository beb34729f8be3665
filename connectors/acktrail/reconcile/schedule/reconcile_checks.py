"""``reconcile_checks``: the newest reconciliation, what it covered, and the newest look whether another one is due."""

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
from acktrail.reconcile.schedule.cluster_fingerprint import Fingerprint, fingerprint, records_version
from acktrail.reconcile.schedule.reconcile_due import Decision, Due, Last, due
from acktrail.tables.cluster_check import create_anew_for
from acktrail.tables.delta.store import Tables
from acktrail.tables.delta.table_snapshot import TableSnapshot

__all__ = ["begin", "check", "covered", "last_reconciliation"]

CHECKS: Final = "reconcile_checks"
_OF_EXPORTS: Final = ("offset_observations", "group_observations", "state_records")
_NOTHING: Final[Mapping[str, Any]] = {**dict.fromkeys(TABLES[CHECKS].names), "checks": 0}


def check(tables: TablesConfig, exported_run_id: str, run_id: str, now: dt.datetime | None = None) -> Due:
    """Decide whether run `run_id` should reconcile after the export `exported_run_id`, and note the decision.

    Reads the answers that the brokers gave in that export: no broker is asked, no Spark started.

    Raises:
        ConfigurationError: ACKTRAIL_RECONCILE_EVERY is no duration, or the tables cannot be read or written.
    """
    every, instant, stored = reconcile_every(), now or _now(), Tables(tables)
    found = fingerprint(stored, exported_run_id, "before", records_version(stored.snapshot("state_records")))
    row = _row(stored)
    decided = due(instant, _last(row), found, every)
    changes = {"checked_run_id": exported_run_id, "checked_at": instant, "decision": decided.decision.value}
    if decided.decision is Decision.RUN:
        own = {"attempt_run_id": run_id, "attempted_at": instant, "checks": 0}
    else:
        own = {"checks": row["checks"] + 1}
    _keep(stored, {**row, **changes, **own, "reason": decided.reason})
    return decided


def begin(tables: Tables, cluster_id: str | None, run_id: str, now: dt.datetime | None = None) -> None:
    """Note that run `run_id` begins, unless that was noted already: the next one waits from here on."""
    row = _row(tables)
    if row["attempt_run_id"] != run_id:
        _keep(tables, {**row, "attempt_run_id": run_id, "attempted_at": now or _now()}, cluster_id)


def covered(
    tables: Tables, cluster_id: str | None, run_id: str, records: str | None, now: dt.datetime | None = None
) -> None:
    """Note that run `run_id` was reconciled, with all `records` (``fingerprints.records_version``)."""
    seen = fingerprint(tables, run_id, "after", records)
    own = {
        "run_id": run_id,
        "reconciled_at": now or _now(),
        "records_version": seen.records,
        "offsets_digest": seen.offsets,
        "groups_digest": seen.groups,
        "checks": 0,
    }
    _keep(tables, {**_row(tables), **own}, cluster_id)


def last_reconciliation(tables: Tables) -> Last:
    """What the table tells of the newest reconciliation."""
    return _last(_row(tables))


def _last(row: Mapping[str, Any]) -> Last:
    seen = Fingerprint(records=row["records_version"], offsets=row["offsets_digest"], groups=row["groups_digest"])
    names = ("run_id", "reconciled_at", "attempted_at")
    return Last(covered=seen, **{name: row[name] for name in names})


def _row(tables: Tables) -> Mapping[str, Any]:
    """A table that cannot be read tells nothing: a reconciliation is due, and makes it anew."""
    try:
        rows = tables.read(CHECKS).to_pylist()
    except DamagedTables:
        return _NOTHING
    return rows[0] if rows else _NOTHING


def _keep(tables: Tables, row: Mapping[str, Any], cluster_id: str | None = None) -> None:
    """Let `row` be the only one. Another writer's may win: at worst one more reconciliation follows."""
    owner = cluster_id or row["cluster_id"] or _cluster_of(tables)
    if owner is None:
        return
    create_anew_for(tables, CHECKS, owner)
    with contextlib.suppress(ConcurrentCommit):
        tables.replace(CHECKS, pa.Table.from_pylist([{**row, "cluster_id": owner}], schema=TABLES[CHECKS]))


def _cluster_of(tables: Tables) -> str | None:
    """Whose tables these are: as one says itself, else as one of its rows does."""
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
