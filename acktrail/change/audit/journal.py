"""Plans, attempts and their audit in the tables. Several writers append in turn; none reads further back than it
needs."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import pwd
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from acktrail import errors
from acktrail.change.audit.audit_chain import (
    AUDIT,
    EXECUTIONS,
    PLANS,
    AuditedPlan,
    AuditEntry,
    AuditRow,
    Event,
    audit_entry,
    chained,
    first_link,
    in_order,
    is_sealed,
    row_digest,
    rows_digest,
)
from acktrail.change.audit.plan_life import PLAN_AGAIN, ChangeStatus, GroupStatus, standings
from acktrail.config import TablesConfig, audit_key

if TYPE_CHECKING:
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.delta.table_snapshot import TableSnapshot

SEQUENCE: Final = "sequence"
"""The app id whose number is the newest sequence: only a writer that knows it appends, and rows that are missing at
the end are missed."""
_SETTLED: Final = "settled"
"""The app id whose number is a sequence: the rows before it block no group any more."""
_ATTEMPTS: Final = 30
_SMALL_FILES: Final = 32
_FULL_FILE_BYTES: Final = 256 * 1024
"""A file of at least this size is left to the maintenance, so that no change waits for more than a few of them."""
_ENDS: Final = frozenset(
    {Event.LEASE_RELEASED, Event.PLANNED, Event.APPROVED, Event.REJECTED, Event.LEASE_REFUSED, Event.LOOKED}
)
"""Events at which nothing waits for the writer: files are put together then."""
_FORGOTTEN_AFTER_MS: Final = 86_400_000
"""A lease that ran out this long ago blocks no one, by any clock."""
_ANY: Final[Mapping[str, object]] = MappingProxyType({})
_NEWEST: Final = "audit_sequence"
_TIMES: Final = {PLANS: "created_at", EXECUTIONS: "verified_at"}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Journal:
    """The tables of changes for one cluster; `actor` is the person for whom rows are written, with the key of the
    environment, if it has one. Not for several threads. Every method raises ForeignCluster if the root has tables of
    another cluster."""

    def __init__(
        self,
        tables: TablesConfig,
        *,
        cluster_id: str,
        run_id: str,
        actor: str,
        clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self.tables = tables
        self._cluster_id = cluster_id
        self._origin = {"cluster_id": cluster_id, "run_id": run_id}
        self._actor = actor
        self._clock = clock
        self._key = audit_key()
        self._own: dict[str, TableSnapshot] = {}
        """Tables that were seen to be the cluster's."""
        self._newest: AuditRow | None = None
        self._unnoted: list[dict[str, Any]] = []

    @cached_property
    def _tables(self) -> Tables:
        """The store of the tables, opened at the first use."""
        from acktrail.tables.cluster_check import ensure_root
        from acktrail.tables.delta.store import Tables

        opened = Tables(self.tables)
        ensure_root(opened, self._cluster_id)
        return opened

    @property
    def now_ms(self) -> int:
        """The journal's clock, ms since the epoch."""
        return (self._clock() - _EPOCH) // dt.timedelta(milliseconds=1)

    def note(self, entries: Sequence[AuditEntry], *, check: Callable[[list[AuditRow]], object] | None = None) -> None:
        """Append `entries` in one commit, right after the newest row; retry if another writer was first. The first
        entry keeps the hash of the results that this journal wrote since the last one. `check` gets the rows of every
        change that is open, at each try, and may raise; then nothing is written.

        Raises:
            ForeignCluster: the tables belong to another cluster.
            OutcomeUnknown, ConfigurationError, RetryableError: the storage failed, or the audit lost its newest row.
        """
        if self._unnoted:
            first, *others = entries
            results = {"rows": len(self._unnoted), "hash": rows_digest(self._unnoted)}
            entries = [replace(first, detail={**first.detail, "executions": results}), *others]
        for _ in range(_ATTEMPTS):
            audit = self._table(AUDIT)
            newest = audit.transaction_version(SEQUENCE)
            settled, tail = self._checked(audit, newest, check)
            sequence = 0 if newest is None else newest + 1
            previous = first_link(self._cluster_id) if tail is None else tail.row_hash
            stamp = {**self._origin, "actor": self._actor, "host": socket.gethostname(), "audited_at": self._clock()}
            rows = chained(entries, stamp, sequence=sequence, previous_hash=previous, key=self._key)
            values, numbers = [asdict(row) for row in rows], {SEQUENCE: rows[-1].sequence, **settled}
            try:
                self._tables.append(AUDIT, values, transactions=numbers, expected={SEQUENCE: newest}, at=audit)
            except errors.ConcurrentCommit:
                continue
            self._newest = rows[-1]
            if rows[-1].event in _ENDS:
                self._compact(AUDIT)
            self._unnoted = []
            return
        raise errors.ConcurrentCommit("reset_audit is changed all the time by other writers", hint="run again")

    def audit(self, equal: Mapping[str, object] = _ANY, *, first: int = 0) -> list[AuditRow]:
        """Return the audit rows from sequence `first` on whose columns have these values, in order."""
        snapshot = self._tables.followed(AUDIT)
        return [] if snapshot is None else _rows(snapshot, equal, first)

    def standings(self, equal: Mapping[str, object] = _ANY) -> list[GroupStatus]:
        """Return the status of every change of these groups or plans."""
        return standings(self.audit(equal))

    def write_plan(self, plan: AuditedPlan) -> None:
        """Store a plan, once, and record its hashes in the audit; also of a plan whose process was killed in between.
        Raises PlanStale: another plan has this id, or the stored one is not the one that was planned."""
        plans = self._table(PLANS)
        stored = plans.rows({"plan_id": plan.plan_id})
        if not stored:
            (row,) = self._append(plans, [{**self._origin, **self._anchor(), **plan.row()}])
            self.note([planned_entry(plan, row)])
            return
        if any(found["plan_hash"] != plan.plan_hash for found in stored):
            text = f"plan {plan.plan_id} was stored with another hash"
            raise errors.PlanStale("edited_plan", text, hint=PLAN_AGAIN)
        if not self.is_planned(plan):
            self.note([planned_entry(plan, stored[0])])

    def is_planned(self, plan: AuditedPlan) -> bool:
        """Return whether the audit says that `plan` was stored. Raises PlanStale: it has another plan with this id."""
        rows = self.audit({"plan_id": plan.plan_id})
        if any(row.plan_hash != plan.plan_hash for row in rows):
            text = f"plan {plan.plan_id} is not the plan that was stored: the audit has another hash"
            raise errors.PlanStale("edited_plan", text, hint=f"{PLAN_AGAIN}, and see acktrail change audit")
        return any(row.event == Event.PLANNED for row in rows)

    def write_executions(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append outcomes of share partitions, found now, to ``reset_executions``, each with plan and attempt. `note`
        something afterwards, so that the audit vouches for them."""
        about = {**self._origin, **self._anchor(), "verified_at": self._clock()}
        self._unnoted += self._append(self._table(EXECUTIONS), [{**about, **row} for row in rows])

    def executions(self, plan_id: str) -> list[dict[str, Any]]:
        """Return the rows of ``reset_executions`` of a plan, oldest first; none if there is no such table yet."""
        snapshot = self._tables.followed(EXECUTIONS)
        return [] if snapshot is None else _ordered(EXECUTIONS, snapshot.rows({"plan_id": plan_id}))

    def _table(self, name: str) -> TableSnapshot:
        """Return the newest version of a table of the cluster, created if need be."""
        from acktrail.tables.cluster_check import create_for

        found = self._tables.followed(name)
        if found is None or found is not self._own.get(name):
            found = self._own[name] = create_for(self._tables, name, self._cluster_id)
        return found

    def _append(self, snapshot: TableSnapshot, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Append `rows`; return what was stored: the columns that the table has."""
        from acktrail.format.columns.schemas.table_schemas import TABLES

        columns = TABLES[snapshot.name].names
        written = [{column: row[column] for column in columns if column in row} for row in rows]
        if written:
            self._tables.append(snapshot.name, written, at=snapshot)
            self._compact(snapshot.name)
        return written

    def _compact(self, name: str) -> None:
        """Compact small files. If that fails, or another process does it, the next time is soon enough."""
        from acktrail.tables.upkeep.file_rewrite import compact_files

        with contextlib.suppress(errors.AcktrailError):
            compact_files(self._tables, name, more_than=_SMALL_FILES, below_bytes=_FULL_FILE_BYTES)

    def _anchor(self) -> dict[str, Any]:
        """Return the newest audit row as rows of other tables keep it: they show when the end of the audit is cut
        off."""
        audit = self._tables.followed(AUDIT)
        newest = None if audit is None else audit.transaction_version(SEQUENCE)
        if audit is None or newest is None:
            return {}
        tail = self._tail(audit, newest)
        return {"audit_sequence": tail.sequence, "audit_hash": tail.row_hash}

    def _checked(
        self, audit: TableSnapshot, newest: int | None, check: Callable[[list[AuditRow]], object] | None
    ) -> tuple[dict[str, int], AuditRow | None]:
        """Return what to commit as settled after `check`, and the newest row."""
        if newest is None:
            if check is not None:
                check([])
            return {}, None
        if check is None:
            return {}, self._tail(audit, newest)
        rows = _rows(audit, first=min(audit.transaction_version(_SETTLED) or 0, newest))
        tail = self._sealed(newest, [row for row in rows if row.sequence == newest])
        check(rows)
        open_from = first_open(rows, now_ms=self.now_ms)
        return {_SETTLED: newest + 1 if open_from is None else open_from}, tail

    def _tail(self, audit: TableSnapshot, newest: int) -> AuditRow:
        if self._newest is None or self._newest.sequence != newest:
            self._newest = self._sealed(newest, _rows(audit, {SEQUENCE: newest}, newest))
        return self._newest

    def _sealed(self, newest: int, rows: Sequence[AuditRow]) -> AuditRow:
        """Return the newest row, which every later row vouches for."""
        if len(rows) == 1 and is_sealed(rows[0], self._key):
            return rows[0]
        what = "is missing" if not rows else "was altered" if len(rows) == 1 else "is there more than once"
        raise errors.ConfigurationError(
            f"tables at {self._tables.root}: the audit is broken: its newest row, {newest}, {what}",
            hint="see acktrail change audit; restore the table reset_audit from a backup",
            data={"table": AUDIT, "sequence": newest},
        )


def account() -> str:
    """Return the account of this process, from the system and not from the environment, which anybody may set."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def planned_entry(plan: AuditedPlan, row: Mapping[str, Any]) -> AuditEntry:
    """Return what the audit keeps of a stored plan: the hash of its row."""
    return audit_entry(plan, 0, Event.PLANNED, detail={"plan": row_digest(row)})


def first_open(rows: Sequence[AuditRow], *, now_ms: int) -> int | None:
    """Return the first sequence in `rows` of a change that keeps others from its group, or may do so by another
    machine's clock; None: there is none. Rows before it need not be read again."""
    is_open = {
        (found.plan_id, found.group_id, found.attempt)
        for found in standings(rows)
        if found.lease is not None
        and (found.standing is ChangeStatus.UNKNOWN or now_ms < found.lease.expires_at_ms + _FORGOTTEN_AFTER_MS)
    }
    own = (row.sequence for row in rows if (row.plan_id, row.group_id or "", row.attempt) in is_open)
    return min(own, default=None)


def read_audit(tables: TablesConfig, equal: Mapping[str, object] = _ANY) -> list[AuditRow]:
    """Return the rows of ``reset_audit``, in order; none if there is no such table yet."""
    from acktrail.tables.delta.store import Tables

    return in_order(AuditRow(**row) for row in Tables(tables).rows(AUDIT, equal))


def read_executions(
    tables: TablesConfig, plan_ids: Sequence[str], *, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return the rows of ``reset_executions`` of these plans, oldest first."""
    return _read(tables, EXECUTIONS, {"plan_id": list(plan_ids)}, columns)


def read_plan_rows(
    tables: TablesConfig, equal: Mapping[str, object] = _ANY, *, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Return rows of ``reset_plans``, oldest first; none if there is no such table yet."""
    return _read(tables, PLANS, equal, columns)


def read_plan_row(tables: TablesConfig, plan_id: str) -> dict[str, Any]:
    """Return one row of ``reset_plans``. Raises UnknownName, with the nearest ids, if there is none."""
    found = read_plan_rows(tables, {"plan_id": plan_id})
    if not found:
        known = [row["plan_id"] for row in read_plan_rows(tables, columns=["plan_id"])]
        raise errors.UnknownName("plan", plan_id, known=known)
    return found[0]


def _read(
    tables: TablesConfig, name: str, equal: Mapping[str, object], columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    from acktrail.tables.delta.store import Tables

    needed = None if columns is None else [*dict.fromkeys((*columns, _NEWEST, _TIMES[name]))]
    return _ordered(name, Tables(tables).rows(name, equal, columns=needed))


def _ordered(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sort `rows` by their commits, which the newest audit row of their time shows; rows beside the same one by
    time."""
    return sorted(rows, key=lambda row: (-1 if row[_NEWEST] is None else row[_NEWEST], str(row[_TIMES[name]])))


def _rows(snapshot: TableSnapshot, equal: Mapping[str, object] = _ANY, first: int = 0) -> list[AuditRow]:
    least = {SEQUENCE: first} if first else {}
    return in_order(AuditRow(**row) for row in snapshot.rows(equal, least=least))
