"""A person between a plan and what it changes: the question, the answer, and where a dry run ends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import task

from acktrail.config import ApprovalRule, approval_rule
from acktrail.errors import InputError
from acktrail_dags import notifiers

if TYPE_CHECKING:
    from airflow.sdk import Context

DECISION: Final = "decision"
"""The XCom key: `chosen_options`, and `responded_by_user` or None when no answer came in time."""

_SHORT: Final = timedelta(minutes=20)
_HOURS_TO_ANSWER: Final = 20  # a plan can be applied until it is a day old


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonsAnswer:
    """Who answered, and what; `is_expired`: no answer came in time, which is a rejection by no one."""

    person: str
    is_approved: bool
    is_expired: bool

    @property
    def note(self) -> str:
        """For the audit."""
        return "no answer in time" if self.is_expired else ""


@task.short_circuit(execution_timeout=_SHORT)
def dry_run_ends_here(**context: Unpack[Context]) -> bool:
    """Continue only where the form says that this is no dry run."""
    return not context["params"]["dry_run"]


class RecordedApproval(ApprovalOperator):
    """Airflow's approval. A rejection skips the next tasks before this one returns a value, so the answer is pushed
    under ``DECISION`` first."""

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        if "error" not in event:
            user = event["responded_by_user"]
            person = None if user is None else {"id": user["id"], "name": user["name"]}
            answer = {"chosen_options": list(event["chosen_options"]), "responded_by_user": person}
            context["ti"].xcom_push(key=DECISION, value=answer)
        return super().execute_complete(context, event)


def approval(subject: str) -> RecordedApproval:
    """The task `approve`: shows the preview that the task `plan` returned, under `subject`."""
    return RecordedApproval(
        task_id="approve",
        subject=subject,
        body="{{ ti.xcom_pull(task_ids='plan')['preview'] }}",
        defaults=RecordedApproval.REJECT,
        response_timeout=timedelta(hours=_HOURS_TO_ANSWER),
        notifiers=notifiers.asked(),
        doc_md="A person reads the plan and decides. No answer in time is a rejection.",
    )


def answer_in(context: Context) -> PersonsAnswer | None:
    """What a person answered the task `approve` of this run; None: no one was asked."""
    answer = context["ti"].xcom_pull(task_ids="approve", key=DECISION)
    if answer is None:
        return None
    user = answer.get("responded_by_user") or {}
    is_approved = answer.get("chosen_options") == ["Approve"]
    return PersonsAnswer(
        person=str(user.get("name") or user.get("id") or "no one"),
        is_approved=is_approved,
        is_expired=not is_approved and not user,
    )


def requester(context: Context) -> str:
    """Who triggered the run. Raises InputError where a second person must approve and the first one is not known."""
    name = getattr(context["dag_run"], "triggering_user_name", None) or ""
    if not name and approval_rule() is ApprovalRule.SECOND_PERSON and not context["params"]["dry_run"]:
        hint = "trigger it from Airflow's page or interface, signed in"
        raise InputError("Airflow does not know who triggered this run, and a second person must approve", hint=hint)
    return name
