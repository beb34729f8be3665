"""Whether the tables of changes are as they were written: the audit whole up to its end, and plans and results those
that the audit knows. Pure.

The evidence, from the inside out: each audit row holds the hash of the one before; the table's log holds the newest
sequence; rows of plans and results hold the newest sequence and hash of their time; the audit holds their hashes. An
anchor that is kept elsewhere (`anchor`) shows what somebody who may write all of the tables has cut off.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from acktrail.group_changes.audit.audit_chain import (
    AuditRow,
    Event,
    check_chain,
    in_order,
    row_digest,
    rows_digest,
)

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A row of the audit as it once was: its sequence and hash. `where` names what remembers it."""

    sequence: int
    row_hash: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """Something that is not as it was written. `sequence`: the first audit row concerned, where it is one."""

    table: str
    why: str
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChanges:
    """What the tables hold. `newest`: the sequence that the log of ``reset_audit`` names as the newest; None: none.

    `settled_rows`: how many rows the audit had before plans and executions were read, None: all. What those
    rows speak of must be there; what later ones speak of may have come since.
    """

    audit: Sequence[AuditRow] = ()
    newest: int | None = None
    settled_rows: int | None = None
    plans: Sequence[Row] = ()
    partitions: Sequence[Row] = ()
    executions: Sequence[Row] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """`flaws` is empty when everything is as it was written. `plans` and `executions` count the rows that the audit
    vouches for; `plans_without_audit` and `executions_without_audit` those that it does not know: written by an older
    release, by a process that was killed in between, or by something that is not acktrail."""

    rows: int
    newest_sequence: int | None
    newest_hash: str | None
    broken_at: int | None
    why: str | None
    flaws: tuple[Flaw, ...]
    plans: int
    executions: int
    plans_without_audit: int
    executions_without_audit: int


def check_stored(stored: StoredChanges) -> AuditReport:
    """Compare everything that `stored` holds with everything else."""
    rows = in_order(stored.audit)
    flaws = [*_chain_flaws(rows, stored.newest), *_anchor_flaws(rows, stored)]
    plans = _Plans(rows, stored)
    executions = _Executions(rows, stored)
    flaws += [*plans.flaws(), *executions.flaws()]
    broken = next((flaw for flaw in flaws if flaw.sequence is not None), None)
    newest = rows[-1] if rows and broken is None else None
    return AuditReport(
        rows=len(rows),
        newest_sequence=None if newest is None else newest.sequence,
        newest_hash=None if newest is None else newest.row_hash,
        broken_at=None if broken is None else broken.sequence,
        why=None if broken is None else broken.why,
        flaws=tuple(flaws),
        plans=plans.known,
        executions=executions.known,
        plans_without_audit=plans.unknown,
        executions_without_audit=executions.unknown,
    )


def check_anchor(rows: Iterable[AuditRow], anchor: Anchor) -> Flaw | None:
    """What is wrong with the row that `anchor` remembers; None: it is there, as it was."""
    found = [row for row in rows if row.sequence == anchor.sequence]
    if any(row.row_hash == anchor.row_hash for row in found):
        return None
    what = "it is another one" if found else "it is missing"
    return Flaw(table="reset_audit", sequence=anchor.sequence, why=f"{what}: {anchor.where} has noted its hash")


def _chain_flaws(rows: Sequence[AuditRow], newest: int | None) -> Iterator[Flaw]:
    chain = check_chain(rows, rows[0].cluster_id if rows else "")
    if chain.broken_at is not None:
        yield Flaw(table="reset_audit", sequence=chain.broken_at, why=chain.why or "")
        return
    last = len(rows) - 1
    if newest is None and rows:
        yield Flaw(table="reset_audit", sequence=last, why="the table was replaced: its log does not know its rows")
    elif newest is not None and newest != last:
        where = min(newest, last) + 1
        why = f"the log has rows up to {newest}, and those after {last} are missing"
        if newest < last:
            why = f"rows were added past {newest}, the newest that the log knows"
        yield Flaw(table="reset_audit", sequence=where, why=why)


def _anchor_flaws(rows: Sequence[AuditRow], stored: StoredChanges) -> Iterator[Flaw]:
    """The first row that other tables remember otherwise."""
    anchors = sorted(
        {
            (row["audit_sequence"], row["audit_hash"], f"{table}, plan {row['plan_id']}")
            for table, found in (("reset_plans", stored.plans), ("reset_executions", stored.executions))
            for row in found
            if row.get("audit_sequence") is not None
        }
    )
    by_sequence = {row.sequence: row for row in rows}
    for sequence, row_hash, where in anchors:
        same = [by_sequence[sequence]] if sequence in by_sequence else []
        flaw = check_anchor(same, Anchor(sequence=sequence, row_hash=row_hash, where=where))
        if flaw is not None:
            yield flaw
            return


class _Plans:
    """Rows of ``reset_plans`` and ``reset_plan_partitions`` against the rows that planned them."""

    def __init__(self, rows: Sequence[AuditRow], stored: StoredChanges) -> None:
        self._noted = {row.plan_id: _detail(row) for row in rows if row.event == Event.PLANNED}
        self._early = {row.plan_id for row in _settled(rows, stored) if row.event == Event.PLANNED}
        self._hashes: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            self._hashes[row.plan_id].add(row.plan_hash)
        self._plans: dict[str, list[Row]] = defaultdict(list)
        for plan in stored.plans:
            self._plans[plan["plan_id"]].append(plan)
        self._partitions: dict[str, list[Row]] = defaultdict(list)
        for part in stored.partitions:
            self._partitions[part["plan_id"]].append(part)
        self.known = sum(len(found) for plan_id, found in self._plans.items() if plan_id in self._noted)
        self.unknown = sum(len(found) for plan_id, found in self._plans.items() if plan_id not in self._noted)

    def flaws(self) -> Iterator[Flaw]:
        for plan_id in sorted(self._early):
            yield from self._of_planned(plan_id, self._noted[plan_id])
        for plan_id, plans in self._plans.items():
            known = self._hashes.get(plan_id)
            if plan_id not in self._noted and known and {plan["plan_hash"] for plan in plans} != known:
                yield Flaw(table="reset_plans", why=f"plan {plan_id} is another than the audit has: its hash differs")

    def _of_planned(self, plan_id: str, noted: Row) -> Iterator[Flaw]:
        plans, parts = self._plans.get(plan_id, []), self._partitions.get(plan_id, [])
        if not plans:
            yield Flaw(table="reset_plans", why=f"plan {plan_id} is missing")
        elif len(plans) > 1:
            yield Flaw(table="reset_plans", why=f"plan {plan_id} is there {len(plans)} times")
        elif row_digest(plans[0]) != noted.get("plan"):
            yield Flaw(table="reset_plans", why=f"plan {plan_id} was altered")
        if len(parts) != noted.get("rows"):
            why = f"plan {plan_id} had {noted.get('rows')} share partitions and has {len(parts)}"
            yield Flaw(table="reset_plan_partitions", why=why)
        elif rows_digest(parts) != noted.get("partitions"):
            yield Flaw(table="reset_plan_partitions", why=f"a share partition of plan {plan_id} was altered")


class _Executions:
    """Rows of ``reset_executions`` against the audit rows that vouch for them: of the same run, by the newest audit row
    of the time when they were written."""

    def __init__(self, rows: Sequence[AuditRow], stored: StoredChanges) -> None:
        early = len(_settled(rows, stored))
        noted: dict[str, list[tuple[AuditRow, Row, bool]]] = defaultdict(list)
        for index, row in enumerate(rows):
            found = _detail(row).get("executions")
            if isinstance(found, Mapping) and row.sequence is not None:
                noted[row.run_id].append((row, found, index < early))
        written: dict[str, list[Row]] = defaultdict(list)
        for each in stored.executions:
            written[each["run_id"]].append(each)
        self._flaws: list[Flaw] = []
        self.known = 0
        for run_id, notes in noted.items():
            self._compare(notes, written[run_id])
        self.unknown = len(stored.executions) - self.known

    def flaws(self) -> Iterator[Flaw]:
        yield from self._flaws

    def _compare(self, notes: Sequence[tuple[AuditRow, Row, bool]], written: Sequence[Row]) -> None:
        first = -1
        for row, noted, is_early in notes:
            mine = [each for each in written if first <= _newest_then(each) < row.sequence]
            first = row.sequence
            self.known += len(mine)
            about = f"of plan {row.plan_id}, attempt {row.attempt}"
            if is_early and len(mine) != noted.get("rows"):
                why = f"results {about}: {noted.get('rows')} were written and {len(mine)} are there"
                self._flaws.append(Flaw(table="reset_executions", why=why))
            elif is_early and rows_digest(mine) != noted.get("hash"):
                self._flaws.append(Flaw(table="reset_executions", why=f"a result {about} was altered"))


def _newest_then(row: Row) -> int:
    sequence = row.get("audit_sequence")
    return -1 if sequence is None else int(sequence)


def _settled(rows: Sequence[AuditRow], stored: StoredChanges) -> Sequence[AuditRow]:
    return rows[: stored.settled_rows]


def _detail(row: AuditRow) -> Row:
    try:
        found = json.loads(row.detail)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
