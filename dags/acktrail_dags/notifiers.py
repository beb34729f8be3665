"""Messages by the notifiers that the operator names: Slack, mail, Apprise, a pager.

A notifier's templates have the message as ``acktrail``: ``{{ acktrail.title }}``, ``{{ acktrail.text }}``,
``{{ acktrail.link }}``, ``{{ acktrail.urgency }}`` (``act``, ``look``, ``nothing``), ``{{ acktrail.kind }}``,
``{{ acktrail.subject }}``, ``{{ acktrail.run_id }}``.
"""

from __future__ import annotations

from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

from airflow.sdk import TriggerRule, task
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.exceptions import AirflowSkipException

from acktrail.config import notifiers_factory
from acktrail.plain_tables import printable
from acktrail_dags import run_target, task_results
from acktrail_dags.task_results import as_airflow_errors

if TYPE_CHECKING:
    from airflow.sdk import Context

    from acktrail.tables.delta.store import Tables
    from acktrail.view.run_messages import ChangesOf, Known, Notification

MESSAGE: Final = "acktrail"
"""The name of the message in a notifier's templates."""


def chosen_notifiers() -> list[BaseNotifier]:
    """The notifiers that ``ACKTRAIL_NOTIFIERS`` names as ``module:function``; the function takes no argument and
    returns a list of Airflow notifiers. Empty when the variable is not set. Raises ImportError, AttributeError: the
    name is wrong: a DAG of resets shows it as an import error."""
    named = notifiers_factory()
    if not named:
        return []
    module, _, function = named.partition(":")
    return list(getattr(import_module(module), function)())


class ResetNotifier(BaseNotifier):
    """Calls `inner` with a message about a run of a reset: `kind` is ``approval`` or ``reset``."""

    def __init__(self, inner: BaseNotifier, *, kind: str, title: str, urgency: str) -> None:
        super().__init__()
        self._inner, self._kind, self._title, self._urgency = inner, kind, title, urgency

    def notify(self, context: Context) -> None:
        """Hand it over."""
        run = context.get("dag_run")
        run_id, dag = str(context.get("run_id") or getattr(run, "run_id", "")), context.get("dag")
        dag_id = dag.dag_id if dag is not None else str(getattr(run, "dag_id", ""))
        message = {
            "kind": self._kind,
            "subject": dag_id,
            "urgency": self._urgency,
            "title": f"{self._title}: {dag_id}",
            "text": f"Run {printable(run_id)}.",
            "link": task_results.run_link(dag_id, run_id),
            "run_id": run_id,
        }
        self._inner(cast("Context", {**context, MESSAGE: message}))


def asked() -> list[BaseNotifier]:
    """For a task that waits for a person."""
    return _of_resets(kind="approval", title="An approval is waited for", urgency="act")


def succeeded() -> list[BaseNotifier]:
    """For a run that ended well."""
    return _of_resets(kind="reset", title="Ended", urgency="nothing")


def failed() -> list[BaseNotifier]:
    """For a run that failed."""
    return _of_resets(kind="reset", title="Failed", urgency="act")


def _of_resets(*, kind: str, title: str, urgency: str) -> list[BaseNotifier]:
    return [ResetNotifier(inner, kind=kind, title=title, urgency=urgency) for inner in chosen_notifiers()]


@task(trigger_rule=TriggerRule.ALL_DONE, execution_timeout=timedelta(minutes=5))
@as_airflow_errors(can_run_again=True)
def notify(target: run_target.ReconcileTarget | None, **context: Unpack[Context]) -> dict[str, Any]:
    """Send what changed since the last message: the gate, critical findings, statuses of groups. Runs also when the
    gate stops the run. Skips where nothing was reconciled, and without ``ACKTRAIL_NOTIFIERS``."""
    from acktrail.view.run_messages import changed

    return _send_changes(target, context, changed)


@task(task_id="notify", trigger_rule=TriggerRule.ALL_DONE, execution_timeout=timedelta(minutes=5))
@as_airflow_errors(can_run_again=True)
def notify_of_branches(target: run_target.Target | None, **context: Unpack[Context]) -> dict[str, Any]:
    """Send what changed since the last message as branches know it (`Branch.messages`). Skips where no look was taken,
    and without ``ACKTRAIL_NOTIFIERS``."""
    from acktrail.branches import loaded

    def changes_of(known: Known, tables: Tables, run_id: str) -> tuple[Notification, ...]:
        return tuple(message for of_branch in loaded("messages") for message in of_branch(known, tables, run_id))

    return _send_changes(target, context, changes_of)


def _send_changes(target: run_target.Target | None, context: Context, changes_of: ChangesOf) -> dict[str, Any]:
    from acktrail.tables.delta.store import Tables
    from acktrail.view.run_messages import send_changes

    if target is None:
        raise AirflowSkipException("there is no observation of this run")
    if not chosen_notifiers():
        raise AirflowSkipException("ACKTRAIL_NOTIFIERS names no notifiers")
    dashboard = task_results.dashboard_links().get("dashboard", "")

    def send(message: Notification) -> None:
        """By new notifiers: one that rendered its templates keeps their text."""
        about = {
            "kind": str(message.kind),
            "subject": message.subject,
            "urgency": message.urgency.value,
            "title": message.title,
            "text": message.text,
            "link": message.address(dashboard) if dashboard else "",
            "run_id": target["run_id"],
        }
        for notifier in chosen_notifiers():
            notifier(cast("Context", {**context, MESSAGE: about}))

    sent = send_changes(Tables(run_target.tables_at(target)), target["run_id"], send, changes_of)
    task_results.show("sent", ("ABOUT", "MESSAGE"), [(str(each.kind), each.title) for each in sent.messages])
    return task_results.hand_over(context, target["run_id"], {"messages": len(sent.messages), "changes": sent.changes})
