"""Plans, attempts and their audit in the tables."""

from __future__ import annotations

import datetime as dt
import difflib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from acktrail.config import TablesConfig
from acktrail.errors import ChangeInProgress, PlanStale, UnknownName
from acktrail.group_changes.audit.audit_chain import (
    AuditEntry,
    AuditRow,
    ChainReport,
    Event,
    Stamp,
    check_chain,
    in_order,
    row_digest,
    rows_digest,
)
from acktrail.group_changes.audit.audit_log import AUDIT, AuditLog, Check
from acktrail.group_changes.lifecycle.change_status import ChangeStatus, GroupStatus, blocking, standings
from acktrail.group_changes.planning.plan_file import Plan
from acktrail.group_changes.planning.plan_rows import partition_rows, plan_row

if TYPE_CHECKING:
    from acktrail.tables.delta.table_snapshot import TableSnapshot


Clock = Callable[[], dt.datetime]

_PLANS: Final = "reset_plans"
_PARTITIONS: Final = "reset_plan_partitions"
_EXECUTIONS: Final = "reset_executions"
_ANY: Final[Mapping[str, object]] = MappingProxyType({})
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def host_and_pid() -> tuple[str, int]:
    """This machine and process."""
    return socket.gethostname(), os.getpid()


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Journal:
    """The tables of changes for one cluster; `actor` is who they are noted for. Not for several threads."""

    def __init__(
        self, tables: TablesConfig, *, cluster_id: str, run_id: str, actor: str, clock: Clock = _utc_now
    ) -> None:
        from acktrail.tables.delta.store import Tables

        self._config = tables
        self._tables = Tables(tables)
        self._cluster_id = cluster_id
        self._run_id = run_id
        self._actor = actor
        self._clock = clock
        self._log = AuditLog(self._tables, cluster_id)
        self._opened: dict[str, TableSnapshot] = {}
        self._unnoted: list[dict[str, Any]] = []

    @property
    def tables(self) -> TablesConfig:
        """Where the tables are."""
        return self._config

    @property
    def now_ms(self) -> int:
        """The journal's clock, ms since the epoch."""
        return (self._clock() - _EPOCH) // dt.timedelta(milliseconds=1)

    def note(self, entries: Sequence[AuditEntry], *, check: Check | None = None) -> None:
        """Append `entries` in one commit, right after the newest row. The first one keeps the hash of the results that
        this journal wrote since the last note. `check` is given the rows of every change that is open, and may raise;
        then nothing is written. It is called again when another writer was first.

        Raises:
            ForeignCluster: the tables belong to another cluster.
            OutcomeUnknown, ConfigurationError, RetryableError: the storage failed, or the audit lost its newest row.
        """
        self._log.append(self._accounted(entries), self._stamp, check=check, now_ms=self.now_ms)
        self._unnoted = []

    def audit(self, equal: Mapping[str, object] = _ANY, *, first: int = 0) -> list[AuditRow]:
        """The rows of the audit from sequence `first` on whose columns have these values, in order."""
        return self._log.rows(equal, first=first)

    def check_chain(self) -> ChainReport:
        """Whether the audit is whole."""
        return check_chain(self.audit(), self._cluster_id)

    def standings(self, equal: Mapping[str, object] = _ANY) -> list[GroupStatus]:
        """How every change of these groups or plans stands, as the rows say it."""
        return standings(self.audit(equal))

    def take_lease(self, entries: Sequence[AuditEntry], *, check: Callable[[], object] | None = None) -> None:
        """Note the beginning of a change (`lease_taken`, one entry a group), unless one of its groups is being changed
        (then that is noted: `lease_refused`), or `check` raises: it is called again when another writer was first.

        Raises:
            ChangeInProgress: by another plan or process, or with an outcome that was not verified.
        """
        now_ms = self.now_ms

        def check_groups(rows: list[AuditRow]) -> None:
            if check is not None:
                check()
            found = standings(rows)
            for entry in entries:
                held = blocking(found, entry.group_id or "", now_ms=now_ms)
                if held is not None:
                    raise _in_progress(held, now_ms)

        try:
            self.note(entries, check=check_groups)
        except ChangeInProgress as error:
            self.note([_lease_refused(entries, error)])
            raise

    def write_plan(self, plan: Plan) -> None:
        """Store a plan, once, and note its hashes in the audit: one that is stored already must have the same hash.

        Raises:
            PlanStale: another plan has this id, or the stored one is not the one that was planned.
            ForeignCluster: the tables belong to another cluster.
        """
        from acktrail.tables.delta.row_values import snapshot_rows

        plans, mine = self._table(_PLANS), {"plan_id": plan.plan_id}
        stored = snapshot_rows(plans, mine)
        if stored:
            if any(found["plan_hash"] != plan.plan_hash for found in stored):
                raise PlanStale("edited_plan", f"plan {plan.plan_id} was stored with another hash", hint="plan again")
            self._note_stored(stored[0], lambda: snapshot_rows(self._table(_PARTITIONS), mine))
            return
        parts = self._table(_PARTITIONS)
        written = _stored_rows(_PARTITIONS, [{**self._origin, **part} for part in partition_rows(plan)])
        (row,) = _stored_rows(_PLANS, [{**self._origin, **self._anchor, **plan_row(plan)}])
        if written:
            self._append(parts, written)
        self._append(plans, [row])
        self.note([planned_entry(row, written)])

    def write_executions(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows of ``reset_executions``; `note` something afterwards, so that the audit vouches for them."""
        about = {**self._origin, **self._anchor}
        written = _stored_rows(_EXECUTIONS, [{**about, **row} for row in rows])
        self._append(self._table(_EXECUTIONS), written)
        self._unnoted += written

    def executions(self, plan_id: str) -> list[dict[str, Any]]:
        """Rows of ``reset_executions`` of a plan, oldest first; none when there is no such table yet."""
        from acktrail.tables.delta.row_values import snapshot_rows

        snapshot = self._opened.get(_EXECUTIONS)
        if snapshot is None or not snapshot.refresh():
            snapshot = self._tables.snapshot(_EXECUTIONS)
        return [] if snapshot is None else _by_time(snapshot_rows(snapshot, {"plan_id": plan_id}))

    def _table(self, name: str) -> TableSnapshot:
        """The newest version of a table of the cluster; made if need be, opened once."""
        from acktrail.tables.cluster_check import create_for

        found = self._opened.get(name)
        if found is None or not found.refresh():
            found = self._opened[name] = create_for(self._tables, name, self._cluster_id)
        return found

    @property
    def _origin(self) -> dict[str, Any]:
        return {"cluster_id": self._cluster_id, "run_id": self._run_id}

    @property
    def _anchor(self) -> dict[str, Any]:
        """The newest audit row, as rows of other tables keep it: they show when the end of the audit is cut off."""
        tail = self._log.tail()
        return {} if tail is None else {"audit_sequence": tail.sequence, "audit_hash": tail.row_hash}

    def _accounted(self, entries: Sequence[AuditEntry]) -> list[AuditEntry]:
        if not self._unnoted:
            return list(entries)
        first, *others = entries
        detail = {**first.detail, "executions": {"rows": len(self._unnoted), "hash": rows_digest(self._unnoted)}}
        return [replace(first, detail=detail), *others]

    def _append(self, snapshot: TableSnapshot, rows: Sequence[Mapping[str, Any]]) -> None:
        from acktrail.tables.delta.compaction import compact_small_files
        from acktrail.tables.delta.row_values import append_rows

        append_rows(self._tables, snapshot.name, rows, at=snapshot)
        compact_small_files(self._tables, snapshot)

    def _note_stored(self, row: Mapping[str, Any], parts: Callable[[], list[dict[str, Any]]]) -> None:
        """See that the audit knows a stored plan, and as it is; one that an older release stored, or a process that was
        killed, is noted now."""
        known = self.audit({"plan_id": row["plan_id"]})
        if any(audited.plan_hash != row["plan_hash"] for audited in known):
            text = f"plan {row['plan_id']} is not the one that was planned: the audit has another hash"
            raise PlanStale("edited_plan", text, hint="plan again, and see acktrail reset audit")
        if not any(audited.event == Event.PLANNED for audited in known):
            self.note([planned_entry(row, parts())])

    def _stamp(self) -> Stamp:
        host, _ = host_and_pid()
        return Stamp(cluster_id=self._cluster_id, run_id=self._run_id, actor=self._actor, host=host, at=self._clock())


def _stored_rows(name: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`rows` with the columns alone that table `name` keeps."""
    from acktrail.columnar.schemas.table_schemas import TABLES

    columns = TABLES[name].names
    return [{column: row[column] for column in columns if column in row} for row in rows]


def planned_entry(row: Mapping[str, Any], partitions: Sequence[Mapping[str, Any]]) -> AuditEntry:
    """What the audit keeps of a stored plan: the hashes of its rows."""
    detail = {"plan": row_digest(row), "partitions": rows_digest(partitions), "rows": len(partitions)}
    return AuditEntry(
        kind=row["kind"],
        event=Event.PLANNED,
        plan_id=row["plan_id"],
        plan_hash=row["plan_hash"],
        attempt=0,
        detail=detail,
    )


def _lease_refused(entries: Sequence[AuditEntry], error: ChangeInProgress) -> AuditEntry:
    detail = {
        "groups": [entry.group_id for entry in entries],
        "kept_by": error.plan_id,
        "group": error.group_id,
        "hint": error.hint,
    }
    return replace(entries[0], event=Event.LEASE_REFUSED, group_id=None, outcome=None, detail=detail)


def read_audit(tables: TablesConfig, equal: Mapping[str, object] = _ANY) -> list[AuditRow]:
    """Rows of ``reset_audit``, in order; none when there is no such table yet."""
    from acktrail.tables.delta.row_values import read_rows
    from acktrail.tables.delta.store import Tables

    return in_order(AuditRow.from_row(row) for row in read_rows(Tables(tables), AUDIT, equal))


def read_executions(tables: TablesConfig, plan_id: str) -> list[dict[str, Any]]:
    """Rows of ``reset_executions`` of a plan, oldest first."""
    from acktrail.tables.delta.row_values import read_rows
    from acktrail.tables.delta.store import Tables

    return _by_time(read_rows(Tables(tables), _EXECUTIONS, {"plan_id": plan_id}))


def _by_time(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["verified_at"], row["attempt"]))


def read_plan_rows(
    tables: TablesConfig, equal: Mapping[str, object] = _ANY, *, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Rows of ``reset_plans``, oldest first; none when there is no such table yet."""
    from acktrail.tables.delta.row_values import read_rows
    from acktrail.tables.delta.store import Tables

    wanted = None if columns is None else [*columns, "created_at"]
    rows = read_rows(Tables(tables), _PLANS, equal, columns=wanted)
    return sorted(rows, key=lambda row: row["created_at"])


def read_plan_row(tables: TablesConfig, plan_id: str) -> dict[str, Any]:
    """One row of ``reset_plans``.

    Raises:
        UnknownName: there is none; with the nearest ids.
    """
    found = read_plan_rows(tables, {"plan_id": plan_id})
    if not found:
        known = [row["plan_id"] for row in read_plan_rows(tables, columns=["plan_id"])]
        raise UnknownName("plan", plan_id, nearest=difflib.get_close_matches(plan_id, known, n=3))
    return found[0]


def _in_progress(held: GroupStatus, now_ms: int) -> ChangeInProgress:
    if held.at(now_ms).standing is ChangeStatus.RUNNING and held.lease is not None:
        left = (held.lease.expires_at_ms - now_ms) // 1000 + 1
        hint = f"process {held.lease.pid} on {held.lease.host} has it, for at most {left} s more"
    else:
        hint = f"settle it first: acktrail reset verify {held.plan_id}"
    return ChangeInProgress(held.group_id, plan_id=held.plan_id, hint=hint)
