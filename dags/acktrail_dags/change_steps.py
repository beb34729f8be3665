"""The tasks of a change of any kind, from its plan on: a person decides, requests are sent, then what became of them.

A DAG file makes the plan and puts the tasks in order. From task to task go names, places and numbers; the plan itself
is in the tables.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import TriggerRule, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from acktrail.change import api
from acktrail.change.change_kind import load_plan
from acktrail.change.cluster import Cluster
from acktrail.change.lifecycle import plan_status
from acktrail.change.planning.change_plan import ChangePlan
from acktrail.config import ApprovalRule, approval_rule
from acktrail.errors import InputError, OutcomeUnknown, RetryableError, UnknownName
from acktrail.plain_data import to_json_value
from acktrail.times import instant_text, now_ms
from acktrail_dags import notifiers
from acktrail_dags.dag_profiles import DagProfile
from acktrail_dags.plan_text import notice_text, plan_text
from acktrail_dags.run_target import Place, cluster_at, tables_at
from acktrail_dags.task_results import as_airflow_errors

if TYPE_CHECKING:
    from airflow.sdk import Context

_log: Final = logging.getLogger("acktrail.dags")
_APPROVE: Final = "Approve"
_REJECT: Final = "Reject"
SHORT: Final = timedelta(minutes=20)
_HOURS_TO_ANSWER: Final = 20  # a plan can be applied until it is a day old


class StoredPlan(Place):
    """A plan in the tables, with the preview that a person reads, and how it is carried out."""

    plan_id: str
    plan_hash: str
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


def change_steps(plan: Any, question: str) -> ChangeSteps:
    """The tasks that carry out what the task `plan` returns; a person is asked `question`."""
    approver: Any = note_decision(plan)
    sent = execute(plan, approver)
    return ChangeSteps(dry_run_ends_here(), _approval(question), approver, recheck(plan), sent, verify(plan))


def dag_settings(profile: DagProfile) -> dict[str, Any]:
    """What the DAGs of changes have in common."""
    return {
        "schedule": None,
        "catchup": False,
        "max_active_runs": 4,
        "dagrun_timeout": timedelta(hours=48),
        "tags": ["acktrail", "kafka", "share-groups", "data-quality", *profile.tags],
        "default_args": {"owner": "acktrail", "retries": 2, "retry_delay": timedelta(seconds=15)},
        "on_failure_callback": notifiers.failed(),
        "on_success_callback": notifiers.succeeded(),
    }


def requester(context: Context) -> str:
    """Who triggered the run. Raises InputError where a second person must approve and the first one is not known."""
    name = getattr(context["dag_run"], "triggering_user_name", None) or ""
    if not name and approval_rule() is ApprovalRule.SECOND_PERSON and not context["params"]["dry_run"]:
        hint = "trigger it from Airflow's page or interface, signed in"
        raise InputError("Airflow does not know who triggered this run, and a second person must approve", hint=hint)
    return name


def stored(plan: ChangePlan, place: Place, *, partial: bool = False, watch_s: int = 0) -> StoredPlan:
    """Store `plan`: what the tasks after it need."""
    api.store_plan(tables_at(place), plan)
    where = " ".join(filter(None, (place.get("profile"), cluster_at(place).bootstrap_servers)))
    preview = plan_text(plan, where=where, approval=api.approval_needed(plan))
    _log.info("%s", preview)
    return StoredPlan(
        profile=place["profile"],
        kafka_conn_id=place["kafka_conn_id"],
        tables_uri=place["tables_uri"],
        plan_id=plan.plan_id,
        plan_hash=plan.plan_hash,
        preview=preview,
        refusals=[notice_text(notice) for notice in plan.refusals],
        partial=partial,
        watch_s=watch_s,
    )


@task.short_circuit(execution_timeout=SHORT)
def dry_run_ends_here(**context: Unpack[Context]) -> bool:
    """Continue only where the form says that this is no dry run."""
    return not context["params"]["dry_run"]


def _approval(subject: str) -> HITLOperator:
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


@task.short_circuit(multiple_outputs=False, execution_timeout=SHORT)
@as_airflow_errors()
def note_decision(stored: StoredPlan, **context: Unpack[Context]) -> str | None:
    """Note in the audit who approved or rejected the plan in the task `approve`, or that no answer came in time, which
    is a rejection by no one. Returns who approved, or None, and the run ends here. Fails when no one was asked, the
    plan is closed, or this person may not approve."""
    answer = context["ti"].xcom_pull(task_ids="approve")
    if answer is None:
        raise AirflowFailException("no one was asked: clear the task approve, and do not mark it as a success")
    user, is_approved = answer["responded_by_user"] or {}, answer["chosen_options"] == [_APPROVE]
    by, is_expired = str(user.get("name") or user.get("id") or "no one"), not is_approved and not user
    note, plan = "no answer in time" if is_expired else "", _load(stored)
    tables = tables_at(stored)
    status = api.note_decision(tables, plan, approved=is_approved, actor=by, note=note, expired=is_expired)
    _log.info("plan %s: %s by %s", plan.plan_id, status, by)
    return by if is_approved else None


@task(execution_timeout=SHORT)
@as_airflow_errors()
def recheck(stored: StoredPlan) -> int:
    """Fail if anything changed since the plan was made (topics, partition counts, members, state), or if the plan is
    closed. Returns how many parts would be sent now."""
    with Cluster(cluster_at(stored)) as cluster:
        return len(api.recheck(cluster, tables_at(stored), _load(stored), partial=stored["partial"]))


@task(retries=0, multiple_outputs=False, execution_timeout=timedelta(hours=1))
@as_airflow_errors()
def execute(stored: StoredPlan, approver: str) -> dict[str, Any]:
    """Send one request per group; returns what the brokers answered for each part. No retries: an unknown outcome is
    verified first."""
    plan = _load(stored)
    with Cluster(cluster_at(stored)) as cluster:
        journal = api.open_journal(tables_at(stored), plan, actor=approver)
        done: dict[str, Any] = to_json_value(api.execute(cluster, journal, plan, partial=stored["partial"]))
    return done


@task(trigger_rule=TriggerRule.NONE_SKIPPED, multiple_outputs=False, execution_timeout=timedelta(minutes=80))
@as_airflow_errors()
def verify(stored: StoredPlan | None) -> dict[str, Any]:
    """Settle the attempt by what the cluster shows and the brokers' answers, also when the execution failed. Returns
    what was found, and `open_until`: clients may behave as before the change until then."""
    if stored is None:
        raise AirflowSkipException("there is no plan")
    tables = tables_at(stored)
    if not plan_status.plan_status(tables, stored["plan_id"])["groups"]:
        raise AirflowSkipException("nothing was sent")
    plan = _load(stored)
    try:
        with Cluster(cluster_at(stored)) as cluster:
            found = api.verify(cluster, api.open_journal(tables, plan), plan, watch_s=float(stored["watch_s"]))
    except OutcomeUnknown as error:
        if isinstance(error.__cause__, RetryableError):
            raise error.__cause__ from error  # nothing is settled: Airflow looks again
        raise
    _log.info("%s", found.note or f"plan {plan.plan_id} is settled")
    result: dict[str, Any] = to_json_value(found)
    return {**result, "open_until": instant_text(found.open_until_ms or now_ms())}


def _load(stored: StoredPlan) -> ChangePlan:
    """The plan from the tables. Refused when its hash is not that of the plan that was shown to people."""
    plan = load_plan(tables_at(stored), stored["plan_id"])
    if plan.plan_hash != stored["plan_hash"]:
        raise UnknownName("plan with the hash that was shown", stored["plan_id"])
    return plan
