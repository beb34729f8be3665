"""A person between a plan and what it changes: the question, the answer, and where a dry run ends."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Unpack

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import task
from airflow.sdk.exceptions import AirflowFailException

from acktrail.config import ApprovalRule, approval_rule
from acktrail.errors import InputError
from acktrail_dags import notifiers

if TYPE_CHECKING:
    from airflow.sdk import Context

    from acktrail.change.audit.audit_chain import AuditedPlan
    from acktrail.config import TablesConfig

_log: Final = logging.getLogger("acktrail.dags")
_APPROVE: Final = "Approve"
_REJECT: Final = "Reject"
_SHORT: Final = timedelta(minutes=20)
_HOURS_TO_ANSWER: Final = 20  # a plan can be applied until it is a day old


@task.short_circuit(execution_timeout=_SHORT)
def dry_run_ends_here(**context: Unpack[Context]) -> bool:
    """Continue only where the form says that this is no dry run."""
    return not context["params"]["dry_run"]


def approval(subject: str) -> HITLOperator:
    """The task `approve`: shows the preview that the task `plan` returned, under `subject`. Airflow's
    `ApprovalOperator` skips what follows a rejection; here `note_decision` follows, and skips the rest itself."""
    return HITLOperator(
        task_id="approve",
        subject=subject,
        body="{{ ti.xcom_pull(task_ids='plan')['preview'] }}",
        options=[_APPROVE, _REJECT],
        defaults=_REJECT,
        response_timeout=timedelta(hours=_HOURS_TO_ANSWER),
        notifiers=notifiers.asked(),
        doc_md="A person reads the plan and decides. No answer in time is a rejection.",
    )


def noted_answer(context: Context, tables: TablesConfig, plan: AuditedPlan) -> str | None:
    """Who approved `plan` in the task `approve` of this run; None: it was rejected, or no answer came in time, which is
    a rejection by no one. Each is noted in the audit. Raises AirflowFailException: no one was asked; and as
    `acktrail.change.api.note_decision`."""
    from acktrail.change.api import note_decision

    answer = context["ti"].xcom_pull(task_ids="approve")
    if answer is None:
        raise AirflowFailException("no one was asked: clear the task approve, and do not mark it as a success")
    user, is_approved = answer["responded_by_user"] or {}, answer["chosen_options"] == [_APPROVE]
    by, is_expired = str(user.get("name") or user.get("id") or "no one"), not is_approved and not user
    note = "no answer in time" if is_expired else ""
    status = note_decision(tables, plan, approved=is_approved, actor=by, note=note, expired=is_expired)
    _log.info("plan %s: %s by %s", plan.plan_id, status, by)
    return by if is_approved else None


def requester(context: Context) -> str:
    """Who triggered the run. Raises InputError where a second person must approve and the first one is not known."""
    name = getattr(context["dag_run"], "triggering_user_name", None) or ""
    if not name and approval_rule() is ApprovalRule.SECOND_PERSON and not context["params"]["dry_run"]:
        hint = "trigger it from Airflow's page or interface, signed in"
        raise InputError("Airflow does not know who triggered this run, and a second person must approve", hint=hint)
    return name
