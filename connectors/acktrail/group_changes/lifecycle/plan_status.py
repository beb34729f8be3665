"""The status of plans and their results, read from the tables."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from acktrail.config import TablesConfig
from acktrail.group_changes.audit.audit_chain import AuditRow
from acktrail.group_changes.audit.journal import Journal, read_audit, read_executions, read_plan_row, read_plan_rows
from acktrail.group_changes.cluster import Cluster
from acktrail.group_changes.lifecycle.change_status import Status
from acktrail.group_changes.lifecycle.plan_life import PlanLife, life_of
from acktrail.group_changes.lifecycle.undo import UndoLedger, read_ledger, read_whole_ledger
from acktrail.group_changes.planning.plan import PartitionPlan, ResetPlan
from acktrail.group_changes.planning.plan_file import DAY_MS
from acktrail.times import now_ms, utc_text

_Row = Mapping[str, Any]
_LISTED: Final = ("plan_id", "created_by", "kind", "strategy", "undoes", "partitions", "refusals")


def done_before(cluster: Cluster, journal: Journal, plan: ResetPlan) -> frozenset[tuple[str, str, int]]:
    """The share partitions that an earlier attempt at `plan` brought to their targets, and that are there still."""
    rows = [row for row in journal.executions(plan.plan_id) if Status(row["status"]).is_ok]
    if not rows:
        return frozenset()
    now = {
        (answer.group_id, offset.topic, offset.partition): offset.start_offset
        for answer in cluster.admin.describe_group_offsets({row["group_id"] for row in rows})
        for offset in answer.offsets
    }
    return frozenset(key for key, row in _newest(rows).items() if now.get(key) == row["target_offset"])


def outcomes_of(journal: Journal, plan: ResetPlan) -> list[dict[str, Any]]:
    """The newest row of ``reset_executions`` of every share partition of `plan`; NOT_ATTEMPTED where there is none.
    Nothing, when there is none at all."""
    newest = _newest(journal.executions(plan.plan_id))
    return [_execution(newest.get(row.key) or _never_sent(row)) for row in plan.partitions] if newest else []


def list_plans(tables: TablesConfig, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Every plan with its status, newest first, as JSON: `plan_id`, `created_at`, `kind`, `strategy`, `groups`,
    `standing`, `attempts`; and the standing of each group."""
    at_ms = now_ms()
    plans = read_plan_rows(tables, columns=[*_LISTED, "group_ids"])
    by_plan: dict[str, list[AuditRow]] = defaultdict(list)
    for row in read_audit(tables):
        by_plan[row.plan_id].append(row)
    ledger = read_whole_ledger(tables, plans)
    newest = sorted(plans, key=lambda row: (row["created_at"], row["plan_id"]), reverse=True)
    return [_line(row, _life(row, by_plan[row["plan_id"]], ledger, at_ms)) for row in newest[:limit]]


def plan_status(tables: TablesConfig, plan_id: str) -> dict[str, Any]:
    """The status of one plan as JSON: `standing`, `decisions` (who approved or rejected it), `undone_by`, `groups` with
    attempt and standing, and `executions` of the newest verification."""
    rows = read_audit(tables, {"plan_id": plan_id})
    stored = read_plan_rows(tables, {"plan_id": plan_id}, columns=["plan_id", "refusals"])
    about = stored[0] if stored else {"plan_id": plan_id, "refusals": 0, "created_at": None}
    life = _life(about, rows, read_ledger(tables, [plan_id]), now_ms())
    groups = [{"group_id": one.group_id, "attempt": one.attempt, "standing": one.standing.value} for one in life.groups]
    executions = [_execution(row) for row in _newest(read_executions(tables, plan_id)).values()]
    return {**_of_life(life), "groups": groups, "executions": executions}


def audit_rows(tables: TablesConfig, *, plan_id: str | None = None) -> list[dict[str, Any]]:
    """The rows of the audit, of one plan or all, oldest first, as JSON; `detail` is what the step is about.

    Raises:
        UnknownName: there is no such plan.
    """
    rows = read_audit(tables, {} if plan_id is None else {"plan_id": plan_id})
    if not rows and plan_id is not None:
        read_plan_row(tables, plan_id)
    return [
        {**row.to_row(), "audited_at": utc_text(row.audited_at, "milliseconds"), "detail": json.loads(row.detail)}
        for row in rows
    ]


def _life(row: _Row, rows: Sequence[AuditRow], ledger: UndoLedger, at_ms: int) -> PlanLife:
    plan_id, created_at = row["plan_id"], row["created_at"]
    return life_of(
        plan_id,
        rows,
        now_ms=at_ms,
        is_refused=bool(row["refusals"]),
        is_expired=created_at is not None and at_ms - created_at.timestamp() * 1000 > DAY_MS,
        undone_by=ledger.undone_by(plan_id),
        is_undone=ledger.is_undone(plan_id),
    )


def _newest(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """The newest of these ``reset_executions`` by share partition."""
    return {(row["group_id"], row["topic"], row["partition"]): row for row in rows}


def _execution(row: _Row) -> dict[str, Any]:
    at = row["verified_at"]
    return {**row, "verified_at": None if at is None else at.isoformat(), "advice": ""}


def _never_sent(row: PartitionPlan) -> dict[str, Any]:
    """A share partition that no attempt came to."""
    from acktrail.group_changes.verification.partition_outcome import VerifiedPartition

    known = {name: getattr(row, name) for name in ("group_id", "topic", "topic_id", "partition", "target_offset")}
    columns = ["plan_id", "attempt", "verified_at", *(field.name for field in fields(VerifiedPartition))]
    return {**dict.fromkeys(columns), **known, "status": Status.NOT_ATTEMPTED.value, "error": "it was not sent"}


def _of_life(life: PlanLife) -> dict[str, Any]:
    decisions = [
        {"decision": one.step.value, "by": one.actor, "at": utc_text(one.at), "why": one.why} for one in life.decisions
    ]
    return {"standing": life.standing.value, "decisions": decisions, "undone_by": list(life.undone_by)}


def _line(row: _Row, life: PlanLife) -> dict[str, Any]:
    return {
        **{name: row[name] for name in _LISTED},
        "created_at": utc_text(row["created_at"]),
        "groups": row["group_ids"],
        **_of_life(life),
        "attempts": max((one.attempt for one in life.groups), default=0),
        "group_standings": {one.group_id: one.standing.value for one in life.groups},
    }
