"""The person who approves a reset, and the people who are notified of it."""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.bases.notifier import BaseNotifier

from acktrail.config import notifiers_factory

if TYPE_CHECKING:
    from airflow.sdk import Context


DECISION: Final = "decision"
"""The XCom key: `chosen_options`, and `responded_by_user` or None when no answer came in time."""

_HOURS_TO_ANSWER: Final = 20  # a plan can be applied until it is a day old


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
        notifiers=notifiers(),
        doc_md="A person reads the plan and decides. No answer in time is a rejection.",
    )


def notifiers() -> list[BaseNotifier]:
    """The notifiers that ``ACKTRAIL_NOTIFIERS`` names as ``module:function``; the function takes no argument and
    returns a list of Airflow notifiers (Slack, mail, Apprise ...). Empty when the variable is not set. Raises
    ImportError, AttributeError: the name is wrong: the DAG shows it as an import error."""
    named = notifiers_factory()
    if not named:
        return []
    module, _, function = named.partition(":")
    return list(getattr(import_module(module), function)())
