"""Resets and other changes of groups: all plans with the audit's check, and one plan with its whole life."""

from __future__ import annotations

from typing import Any, Final

from acktrail.change.audit.audit_chain import PLANS
from acktrail.errors import InputError
from acktrail_dashboard.lists.change_list import PlanPage, audit_check, plan_page, plan_story
from acktrail_dashboard.web.web_page import Visit, WebPage

_NONE: Final = PlanPage(lines=(), at=1, count=1, total=0)


def _resets(visit: Visit) -> dict[str, Any]:
    at = visit.number("page") or 1
    return {
        "list": visit.ask(PLANS, lambda tables: plan_page(tables.config, at=at), _NONE),
        "audit": visit.ask(PLANS, lambda tables: audit_check(tables.config), None),
    }


def _reset(visit: Visit) -> dict[str, Any]:
    plan_id = visit.text("plan")
    if not plan_id:
        raise InputError("which plan?", hint="name its id: reset?plan=PLAN")
    with visit.reader.lock:
        return {"story": plan_story(visit.reader.tables.config, plan_id)}


RESETS: Final = WebPage(path="resets", title="Resets", template="resets.html", context=_resets, menu="Resets")
RESET: Final = WebPage(path="reset", title="Plan", template="reset.html", context=_reset)
