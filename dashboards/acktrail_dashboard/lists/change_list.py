"""Resets and other changes of groups: every plan with its standing, one plan with its whole life, and whether the audit
is whole. `acktrail.change` reads and judges; here its answers become rows of a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from acktrail.change.audit.integrity import checked_audit
from acktrail.change.audit.journal import read_plan_row
from acktrail.change.change_kind import parse_plan
from acktrail.change.lifecycle.plan_life import ChangeStatus
from acktrail.change.lifecycle.plan_status import audit_rows, list_plans, plan_status
from acktrail.change.planning.change_plan import ChangePlan
from acktrail.change.planning.notices import Notice, by_severity
from acktrail.change.planning.plan_file import partition_rows
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError

PLANS_A_PAGE: Final = 50
PARTITIONS_SHOWN: Final = 500

_S = ChangeStatus
_TONES: Final = {
    _S.DONE: "ok",
    _S.UNDONE: "info",
    _S.PLANNED: "info",
    _S.APPROVED: "info",
    _S.REJECTED: "info",
    _S.EXPIRED: "info",
    _S.STARTED: "warning",
    _S.RUNNING: "warning",
    _S.REFUSED: "warning",
    _S.STOPPED: "warning",
    _S.PARTLY: "warning",
    _S.UNVERIFIED: "warning",
    _S.FAILED: "critical",
    _S.OVERWRITTEN: "critical",
    _S.UNKNOWN: "critical",
}
_NOTICE_TONES: Final = {"refusal": "critical", "serious": "critical", "warning": "warning", "info": "info"}
_GOOD_OUTCOMES: Final = frozenset({"OK", "OK_EPOCH_NOT_BUMPED", "OK_BY_DESCRIPTION"})
_QUIET_OUTCOMES: Final = frozenset({"NOT_ATTEMPTED", "LEFT_OUT"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One plan. `decisions`: who approved or rejected it, in words."""

    plan_id: str
    kind: str
    strategy: str | None
    created_at: str | None
    created_by: str | None
    groups: tuple[str, ...]
    partitions: int | None
    refusals: int | None
    standing: str
    tone: str
    attempts: int
    decisions: tuple[str, ...]
    undoes: str | None
    undone_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPage:
    """Part `at` (from 1) of `count` of all `total` plans, the newest first."""

    lines: tuple[PlanLine, ...]
    at: int
    count: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNotice:
    """What the plan says about itself, or about a part of it."""

    severity: str
    tone: str
    rule: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One row of the audit. `detail`: its JSON, one line a member."""

    sequence: int | None
    at: str
    actor: str
    host: str
    event: str
    outcome: str | None
    attempt: int
    group_id: str | None
    detail: tuple[tuple[str, str], ...]
    row_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStory:
    """One plan from the request to the proof. `row`: of ``reset_plans``; `partitions`: of ``partition_rows``;
    `executions`: the newest row of ``reset_executions`` of each share partition, with its tone. `plan_problem`: why the
    stored plan cannot be relied on."""

    row: Mapping[str, Any]
    standing: str
    tone: str
    decisions: tuple[Mapping[str, Any], ...]
    undone_by: tuple[str, ...]
    groups: tuple[Mapping[str, Any], ...]
    notices: tuple[PlanNotice, ...]
    plan_problem: str | None
    partitions: tuple[Mapping[str, Any], ...]
    partitions_left_off: int
    executions: tuple[tuple[Mapping[str, Any], str], ...]
    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCheck:
    """Whether the audit, plans and results are as they were written. `is_whole` None: it could not be checked."""

    is_whole: bool | None
    text: str
    flaws: tuple[str, ...] = ()
    rows: int = 0
    newest_hash: str | None = None
    without_audit: int = 0


def plan_page(config: TablesConfig, *, at: int = 1) -> PlanPage:
    """Part `at` of the plans, or the nearest that there is. Raises AcktrailError: the tables cannot be read."""
    found = list_plans(config)
    count = max(1, -(-len(found) // PLANS_A_PAGE))
    at = min(max(1, at), count)
    lines = tuple(map(_line, found[(at - 1) * PLANS_A_PAGE : at * PLANS_A_PAGE]))
    return PlanPage(lines=lines, at=at, count=count, total=len(found))


def plan_story(config: TablesConfig, plan_id: str) -> PlanStory:
    """The life of one plan. Raises UnknownName: there is no such plan. AcktrailError: the tables cannot be read."""
    row = read_plan_row(config, plan_id)
    status = plan_status(config, plan_id)
    plan, problem = _parsed(row["plan"], plan_id)
    partitions = partition_rows(plan) if plan else []
    order = sorted(partitions, key=lambda part: (part["group_id"], part["topic"] or "", part["partition"]))
    return PlanStory(
        row=row,
        standing=status["standing"],
        tone=_TONES[ChangeStatus(status["standing"])],
        decisions=tuple(status["decisions"]),
        undone_by=tuple(status["undone_by"]),
        groups=tuple(status["groups"]),
        notices=tuple(map(_notice, by_severity(plan.notices))) if plan else (),
        plan_problem=problem,
        partitions=tuple(order[:PARTITIONS_SHOWN]),
        partitions_left_off=max(0, len(order) - PARTITIONS_SHOWN),
        executions=tuple((each, _outcome_tone(each["status"])) for each in status["executions"][:PARTITIONS_SHOWN]),
        steps=tuple(map(_step, audit_rows(config, plan_id=plan_id))),
    )


def audit_check(config: TablesConfig) -> AuditCheck:
    """What `acktrail change audit` says. A chain that is broken is an answer, no error."""
    try:
        report = checked_audit(config)
    except ConfigurationError as error:
        found = error.data.get("findings")
        flaws = tuple(_flaw(*flaw) for flaw in found) if isinstance(found, list) else ()
        return AuditCheck(is_whole=False if flaws else None, text=error.message, flaws=flaws)
    except AcktrailError as error:
        return AuditCheck(is_whole=None, text=error.message)
    if not report.rows and not report.plans_without_audit:
        return AuditCheck(is_whole=True, text="nothing was changed yet")
    return AuditCheck(
        is_whole=True,
        text=f"{report.rows:,} rows are a whole chain; plans and results are those that they vouch for",
        rows=report.rows,
        newest_hash=report.newest_hash,
        without_audit=report.plans_without_audit + report.executions_without_audit,
    )


def _flaw(table: str, sequence: int | None, why: str) -> str:
    return f"{table}: {why}" if sequence is None else f"{table}, row {sequence}: {why}"


def _line(plan: Mapping[str, Any]) -> PlanLine:
    own = {name: plan[name] for name in ("plan_id", "strategy", "created_at", "created_by", "partitions", "refusals")}
    return PlanLine(
        **own,
        kind=(plan["kind"] or "reset").replace("_", " "),
        groups=tuple(plan["groups"] or ()),
        standing=plan["standing"],
        tone=_TONES[ChangeStatus(plan["standing"])],
        attempts=plan["attempts"],
        decisions=tuple(f"{each['decision']} by {each['by']}" for each in plan["decisions"]),
        undoes=plan["undoes"],
        undone_by=tuple(plan["undone_by"]),
    )


def _parsed(text: str, plan_id: str) -> tuple[ChangePlan | None, str | None]:
    """A stored plan, and what is wrong with it."""
    try:
        return parse_plan(text, f"plan {plan_id}"), None
    except AcktrailError as error:
        return None, error.message


def _notice(notice: Notice) -> PlanNotice:
    severity = notice.severity.value
    return PlanNotice(
        severity=severity,
        tone=_NOTICE_TONES.get(severity, "unknown"),
        rule=notice.rule,
        subject=notice.subject,
        text=notice.text,
    )


def _step(row: Mapping[str, Any]) -> PlanStep:
    detail = row["detail"] if isinstance(row["detail"], Mapping) else {"detail": row["detail"]}
    own = {name: row[name] for name in ("sequence", "actor", "host", "event", "outcome", "attempt", "group_id")}
    return PlanStep(
        **own,
        at=row["audited_at"],
        detail=tuple((str(name), _json(value)) for name, value in detail.items()),
        row_hash=row["row_hash"],
    )


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=True)


def _outcome_tone(status: str | None) -> str:
    if status in _GOOD_OUTCOMES:
        return "ok"
    return "info" if status in _QUIET_OUTCOMES else "critical"
