"""Where plans stand, and what of them is done: read from the tables."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from acktrail.broker.admin import ShareGroupAdmin
from acktrail.config import KafkaConfig, TablesConfig
from acktrail.errors import ConfigurationError
from acktrail.reset.audit import ChainReport, check_chain
from acktrail.reset.journal import Journal, read_audit, read_executions, read_plan_row, read_plan_rows
from acktrail.reset.plan import ResetPlan
from acktrail.reset.standing import GroupStanding, overall, standings
from acktrail.reset.verdict import Status

__all__ = ["audited", "checked_audit", "done_before", "listed", "progress_of"]


def done_before(kafka: KafkaConfig, journal: Journal, plan: ResetPlan) -> frozenset[tuple[str, str, int]]:
    """The share partitions that an earlier attempt at `plan` brought to their targets, and that are there still."""
    done = {
        (row["group_id"], row["topic"], row["partition"]): row["target_offset"]
        for row in journal.executions(plan.plan_id)
        if Status(row["status"]).is_ok
    }
    if not done:
        return frozenset()
    with ShareGroupAdmin(kafka) as admin:
        now = {
            (answer.group_id, offset.topic, offset.partition): offset.start_offset
            for answer in admin.describe_group_offsets({group for group, _, _ in done})
            for offset in answer.offsets
        }
    return frozenset(key for key, target in done.items() if now.get(key) == target)


def listed(tables: TablesConfig, *, now_ms: int, limit: int | None = None) -> list[dict[str, Any]]:
    """Every plan, newest first, with how it stands at `now_ms`, as plain data."""
    columns = ["plan_id", "kind", "strategy", "group_ids", "undoes", "partitions", "refusals", "created_by"]
    plans = read_plan_rows(tables, columns=columns)
    by_plan: dict[str, list[GroupStanding]] = defaultdict(list)
    for found in standings(read_audit(tables)):
        by_plan[found.plan_id].append(found.at(now_ms))
    newest = sorted(plans, key=lambda row: (row["created_at"], row["plan_id"]), reverse=True)
    return [_line(row, by_plan.get(row["plan_id"], [])) for row in newest[:limit]]


def progress_of(tables: TablesConfig, plan_id: str, *, now_ms: int) -> dict[str, Any]:
    """How one plan stands: `groups`, and `executions` of the newest verification, as plain data."""
    found = [one.at(now_ms) for one in standings(read_audit(tables, {"plan_id": plan_id}))]
    groups = [{"group_id": one.group_id, "attempt": one.attempt, "standing": one.standing.value} for one in found]
    newest = {(row["group_id"], row["topic"], row["partition"]): row for row in read_executions(tables, plan_id)}
    return {"groups": groups, "executions": [_execution(row) for row in newest.values()]}


def audited(tables: TablesConfig, plan_id: str | None) -> list[dict[str, Any]]:
    """The audit's rows, of one plan or all, in order, as plain data.

    Raises:
        UnknownName: there is no such plan.
    """
    rows = read_audit(tables, {} if plan_id is None else {"plan_id": plan_id})
    if not rows and plan_id is not None:
        read_plan_row(tables, plan_id)
    return [
        {
            **row.to_row(),
            "audited_at": row.audited_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "detail": json.loads(row.detail),
        }
        for row in rows
    ]


def checked_audit(tables: TablesConfig) -> ChainReport:
    """The report on a whole chain.

    Raises:
        ConfigurationError: it is broken; or rows of several clusters are in it.
    """
    rows = read_audit(tables)
    report = check_chain(rows, rows[0].cluster_id if rows else "")
    if report.broken_at is not None:
        raise ConfigurationError(
            f"the audit is broken at row {report.broken_at}: {report.why}",
            hint="rows were altered or lost: compare with a copy of the table reset_audit",
        )
    return report


def _execution(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "verified_at": row["verified_at"].isoformat(), "advice": ""}


def _line(row: dict[str, Any], found: list[GroupStanding]) -> dict[str, Any]:
    return {
        "plan_id": row["plan_id"],
        "created_at": row["created_at"].isoformat(timespec="seconds").replace("+00:00", "Z"),
        "created_by": row["created_by"],
        "kind": row["kind"],
        "strategy": row["strategy"],
        "undoes": row["undoes"],
        "groups": row["group_ids"],
        "partitions": row["partitions"],
        "refusals": row["refusals"],
        "standing": overall(one.standing for one in found).value,
        "attempts": max((one.attempt for one in found), default=0),
        "group_standings": {one.group_id: one.standing.value for one in found},
    }
