"""The status of stored plans and the outcomes of their share partitions, as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from acktrail.change.audit.audit_chain import AuditRow, Event
from acktrail.change.audit.journal import Journal, read_audit, read_executions, read_plan_row, read_plan_rows
from acktrail.change.audit.plan_life import DECIDES, PlanLife, Status, life_of, note_of
from acktrail.change.audit.sent_requests import Key
from acktrail.change.change_kind import Row, new_plan
from acktrail.change.plan.change_plan import DAY_MS, ChangePlan, PartitionPlan
from acktrail.change.plan.reset_plan import UNDO
from acktrail.change.undo import UndoLedger, read_ledger
from acktrail.config import TablesConfig
from acktrail.times import now_ms, utc_text

_LISTED: Final = ("plan_id", "created_by", "kind", "strategy", "undoes", "partitions", "refusals")


def outcomes(journal: Journal, plan: ChangePlan, found: Iterable[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return the outcome of every share partition of `plan` as JSON: what a verification `found` just now, else its
    newest row of ``reset_executions``, else NOT_ATTEMPTED. Empty if nothing was ever attempted."""
    verified, newest = _newest(found), _newest(journal.executions(plan.plan_id))
    rows = plan.partitions if newest else ()
    return [verified.get(row.key) or _outcome(row, newest.get(row.key)) for row in rows]


def list_plans(tables: TablesConfig, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Return every plan with its status and that of each group, newest first, as JSON."""
    at_ms = now_ms()
    plans = read_plan_rows(tables, columns=[*_LISTED, "group_ids"])
    by_plan: dict[str, list[AuditRow]] = defaultdict(list)
    for row in read_audit(tables):
        by_plan[row.plan_id].append(row)
    undos = [row for row in plans if row["kind"] == UNDO and row["undoes"]]
    ledger = read_ledger(tables, [row["undoes"] for row in undos], undos)
    return [_line(row, by_plan[row["plan_id"]], ledger, at_ms) for row in plans[::-1][:limit]]


def plan_status(tables: TablesConfig, plan_id: str) -> dict[str, Any]:
    """Return the status of one plan as JSON: its standing, who decided what, its groups, and the newest `executions`.
    Raises UnknownName: the tables know nothing of it, so that what became of it is not known; as ``Tables``."""
    rows = read_audit(tables, {"plan_id": plan_id})
    stored = read_plan_rows(tables, {"plan_id": plan_id}, columns=["plan_id", "kind", "refusals"])
    if not rows and not stored:
        read_plan_row(tables, plan_id)
    about: Row = stored[0] if stored else {"plan_id": plan_id, "kind": "", "refusals": 0, "created_at": None}
    life = _life(about, rows, read_ledger(tables, [plan_id]), now_ms())
    groups = [{"group_id": one.group_id, "attempt": one.attempt, "standing": one.standing.value} for one in life.groups]
    executions = [_execution(row) for row in _newest(read_executions(tables, [plan_id])).values()]
    return {**_of_life(life, about["kind"]), "groups": groups, "executions": executions}


def _life(row: Row, rows: Iterable[AuditRow], ledger: UndoLedger, at_ms: int) -> PlanLife:
    plan_id, created_at, is_refused = row["plan_id"], row["created_at"], bool(row["refusals"])
    is_expired = created_at is not None and at_ms - created_at.timestamp() * 1000 > DAY_MS
    undone = ledger.undone(plan_id)
    return life_of(plan_id, rows, now_ms=at_ms, is_refused=is_refused, is_expired=is_expired, undone=undone)


def _newest(rows: Iterable[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    """Return the newest of these rows of ``reset_executions`` by share partition."""
    return {_key(row): row for row in rows}


def _key(row: Row) -> Key:
    return row["group_id"], row["topic"], row["partition"]


def _execution(row: Row) -> dict[str, Any]:
    at = row["verified_at"]
    return {**row, "verified_at": None if at is None else at.isoformat(), "advice": ""}


def _outcome(row: PartitionPlan, newest: Row | None) -> dict[str, Any]:
    """Return the newest outcome of a share partition; None: no attempt came to it."""
    from acktrail.change.verify.partition_outcome import verified_partition

    never_sent = verified_partition(row, Status.NOT_ATTEMPTED, "it was not sent", verified_at=None)
    return never_sent if newest is None else _execution(newest)


def _of_life(life: PlanLife, kind: str) -> dict[str, Any]:
    decisions = [
        {"decision": DECIDES[row.event].value, "by": row.actor, "at": utc_text(row.audited_at), "why": note_of(row)}
        for row in life.decisions
    ]
    about = {"standing": life.standing.value, "verified": life.verified, "next": life.next(new_plan(kind)).command}
    return {**about, "decisions": decisions, "undone_by": list(life.undone_by)}


def _line(row: Row, rows: Sequence[AuditRow], ledger: UndoLedger, at_ms: int) -> dict[str, Any]:
    """Return the line of a plan. A damaged plan is UNREADABLE and takes no other with it."""
    line = {**{name: row[name] for name in _LISTED}, "created_at": None, "groups": row["group_ids"] or []}
    try:
        life = _life(row, rows, ledger, at_ms)
        return {
            **line,
            "created_by": _maker(row, rows),
            "created_at": utc_text(row["created_at"]),
            **_of_life(life, row["kind"]),
            "attempts": max((one.attempt for one in life.groups), default=0),
            "group_standings": {one.group_id: one.standing.value for one in life.groups},
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        damaged = {"standing": "UNREADABLE", "verified": None, "next": "acktrail change audit says what was altered"}
        return {**line, **damaged, "decisions": [], "undone_by": [], "attempts": 0, "group_standings": {}}


def _maker(row: Row, rows: Iterable[AuditRow]) -> str:
    """Return who stored a plan, and the name in its file if that is another."""
    stored_by = next((one.actor for one in rows if one.event == Event.PLANNED), row["created_by"])
    return stored_by if stored_by == row["created_by"] else f"{stored_by}, from a file that names {row['created_by']}"
