"""Changes of every kind (resets, deletions, migrations, configurations): all plans with the audit's check, and one plan
with its whole life; `acktrail.change` reads and judges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from acktrail.change.audit.audit_chain import PLANS
from acktrail.change.audit.journal import read_plan_row
from acktrail.change.audit.plan_life import ChangeStatus, Status
from acktrail.change.change_kind import kind_of, parse_plan
from acktrail.change.plan.change_plan import partition_rows
from acktrail.change.plan.notices import by_rule
from acktrail.change.plan_status import list_plans, plan_status
from acktrail.config import TablesConfig
from acktrail.errors import AcktrailError, ConfigurationError
from acktrail.view.audit_integrity import audit_rows, checked_audit
from acktrail.view.change_text import by_effect, new_start_offset, sums
from acktrail.view.queue_rows import ROWS_A_PAGE, part_of
from acktrail.view.wording import counted
from acktrail_dashboard.page_templates import ROWS_SHOWN
from acktrail_dashboard.web.web_page import Visit, WebPage

_FLAWS_SHOWN: Final = 20
_S = ChangeStatus
STANDING_TONES: Final = {
    **dict.fromkeys((_S.DONE,), "ok"),
    **dict.fromkeys((_S.UNDONE, _S.PLANNED, _S.APPROVED, _S.REJECTED, _S.EXPIRED), "info"),
    **dict.fromkeys((_S.STARTED, _S.RUNNING, _S.REFUSED, _S.STOPPED, _S.PARTLY, _S.UNVERIFIED), "warning"),
    **dict.fromkeys((_S.FAILED, _S.OVERWRITTEN, _S.UNKNOWN), "critical"),
}
_NOTICE_TONES: Final = {"refusal": "critical", "serious": "critical", "warning": "warning", "info": "info"}
_NOT_DONE_TONES: Final = dict.fromkeys(("NOT_ATTEMPTED", "LEFT_OUT"), "info")
_TONES: Final = {
    "standing_tone": lambda standing: STANDING_TONES.get(standing, "critical"),
    "notice_tone": lambda severity: _NOTICE_TONES.get(severity, "unknown"),
    "outcome_tone": lambda status: "ok" if Status(status).is_ok else _NOT_DONE_TONES.get(status, "critical"),
}
"""What the templates ask."""


def plan_page(config: TablesConfig, at: int) -> dict[str, Any]:
    """A part of the plans, the newest first. Raises AcktrailError: the tables cannot be read."""
    found = list_plans(config)
    part = part_of(len(found), at)
    return {"plans": found[part.first : part.first + ROWS_A_PAGE], "part": part}


def plan_story(config: TablesConfig, plan_id: str) -> dict[str, Any]:
    """The life of one plan. `plan_problem`: why the stored plan cannot be relied on. Raises UnknownName: there is no
    such plan. AcktrailError: the tables cannot be read."""
    row, plan, problem = read_plan_row(config, plan_id), None, None
    try:
        plan = parse_plan(row["plan"], f"plan {plan_id}")
        plan = replace(plan, partitions=tuple(by_effect(plan, ROWS_SHOWN)))
    except AcktrailError as error:
        problem = error.message
    parts = [{**p, "new": new_start_offset(plan, p["target_offset"])} for p in partition_rows(plan)] if plan else []
    return {
        "row": row,
        "status": plan_status(config, plan_id),
        "plan_problem": problem,
        "sums": sums(plan) if plan else {},
        "of_its_kind": kind_of(plan).text(plan).splitlines() if plan else (),
        "notices": by_rule(plan.notices) if plan else (),
        "partitions": parts,
        "steps": audit_rows(config, plan_id=plan_id),
    }


def audit_check(config: TablesConfig) -> dict[str, Any]:
    """What `acktrail change audit` says, with flaws and the newest hash. `is_consistent`: whether audit, plans and
    results agree with each other; None: that could not be checked. A chain that is broken is an answer, no error."""
    nothing: dict[str, Any] = {"flaws": (), "newest_hash": None}
    try:
        report = checked_audit(config)
    except ConfigurationError as error:
        found = error.data.get("findings")
        flaws = tuple(_flaw(*flaw) for flaw in found[:_FLAWS_SHOWN]) if isinstance(found, list) else ()
        return {**nothing, "is_consistent": False if flaws else None, "text": error.message, "flaws": flaws}
    except AcktrailError as error:
        return {**nothing, "is_consistent": None, "text": error.message}
    if not report.rows and not report.plans_without_audit:
        return {
            **nothing,
            "is_consistent": True,
            "text": "No rows: nothing was changed yet, or the tables of changes were removed.",
        }
    text = f"{report.words[0].upper()}{report.words[1:]}. Plans and results are those that the rows vouch for."
    without = report.plans_without_audit + report.executions_without_audit
    killed = f" {counted(without, 'row')} without audit: of a process that was killed in between." if without else ""
    return {**nothing, "is_consistent": True, "text": text + killed, "newest_hash": report.newest_hash}


def _flaw(table: str, sequence: int | None, why: str) -> str:
    return f"{table}: {why}" if sequence is None else f"{table}, row {sequence}: {why}"


def _changes(visit: Visit) -> dict[str, Any]:
    at = visit.number("page") or 1
    nothing: dict[str, Any] = {"plans": (), "part": part_of(0, 1)}
    return {
        **_TONES,
        **visit.ask(PLANS, lambda tables: plan_page(tables.config, at), nothing),
        "audit": visit.ask(PLANS, lambda tables: audit_check(tables.config), None),
    }


def _change(visit: Visit) -> dict[str, Any]:
    (plan_id,) = visit.needed("plan")
    with visit.reader.lock:
        return {**_TONES, **plan_story(visit.reader.tables.config, plan_id)}


PAGES: Final = (
    WebPage(path="changes", title="Changes", template="changes.html", context=_changes, menu="Changes"),
    WebPage(path="change", title="Plan", template="change.html", context=_change),
)
