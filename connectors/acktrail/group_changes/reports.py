"""What the tables and the brokers say of resets, for people and programs: plain data, nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acktrail.config import KafkaConfig, TablesConfig
from acktrail.group_changes.json_values import from_plain, to_plain
from acktrail.group_changes.request.reset_request import ResetRequest, StrategyKind
from acktrail.group_changes.steps import validate, value_of
from acktrail.times import now_ms

__all__ = ["audit_rows", "check_audit", "export_current", "export_plan", "list_plans", "progress"]

Json = dict[str, Any]


def list_plans(tables: TablesConfig, *, limit: int | None = None) -> list[Json]:
    """Every plan with how it stands, newest first: `plan_id`, `created_at`, `kind`, `strategy`, `groups`, `standing`,
    `attempts`; and for each group its own standing."""
    from acktrail.group_changes.lifecycle.plan_progress import listed

    return listed(tables, now_ms=now_ms(), limit=limit)


def progress(tables: TablesConfig, plan_id: str) -> Json:
    """How a plan stands: `groups` with attempt and standing, `executions` as last verified."""
    from acktrail.group_changes.lifecycle.plan_progress import progress_of

    return progress_of(tables, plan_id, now_ms=now_ms())


def audit_rows(tables: TablesConfig, *, plan_id: str | None = None) -> list[Json]:
    """Every row of the audit, or those of one plan, oldest first; `detail` is what the step is about.

    Raises:
        UnknownName: there is no such plan.
    """
    from acktrail.group_changes.lifecycle.plan_progress import audited

    return audited(tables, plan_id)


def check_audit(tables: TablesConfig, *, anchor: Path | None = None) -> Json:
    """Check audit, plans and results against each other: `rows`, `newest_sequence`, `newest_hash`, and how many plans
    and results the audit vouches for. `anchor`: see `audit_reports.checked_audit`.

    Raises:
        ConfigurationError: something is not as it was written; it says what.
        MalformedFile: `anchor` cannot be used.
    """
    from acktrail.group_changes.audit.audit_reports import checked_audit

    return dict(to_plain(checked_audit(tables, anchor=anchor)))


def export_current(kafka: KafkaConfig, selection: Mapping[str, Any]) -> tuple[str, int]:
    """The start offsets of groups as CSV, and how many share partitions have none. `selection`: `groups`,
    `group_globs`, `all_groups`, `topics`, as for `validate`."""
    from acktrail.group_changes.lifecycle.offsets_export import current_offsets

    topics = {} if selection.get("topics") else {"all_topics": True}
    strategies = {StrategyKind.TO_CURRENT.value: None}
    return current_offsets(kafka, from_plain(ResetRequest, validate({**selection, **topics, "strategies": strategies})))


def export_plan(plan: Json) -> tuple[str, int]:
    """The targets of a plan as CSV, and how many share partitions have none."""
    from acktrail.group_changes.lifecycle.offsets_export import planned_offsets

    return planned_offsets(value_of(plan))
