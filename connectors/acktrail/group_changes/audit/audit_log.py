"""The audit in its table: appended to by several writers in turn, read no further back than a question needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from acktrail.errors import ConcurrentCommit, ConfigurationError
from acktrail.group_changes.audit.audit_chain import (
    AuditEntry,
    AuditRow,
    Event,
    Stamp,
    chained,
    first_link,
    in_order,
    is_sealed,
)
from acktrail.group_changes.lifecycle.change_status import ChangeStatus, GroupStatus, standings

if TYPE_CHECKING:
    from acktrail.tables.delta.store import Tables
    from acktrail.tables.delta.table_snapshot import TableSnapshot


AUDIT: Final = "reset_audit"
SEQUENCE: Final = "sequence"
"""The app id in ``reset_audit`` whose number is the newest sequence: only a writer that knows it appends, and rows
that are missing at the end are missed."""
_SETTLED: Final = "settled"
"""The app id whose number is a sequence: the rows before it block no group any more."""
_ATTEMPTS: Final = 30
_ENDS: Final = frozenset({Event.LEASE_RELEASED, Event.PLANNED, Event.APPROVED, Event.REJECTED, Event.LEASE_REFUSED})
"""Events at which nothing waits for the writer: files are put together then."""
_FORGOTTEN_AFTER_MS: Final = 86_400_000
"""A lease that ran out this long ago blocks no one, by any clock."""
_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})

Check = Callable[[list[AuditRow]], None]
"""Raises when rows that it is given forbid what is about to be noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The newest row: its sequence and its hash."""

    sequence: int
    row_hash: str


class AuditLog:
    """``reset_audit`` of one cluster. Not for several threads."""

    def __init__(self, tables: Tables, cluster_id: str) -> None:
        self._tables = tables
        self._cluster_id = cluster_id
        self._tail: Tail | None = None
        self._snapshot: TableSnapshot | None = None
        self._is_own = False
        self._of_plans: dict[str, list[AuditRow]] = {}
        """Rows by plan, as of `_read_version`: what was read is not read again until another writer appends."""
        self._read_version = -1

    def append(
        self, entries: Sequence[AuditEntry], stamp: Callable[[], Stamp], *, check: Check | None = None, now_ms: int
    ) -> None:
        """Append `entries` in one commit, right after the newest row. Two writers cannot both be right: who was
        overtaken tries again. Raises as `Journal.note`.

        `check` is given the rows of every change that may still keep others from its groups. How many those are follows
        from how many changes are open, not from how many there were.
        """
        from acktrail.tables.delta.compaction import compact_small_files
        from acktrail.tables.delta.row_values import append_rows

        for _ in range(_ATTEMPTS):
            snapshot = self._own()
            newest = snapshot.transaction_version(SEQUENCE)
            settled, tail = self._looked_at(snapshot, newest, check, now_ms)
            previous = first_link(self._cluster_id) if tail is None else tail.row_hash
            sequence, base = 0 if newest is None else newest + 1, snapshot.version
            rows = chained(entries, stamp(), sequence=sequence, previous_hash=previous)
            try:
                append_rows(
                    self._tables,
                    AUDIT,
                    [row.to_row() for row in rows],
                    transactions={SEQUENCE: rows[-1].sequence, **settled},
                    expected={SEQUENCE: newest},
                    at=snapshot,
                )
            except ConcurrentCommit:
                self._snapshot = None
                continue
            self._tail = Tail(sequence=rows[-1].sequence, row_hash=rows[-1].row_hash)
            self._remember(rows, before=base, now=snapshot.version)
            if rows[-1].event in _ENDS:
                compact_small_files(self._tables, snapshot)
            return
        raise ConcurrentCommit("reset_audit is under constant change by other writers", hint="run again")

    def rows(self, equal: Mapping[str, object] = _NOTHING, *, first: int = 0) -> list[AuditRow]:
        """The rows from sequence `first` on whose columns have these values, in order."""
        snapshot = self._newest()
        if snapshot is None:
            return []
        plan_id = equal.get("plan_id")
        if first or len(equal) != 1 or not isinstance(plan_id, str):
            return _rows(snapshot, equal, first)
        if snapshot.version != self._read_version:
            self._of_plans, self._read_version = {}, snapshot.version
        if plan_id not in self._of_plans:
            self._of_plans[plan_id] = _rows(snapshot, equal, 0)
        return list(self._of_plans[plan_id])

    def tail(self) -> Tail | None:
        """The newest row; None: there is none.

        Raises:
            ConfigurationError: it is missing, there twice, or was altered.
        """
        snapshot = self._newest()
        if snapshot is None:
            return None
        newest = snapshot.transaction_version(SEQUENCE)
        if newest is None:
            return None
        self._tail = self._known(newest) or self._tail_of(newest, _rows(snapshot, {SEQUENCE: newest}, newest))
        return self._tail

    def _remember(self, rows: Sequence[AuditRow], *, before: int, now: int) -> None:
        """Add own rows to those read at version `before`, when no other commit came between."""
        if (before, now) == (self._read_version, before + 1):
            for plan_id, known in self._of_plans.items():
                known += [row for row in rows if row.plan_id == plan_id]
            self._read_version = now

    def _newest(self) -> TableSnapshot | None:
        """The newest version; None: there is no table yet. Once read, only what came since is read."""
        if self._snapshot is None or not self._snapshot.refresh():
            self._snapshot = self._tables.snapshot(AUDIT)
        return self._snapshot

    def _own(self) -> TableSnapshot:
        """The newest version of a table that is the cluster's own; made if need be."""
        from acktrail.tables.cluster_check import create_for

        found = self._newest() if self._is_own else None
        if found is None:
            found = self._snapshot = create_for(self._tables, AUDIT, self._cluster_id)
            self._is_own = True
        return found

    def _looked_at(
        self, snapshot: TableSnapshot, newest: int | None, check: Check | None, now_ms: int
    ) -> tuple[dict[str, int], Tail | None]:
        """What to commit as settled after `check`, and the newest row."""
        if newest is None:
            if check is not None:
                check([])
            return {}, None
        if check is None:
            return {}, self._known(newest) or self._tail_of(newest, _rows(snapshot, {SEQUENCE: newest}, newest))
        first = min(snapshot.transaction_version(_SETTLED) or 0, newest)
        rows = _rows(snapshot, {}, first)
        tail = self._tail_of(newest, [row for row in rows if row.sequence == newest])
        check(rows)
        open_from = first_open(rows, now_ms=now_ms)
        return {_SETTLED: newest + 1 if open_from is None else open_from}, tail

    def _known(self, newest: int) -> Tail | None:
        return self._tail if self._tail is not None and self._tail.sequence == newest else None

    def _tail_of(self, newest: int, rows: Sequence[AuditRow]) -> Tail:
        """The newest row, which every row to come vouches for."""
        if len(rows) == 1 and is_sealed(rows[0]):
            return Tail(sequence=newest, row_hash=rows[0].row_hash)
        what = "is missing" if not rows else "was altered" if len(rows) == 1 else "is there more than once"
        raise ConfigurationError(
            f"tables at {self._tables.root}: the audit is broken: its newest row, {newest}, {what}",
            hint="see acktrail reset audit; bring the table reset_audit back from a copy",
            data={"table": AUDIT, "sequence": newest},
        )


def _rows(snapshot: TableSnapshot, equal: Mapping[str, object], first: int) -> list[AuditRow]:
    from acktrail.tables.delta.row_values import snapshot_rows

    least: dict[str, Any] = {SEQUENCE: first} if first else {}
    return in_order(AuditRow.from_row(row) for row in snapshot_rows(snapshot, equal, least=least))


def first_open(rows: Sequence[AuditRow], *, now_ms: int) -> int | None:
    """The first sequence in `rows` of a change that blocks others from its group, or may do so by another machine's
    clock; None: there is none. Rows before it need not be read again."""
    is_open = {
        (found.plan_id, found.group_id, found.attempt) for found in standings(rows) if _is_open(found, now_ms=now_ms)
    }
    return min((row.sequence for row in rows if (row.plan_id, row.group_id, row.attempt) in is_open), default=None)


def _is_open(found: GroupStatus, *, now_ms: int) -> bool:
    if found.lease is None:
        return False
    return found.standing is ChangeStatus.UNKNOWN or now_ms < found.lease.expires_at_ms + _FORGOTTEN_AFTER_MS
