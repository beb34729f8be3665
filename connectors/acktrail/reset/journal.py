"""Plans, attempts and their audit in the tables."""

from __future__ import annotations

import datetime as dt
import difflib
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from acktrail.config import TablesConfig
from acktrail.errors import ChangeInProgress, ConcurrentCommit, ConfigurationError, PlanStale, UnknownName
from acktrail.reset.audit import AuditEntry, AuditRow, ChainReport, Stamp, chained, check_chain, first_link
from acktrail.reset.standing import GroupStanding, Standing, blocking, standings

__all__ = ["Journal", "here", "read_audit", "read_executions", "read_plan_row", "read_plan_rows"]

Clock = Callable[[], dt.datetime]

_AUDIT: Final = "reset_audit"
_SEQUENCE: Final = "sequence"
"""The app id in ``reset_audit`` whose number is the newest sequence: whoever does not know it may not append."""
_ATTEMPTS: Final = 30
_ANY: Final[Mapping[str, object]] = MappingProxyType({})
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def here() -> tuple[str, int]:
    """This machine and process."""
    return socket.gethostname(), os.getpid()


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Journal:
    """The tables of changes for one cluster; `actor` is who they are noted for. Not for several threads."""

    def __init__(
        self, tables: TablesConfig, *, cluster_id: str, run_id: str, actor: str, clock: Clock = _utc_now
    ) -> None:
        from acktrail.tables.store import Tables

        self._config = tables
        self._tables = Tables(tables)
        self._cluster_id = cluster_id
        self._run_id = run_id
        self._actor = actor
        self._clock = clock
        self._tail: tuple[int, str] | None = None

    @property
    def now_ms(self) -> int:
        """The journal's clock, ms since the epoch."""
        return (self._clock() - _EPOCH) // dt.timedelta(milliseconds=1)

    def note(self, entries: Sequence[AuditEntry], *, check: Callable[[list[AuditRow]], None] | None = None) -> None:
        """Append `entries` in one commit, right after the newest row. `check` looks at all rows before, and may raise;
        then nothing is written. Two writers cannot both be right: who was overtaken looks again.

        Raises:
            ForeignCluster: the tables belong to another cluster.
            OutcomeUnknown, ConfigurationError, RetryableError: the storage failed.
        """
        from acktrail.tables.identity import create_for
        from acktrail.tables.plain_rows import append_rows

        create_for(self._tables, _AUDIT, self._cluster_id)
        for _ in range(_ATTEMPTS):
            newest = self._tables.transaction_version(_AUDIT, _SEQUENCE)
            if check is not None:
                check(self.audit())
            rows = chained(
                entries,
                self._stamp(),
                sequence=0 if newest is None else newest + 1,
                previous_hash=self._hash_of(newest),
            )
            try:
                append_rows(
                    self._tables,
                    _AUDIT,
                    [row.to_row() for row in rows],
                    transactions={_SEQUENCE: rows[-1].sequence},
                    expected={_SEQUENCE: newest},
                )
            except ConcurrentCommit:
                continue
            self._tail = (rows[-1].sequence, rows[-1].row_hash)
            return
        raise ConcurrentCommit("reset_audit is under constant change by other writers", hint="run again")

    def audit(self, equal: Mapping[str, object] = _ANY) -> list[AuditRow]:
        """The rows of the audit whose columns have these values, in order."""
        return read_audit(self._config, equal)

    def check_chain(self) -> ChainReport:
        """Whether the audit is whole."""
        return check_chain(self.audit(), self._cluster_id)

    def standings(self, equal: Mapping[str, object] = _ANY) -> list[GroupStanding]:
        """How every change of these groups or plans stands, as the rows say it."""
        return standings(self.audit(equal))

    def take_lease(self, entries: Sequence[AuditEntry], *, check: Callable[[], object] | None = None) -> None:
        """Note the beginning of a change (`lease_taken`, one entry a group), unless one of its groups is being changed,
        or `check` raises: it is called again when another writer was first.

        Raises:
            ChangeInProgress: by another plan or process, or with an outcome that nobody verified.
        """

        def check_groups(rows: list[AuditRow]) -> None:
            if check is not None:
                check()
            found, now_ms = standings(rows), self.now_ms
            for entry in entries:
                held = blocking(found, entry.group_id or "", now_ms=now_ms)
                if held is not None:
                    raise _in_progress(held, now_ms)

        self.note(entries, check=check_groups)

    def write_plan(self, row: Mapping[str, Any], partitions: Sequence[Mapping[str, Any]]) -> None:
        """Store a plan, once: one that is there already must have the same hash.

        Raises:
            PlanStale: another plan has this id.
            ForeignCluster: the tables belong to another cluster.
        """
        from acktrail.tables.identity import create_for
        from acktrail.tables.plain_rows import append_rows

        for name in ("reset_plans", "reset_plan_partitions"):
            create_for(self._tables, name, self._cluster_id)
        stored = read_plan_rows(self._config, {"plan_id": row["plan_id"]}, columns=["plan_hash"])
        if stored:
            if stored[0]["plan_hash"] != row["plan_hash"]:
                raise PlanStale("edited_plan", f"plan {row['plan_id']} was stored with another hash", hint="plan again")
            return
        origin = {"cluster_id": self._cluster_id, "run_id": self._run_id}
        if partitions:
            append_rows(self._tables, "reset_plan_partitions", [{**origin, **part} for part in partitions])
        append_rows(self._tables, "reset_plans", [{**origin, **row}])

    def write_executions(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows of ``reset_executions``."""
        from acktrail.tables.identity import create_for
        from acktrail.tables.plain_rows import append_rows

        create_for(self._tables, "reset_executions", self._cluster_id)
        origin = {"cluster_id": self._cluster_id, "run_id": self._run_id}
        append_rows(self._tables, "reset_executions", [{**origin, **row} for row in rows])

    def executions(self, plan_id: str) -> list[dict[str, Any]]:
        """Rows of ``reset_executions`` of a plan, oldest first."""
        return read_executions(self._config, plan_id)

    def _stamp(self) -> Stamp:
        host, _ = here()
        return Stamp(cluster_id=self._cluster_id, run_id=self._run_id, actor=self._actor, host=host, at=self._clock())

    def _hash_of(self, sequence: int | None) -> str:
        if sequence is None:
            return first_link(self._cluster_id)
        if self._tail is not None and self._tail[0] == sequence:
            return self._tail[1]
        (row,) = self.audit({"sequence": sequence}) or (None,)
        if row is None:
            raise ConfigurationError(
                f"tables at {self._tables.root}: row {sequence} of reset_audit is missing",
                hint="the audit was tampered with, or a file of it is lost: bring it back from a copy",
            )
        return row.row_hash


def read_audit(tables: TablesConfig, equal: Mapping[str, object] = _ANY) -> list[AuditRow]:
    """Rows of ``reset_audit``, in order; none when there is no such table yet."""
    from acktrail.tables.plain_rows import read_rows
    from acktrail.tables.store import Tables

    found = [AuditRow.from_row(row) for row in read_rows(Tables(tables), _AUDIT, equal)]
    return sorted(found, key=lambda row: row.sequence)


def read_executions(tables: TablesConfig, plan_id: str) -> list[dict[str, Any]]:
    """Rows of ``reset_executions`` of a plan, oldest first."""
    from acktrail.tables.plain_rows import read_rows
    from acktrail.tables.store import Tables

    rows = read_rows(Tables(tables), "reset_executions", {"plan_id": plan_id})
    return sorted(rows, key=lambda row: (row["verified_at"], row["attempt"]))


def read_plan_rows(
    tables: TablesConfig, equal: Mapping[str, object] = _ANY, *, columns: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """Rows of ``reset_plans``, oldest first; none when there is no such table yet."""
    from acktrail.tables.plain_rows import read_rows
    from acktrail.tables.store import Tables

    wanted = None if columns is None else [*columns, "created_at"]
    rows = read_rows(Tables(tables), "reset_plans", equal, columns=wanted)
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


def _in_progress(held: GroupStanding, now_ms: int) -> ChangeInProgress:
    if held.at(now_ms).standing is Standing.RUNNING and held.lease is not None:
        left = (held.lease.expires_at_ms - now_ms) // 1000 + 1
        hint = f"process {held.lease.pid} on {held.lease.host} has it, for at most {left} s more"
    else:
        hint = f"settle it first: acktrail reset verify {held.plan_id}"
    return ChangeInProgress(held.group_id, plan_id=held.plan_id, hint=hint)
