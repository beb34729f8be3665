"""The tasks of a change of any kind, from its plan on: a person decides, requests are sent, then what became of them.

From task to task go names, places and numbers; the plan itself is in the tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial, wraps
from typing import Any, Final, NamedTuple, Unpack, cast

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import AssetAlias, Context, TriggerRule, task
from airflow.sdk.bases.notifier import BaseNotifier

from acktrail.change import api, plan_status
from acktrail.change.apply.approval import approval_needed
from acktrail.change.audit.journal import read_plan_row, read_plan_rows
from acktrail.change.audit.plan_life import ChangeStatus, NextStep, next_step
from acktrail.change.plan.change_plan import ChangePlan
from acktrail.config import ApprovalRule, TablesConfig, approval_rule
from acktrail.errors import (
    AcktrailError,
    ChangeRefused,
    ConfigurationError,
    InputError,
    NoTables,
    OutcomeUnknown,
    RetryableError,
)
from acktrail.text_tables import few, printable
from acktrail.view.wording import in_words
from acktrail_dags.links import run_address
from acktrail_dags.noted_audit import compare_audit, note_audit
from acktrail_dags.parameters import DagProfile
from acktrail_dags.plan_text import notice_text, plan_text, subject_text
from acktrail_dags.task_inputs import Place, cluster_at, place_of, table_run_id, tables_at
from acktrail_dags.task_reports import MESSAGE, as_airflow_errors, chosen_notifiers
from acktrail_provider import assets, change_work
from acktrail_provider.airflow_names import AirflowFailException, AirflowSkipException
from acktrail_provider.change_work import load_shown
from acktrail_provider.task_errors import advice_of

_log: Final = logging.getLogger("acktrail.dags")
_APPROVE: Final = "Approve"
_REJECT: Final = "Reject"
SHORT: Final = timedelta(minutes=20)
_HOURS_TO_ANSWER: Final = 20  # a plan can be applied until it is a day old


_NOTHING_SENT: Final[Mapping[type[AcktrailError], str]] = {
    OutcomeUnknown: "Then clear this task.",
    ConfigurationError: "Nothing was sent. Correct it, then clear this task.",
    RetryableError: "Nothing was sent. When its cause is gone, clear this task.",
    AcktrailError: "Nothing was sent. A form cannot be edited later: trigger the DAG again with a corrected one.",
}
_DONE_BUT_FAILED: Final = "The change is done. When the cause in the failed task's log is gone, clear that task."
before_sending: Final = partial(as_airflow_errors, advice_of(_NOTHING_SENT), retried=(RetryableError,))
"""Around the work of a task before the approval."""


RESETS: Final = AssetAlias(name="acktrail_resets", group="acktrail")
"""The topics in which a change moved start offsets, by their addresses: ``kafka://broker-1:9092/orders``."""


class StoredPlan(Place):
    """A plan in the tables, with what a person reads of it in a list and alone, and how it is carried out."""

    plan_id: str
    plan_hash: str
    subject: str
    preview: str
    refusals: list[str]
    partial: bool
    watch_s: int


class ChangeSteps(NamedTuple):
    """The tasks after a plan, for the DAG file to put in order."""

    dry_run_ends_here: Any
    approve: HITLOperator
    note_decision: Any
    recheck: Any
    execute: Any
    verify: Any


def change_steps(plan: Any) -> ChangeSteps:
    """The tasks that carry out what the task `plan` returns, once a person approved it."""
    approver: Any = note_decision(plan)
    sent = execute(plan, approver)
    return ChangeSteps(
        dry_run_ends_here(), _approval(), approver, recheck(plan), sent, verify.override(outlets=[RESETS])(plan)
    )


def dag_settings(profile: DagProfile, base: str, text: str | None) -> dict[str, Any]:
    """What the DAGs of changes have in common; see ``DagProfile.settings``."""
    return {
        **profile.settings(base, text, "kafka", "share-groups", "data-quality"),
        "schedule": None,
        "max_active_runs": 1_000,  # those that wait for a person count; leases keep changes of a group apart
        "dagrun_timeout": timedelta(hours=48),
        "on_failure_callback": change_notifiers("failed"),
        "on_success_callback": change_notifiers("succeeded"),
    }


def begin(context: Context) -> str:
    """Who triggered the run. It may begin again only where no earlier plan of it is open.

    Raises:
        InputError: a second person must approve, and the first one is not known.
        ConfigurationError: the form names a cluster or tables that the deployment does not allow; or the audit is not
            the one that the last run noted.
        OutcomeUnknown: the run was cleared, and what an earlier plan of it sent is not settled.
    """
    form = context["params"]
    name = getattr(context["dag_run"], "triggering_user_name", None) or ""
    if not name and approval_rule() is ApprovalRule.SECOND_PERSON and not form["dry_run"]:
        hint = "sign in to Airflow, and trigger the run from its pages or its REST API"
        raise InputError("Airflow does not know who triggered this run, and a second person must approve", hint=hint)
    tables = tables_at(place_of(form, form.get("profile"), changes=True))
    compare_audit(context, tables)
    earlier: list[dict[str, Any]] = []
    with suppress(NoTables):  # the first plan makes them
        earlier = read_plan_rows(tables, {"run_id": _run_id(context)}, columns=["plan_id"])
    if not earlier and context["ti"].xcom_pull(task_ids="approve") is not None:
        text = "this run has made a plan, but the tables no longer have it"
        raise OutcomeUnknown(text, hint="restore the tables, including reset_plans and reset_audit")
    for row in earlier:
        if (step := _next_step(tables, row["plan_id"])).is_open:
            text = f"this run made plan {row['plan_id']} before, and its outcome is not determined"
            raise OutcomeUnknown(text, hint=step.form, data={"plan": row["plan_id"]})
    return name


def _run_id(context: Context) -> str:
    """The id in the tables of a DAG run, the same for all tries of all its tasks."""
    return table_run_id(context["ti"].dag_id, context["ti"].run_id, 0)


def _next_step(tables: TablesConfig, plan_id: str, *, has_failed: bool = False) -> NextStep:
    """What a person does next with a plan, `has_failed`: after a task failed. Raises UnknownName: the tables have lost
    it."""
    read_plan_row(tables, plan_id)
    return _step_of(plan_status.plan_status(tables, plan_id), plan_id, has_failed=has_failed)


def _step_of(found: Mapping[str, Any], plan_id: str, *, has_failed: bool) -> NextStep:
    status = ChangeStatus(found["standing"])
    step = next_step(status, found["verified"]).on(plan_id)
    return step._replace(form=_DONE_BUT_FAILED) if has_failed and status is ChangeStatus.DONE else step


@contextmanager
def errors_of(
    stored: StoredPlan, *, retried: tuple[type[AcktrailError], ...] = (RetryableError,), cleared: str = "this task"
) -> Iterator[None]:
    """Around the work of a task with a plan: as `as_airflow_errors`; what a person does next depends on how the plan
    stands then. Where the tables do not say it, they clear the task that `cleared` names."""

    def advice(_: AcktrailError) -> str:
        with suppress(AcktrailError):
            return _next_step(tables_at(stored), stored["plan_id"], has_failed=True).form
        return f"It is not known how the plan stands: when the tables answer again, clear {cleared}."

    with as_airflow_errors(advice, retried):
        yield


def plan_step(
    kind: Callable[..., Any] = task, *, cleared: str = "this task", **settings: Any
) -> Callable[[Callable[..., Any]], Any]:
    """A task of a `kind` whose first input is a plan, with `errors_of` around its work and `settings` of Airflow's."""

    def made(work: Callable[..., Any]) -> Any:
        @wraps(work)
        def guarded(stored: StoredPlan, *inputs: Any, **context: Any) -> Any:
            with errors_of(stored, cleared=cleared):
                return work(stored, *inputs, **context)

        return kind(**settings)(guarded)

    return made


class ChangeNotifier(BaseNotifier):
    """Calls `inner` with a message about a change: who asks for what on which cluster, how the plan stands, and what a
    person does next. `moment` is ``asked`` (a person is waited for), ``succeeded`` or ``failed``."""

    def __init__(self, inner: BaseNotifier, moment: str) -> None:
        super().__init__()
        self._inner, self._moment = inner, moment

    def notify(self, context: Context) -> None:
        """Hand it over."""
        run, dag, ti = context.get("dag_run"), context.get("dag"), context.get("ti")
        run_id = str(context.get("run_id") or getattr(run, "run_id", ""))
        dag_id = dag.dag_id if dag is not None else str(getattr(run, "dag_id", ""))
        plan, is_known = _plan_of(ti)
        form = context.get("params") or {}
        about = few([*form.get("groups", ()), *(form[name] for name in ("topic", "plan_id") if form.get(name))])
        asker = getattr(run, "triggering_user_name", None) or "an unknown user"
        subject = plan["subject"] if plan else printable(f"{dag_id} of {about or 'nothing'}: {asker} asks")
        if is_known or self._moment == "asked":
            status, text = change_text(self._moment, plan)
        else:
            status = f"{self._moment.capitalize()}, plan not known"
            text = "Airflow did not give what the task plan returned. The page of the run says how it ended."
        message = {
            "kind": "approval" if self._moment == "asked" else "change",
            "subject": subject,
            "urgency": "nothing" if self._moment == "succeeded" else "act",
            "title": f"{status}: {subject}",
            "text": text,
            "link": run_address(dag_id, run_id),
            "run_id": run_id,
        }
        try:
            self._inner(cast("Context", {**context, MESSAGE: message}))
        except Exception as error:  # noqa: BLE001  # of any service; Airflow's page asks the person too
            _log.warning("The message was not sent (%s). The run continues without it.", error)


def _plan_of(ti: Any) -> tuple[Any, bool]:
    """What the task `plan` returned, None without one, and whether Airflow gave it. A message goes out either way."""
    try:
        return (None if ti is None else ti.xcom_pull(task_ids="plan")), True
    except Exception as error:  # noqa: BLE001  # of Airflow's database or its API
        _log.warning("Airflow did not give the plan of this run (%s). The message is sent without it.", error)
        return None, False


def change_notifiers(moment: str) -> list[BaseNotifier]:
    """For a run of a change; see `ChangeNotifier`."""
    return [ChangeNotifier(inner, moment) for inner in chosen_notifiers()]


def change_text(moment: str, stored: StoredPlan | None) -> tuple[str, str]:
    """How a change stands at a `moment`, and what a person does next. `stored` None: this run has no plan."""
    if moment == "asked":
        return "An approval is waited for", f"No answer in {_HOURS_TO_ANSWER} hours is a rejection."
    if stored is None:
        return "Failed without a plan", "The log of the task that failed says why, and what to do."
    begin = "Failed, status " if moment == "failed" else ""
    try:
        found = plan_status.plan_status(tables_at(stored), stored["plan_id"])
    except AcktrailError as error:
        return f"{begin}not known", f"{error.message}. When the tables answer again, clear the task verify."
    status = ChangeStatus(found["standing"])
    if moment == "succeeded" and status is ChangeStatus.PLANNED:
        return "Planned", "It was a dry run: nothing was sent."
    step = _step_of(found, stored["plan_id"], has_failed=moment == "failed")
    decided = f"Decided by {printable(found['decisions'][-1]['by'])}. " if found["decisions"] else ""
    shown = f"{begin}{in_words(status)}"
    return shown[0].upper() + shown[1:], decided + step.form


def stored(plan: ChangePlan, place: Place, context: Context, *, partial: bool = False, watch_s: int = 0) -> StoredPlan:
    """Store `plan`, as of this DAG run: what the tasks after it need."""
    tables = tables_at(place)
    api.store_plan(tables, plan, run_id=_run_id(context))
    note_audit(context, tables)
    where = " ".join(filter(None, (place.get("profile"), cluster_at(place).bootstrap_servers)))
    preview = plan_text(plan, where=where, approval=approval_needed(plan))
    _log.info("%s", preview)
    return StoredPlan(
        profile=place["profile"],
        kafka_conn_id=place["kafka_conn_id"],
        tables_uri=place["tables_uri"],
        plan_id=plan.plan_id,
        plan_hash=plan.plan_hash,
        subject=subject_text(plan, where=where),
        preview=preview,
        refusals=[notice_text(notice) for notice in plan.refusals],
        partial=partial,
        watch_s=watch_s,
    )


@task.short_circuit(execution_timeout=SHORT)
def dry_run_ends_here(**context: Unpack[Context]) -> bool:
    """Continue only where the form says that this is no dry run."""
    return not context["params"]["dry_run"]


def _approval() -> HITLOperator:
    """The task `approve`: shows what the task `plan` returned. No retries: an answer that was given would be asked for
    again. Airflow's `ApprovalOperator` skips what follows a rejection; here `note_decision` follows, and skips the rest
    itself."""
    return HITLOperator(
        task_id="approve",
        subject="{{ ti.xcom_pull(task_ids='plan')['subject'] }}",
        body="{{ ti.xcom_pull(task_ids='plan')['preview'] }}",
        options=[_APPROVE, _REJECT],
        defaults=_REJECT,
        response_timeout=timedelta(hours=_HOURS_TO_ANSWER),
        notifiers=change_notifiers("asked"),
        retries=0,
        doc_md="A person reads the plan and decides. No answer in time is a rejection.",
    )


@plan_step(task.short_circuit, multiple_outputs=False, execution_timeout=SHORT)
def note_decision(stored: StoredPlan, **context: Unpack[Context]) -> str | None:
    """Note in the audit who approved or rejected the plan in the task `approve`, or that no answer came in time, which
    is a rejection by no one. Returns who approved, or None, and the run ends here. Fails when no one was asked, the
    plan is closed, or this person may not approve."""
    answer = context["ti"].xcom_pull(task_ids="approve")
    if answer is None:
        raise AirflowFailException("the task approve has no answer: clear it, and do not mark it as success")
    user, is_approved = answer["responded_by_user"] or {}, answer["chosen_options"] == [_APPROVE]
    by, is_expired = str(user.get("name") or user.get("id") or "no one"), not is_approved and not user
    note = "no answer in time" if is_expired else ""
    tables = tables_at(stored)
    plan = load_shown(tables, stored)
    try:
        status = api.note_decision(tables, plan, approved=is_approved, actor=by, note=note, expired=is_expired)
    except ChangeRefused as error:
        if error.rule == "own_approval":
            error.hint = "clear the task approve: somebody else answers the form"
        raise
    note_audit(context, tables)
    _log.info("plan %s: %s by %s", plan.plan_id, status, by)
    return by if is_approved else None


@plan_step(execution_timeout=SHORT)
def recheck(stored: StoredPlan, **context: Unpack[Context]) -> int:
    """Fail if anything changed since the plan was made (topics, partition counts, members, state), if the plan is
    closed, or if the audit is not the one that this run noted. Returns how many parts would be sent now."""
    tables = tables_at(stored)
    compare_audit(context, tables)
    plan = load_shown(tables, stored)
    return len(change_work.look_again(cluster_at(stored), tables, plan, partial=stored["partial"]))


@plan_step(retries=0, multiple_outputs=False, execution_timeout=timedelta(hours=1), cleared="the task verify")
def execute(stored: StoredPlan, approver: str) -> dict[str, Any]:
    """Send one request per group; returns what the brokers answered for each part. No retries: an unknown outcome is
    verified first."""
    tables, kafka = tables_at(stored), cluster_at(stored)
    plan = load_shown(tables, stored)
    return change_work.send(kafka, tables, plan, actor=approver, partial=stored["partial"])


@plan_step(trigger_rule=TriggerRule.NONE_SKIPPED, multiple_outputs=False, execution_timeout=timedelta(minutes=80))
def verify(stored: StoredPlan | None, **context: Unpack[Context]) -> dict[str, Any]:
    """Settle the attempt by what the cluster shows and the brokers' answers, also when the execution failed. Fails
    unless all of the plan is done, of any kind. Returns what was found, and `open_until`: clients may behave as
    before the change until then."""
    if stored is None:
        raise AirflowSkipException("there is no plan")
    return _verified(stored, context, was_sent=context["ti"].xcom_pull(task_ids="execute") is not None)


def _verified(stored: StoredPlan, context: Context, *, was_sent: bool) -> dict[str, Any]:
    tables = tables_at(stored)
    plan = load_shown(tables, stored)
    if not plan_status.plan_status(tables, plan.plan_id)["groups"]:
        if was_sent:
            _log.error("Plan %s was sent, and the tables have no row about it: restore reset_audit.", plan.plan_id)
            raise AirflowFailException(f"plan {plan.plan_id} was sent, but the tables no longer have its requests")
        raise AirflowSkipException(f"nothing was sent. {_next_step(tables, plan.plan_id).form}")
    found, outcome = change_work.settle(cluster_at(stored), tables, plan, watch_s=float(stored["watch_s"]))
    note_audit(context, tables)
    with errors_of(stored, retried=()):  # which says what is next, in the form's words
        change_work.ensure_done(plan, outcome)
    assets.publish(context, assets.topic_assets(cluster_at(stored), (row.topic for row in plan.partitions)))
    return change_work.settled_json(found)
