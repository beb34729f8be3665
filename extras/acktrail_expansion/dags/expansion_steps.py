"""The tasks around an expansion of a topic, and the looks that show it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, Unpack

from airflow.providers.standard.sensors.date_time import DateTimeSensorAsync
from airflow.sdk import Context

from acktrail_dags import task_inputs, task_reports
from acktrail_dags.change_steps import StoredPlan, before_sending, begin, stored
from acktrail_dags.task_inputs import cluster_at, spark_master, tables_at
from acktrail_dags.task_reports import step

_LONGEST_SETTLE: Final = timedelta(hours=25)


@step(20)
def observe(**context: Unpack[Context]) -> task_inputs.Target:
    """One look at partitions, leader epochs, log ends and the positions of groups, appended to the tables."""
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail_expansion.observations.ledger_connector import take_look

    target = task_inputs.export_target(context)
    topics = context["params"]["topics"] or None
    with ShareGroupAdmin(cluster_at(target)) as admin:
        look = take_look(admin, tables_at(target), topics=topics, run_id=target["run_id"])
    task_reports.hand_over(context, target["run_id"], {name: rows.num_rows for name, rows in look.rows.items()})
    return target


@step(60)
def audit(target: task_inputs.Target | StoredPlan, **context: Unpack[Context]) -> dict[str, Any]:
    """Find every expansion that looks show, and judge with PySpark what groups did across it."""
    from acktrail_expansion.audit.audit_run import audit_expansions
    from acktrail_jobs.engine import jobs_on

    with jobs_on(spark_master(context["params"].get("spark_conn_id"))) as spark:
        counts = audit_expansions(tables_at(target), spark)
    return task_reports.hand_over(context, str(target.get("run_id") or target.get("plan_id")), counts)


@step(20)
def validate(target: task_inputs.Target, **context: Unpack[Context]) -> dict[str, Any]:
    """The gate: a critical expectation that fails stops the DAG here. The log says which, where and what to do."""
    from acktrail.tables.delta.store import Tables
    from acktrail_expansion.quality import expansion_suite

    summary = expansion_suite.check_expansions(Tables(tables_at(target)), target["run_id"])
    result = task_reports.hand_over_validation(context, target["run_id"], summary)
    expansion_suite.pass_expansion_gate(summary)
    return result


@step(20, before_sending, task_id="plan")
def plan_expansion(**context: Unpack[Context]) -> StoredPlan:
    """The plan for the form. Fails with the rule that forbids it."""
    from acktrail.change.audit.journal import account
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail_expansion.change.expansion_plan import make_plan

    form, asked_by = context["params"], begin(context)
    place = task_inputs.place_of(form, form.get("profile"), changes=True)
    by = {"created_by": asked_by or account(), "requested_by": asked_by, "reason": form["reason"] or ""}
    with ShareGroupAdmin(cluster_at(place)) as admin:
        plan = make_plan(admin, form["topic"], form["partitions"], **by)
    return stored(plan, place, context)


def settled() -> DateTimeSensorAsync:
    """The task `settle`: waits, without a slot, until every producer knows the count."""
    return DateTimeSensorAsync(
        task_id="settle",
        target_time="{{ ti.xcom_pull(task_ids='verify')['open_until'] }}",
        execution_timeout=_LONGEST_SETTLE,
        doc_md="Producers may use the old count until their metadata is refreshed and what they hold is sent.",
    )
