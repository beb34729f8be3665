"""The tasks around an expansion of a topic, and the looks that show it: each calls one use case of
``acktrail_expansion.change``.

The plan goes from task to task as its text; its hash is in the audit of who approved it.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Unpack

from airflow.providers.standard.sensors.date_time import DateTimeSensorAsync
from airflow.sdk import task

from acktrail.times import instant_text
from acktrail_dags import run_target, task_results
from acktrail_dags.airflow_errors import as_airflow_errors
from acktrail_dags.approval_steps import noted_answer, requester
from acktrail_dags.plan_text import cell, markdown_table, notices_table
from acktrail_dags.run_target import cluster_at, tables_at
from acktrail_dags.spark_connection import spark_master

if TYPE_CHECKING:
    from airflow.sdk import Context

    from acktrail_expansion.change.expansion_plan import ExpansionPlan

_log: Final = logging.getLogger("acktrail.dags")
_SHORT: Final = timedelta(minutes=20)
_LONGEST_SETTLE: Final = timedelta(hours=25)


class PlannedExpansion(run_target.Target):
    """A plan, where it is for, and the preview that a person reads. The run's id is the plan's."""

    plan: str
    preview: str


@task(multiple_outputs=False, execution_timeout=_SHORT)
@as_airflow_errors(can_run_again=True)
def observe(**context: Unpack[Context]) -> run_target.Target:
    """One look at partitions, leader epochs, log ends and the positions of groups, appended to the tables."""
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail_expansion.looks.stored_look import take_look

    target = run_target.export_target(context)
    topics = context["params"]["topics"] or None
    with ShareGroupAdmin(cluster_at(target)) as admin:
        look = take_look(admin, tables_at(target), topics=topics, run_id=target["run_id"])
    task_results.hand_over(context, target["run_id"], {name: rows.num_rows for name, rows in look.rows.items()})
    return target


@task(multiple_outputs=False, execution_timeout=timedelta(hours=1))
@as_airflow_errors()
def audit(target: run_target.Target, **context: Unpack[Context]) -> dict[str, Any]:
    """Find every expansion that looks show, and judge with PySpark what groups did across it."""
    from acktrail_expansion.audit.audit_run import audit_expansions
    from acktrail_jobs.commands.engine import executors_on, translated

    master = spark_master(context["params"]["spark_conn_id"])
    with translated():
        counts = audit_expansions(tables_at(target), executors_on(master))
    return task_results.hand_over(context, target["run_id"], counts)


@task(multiple_outputs=False, execution_timeout=_SHORT)
@as_airflow_errors()
def validate(target: run_target.Target, **context: Unpack[Context]) -> dict[str, Any]:
    """The gate: a critical expectation that fails stops the DAG here. The log says which, where and what to do."""
    from acktrail.tables.delta.store import Tables
    from acktrail_expansion.quality import expansion_suite

    summary = expansion_suite.check_expansions(Tables(tables_at(target)), target["run_id"])
    task_results.show_validation(summary)
    counts, failures = task_results.validation_counts(summary), task_results.failed_rules(summary)
    result = task_results.hand_over(context, target["run_id"], counts, failures=failures)
    expansion_suite.pass_expansion_gate(summary)
    return result


@task(task_id="plan", multiple_outputs=False, execution_timeout=_SHORT)
@as_airflow_errors()
def plan_expansion(**context: Unpack[Context]) -> PlannedExpansion:
    """The plan for the form. Fails with the rule that forbids it."""
    from acktrail.change.lifecycle.plan_status import account
    from acktrail.change.planning.plan_file import plan_json
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail_expansion.change.collect_expansion import make_plan

    form, asked_by = context["params"], requester(context)
    target = run_target.place_of(form, form.get("profile"))
    by = {"created_by": asked_by or account(), "requested_by": asked_by, "reason": form["reason"] or ""}
    with ShareGroupAdmin(cluster_at(target)) as admin:
        plan = make_plan(admin, form["topic"], form["partitions"], **by)
    preview = expansion_preview(plan)
    _log.info("%s", preview)
    return PlannedExpansion(**target, run_id=plan.plan_id, plan=plan_json(plan), preview=preview)


@task.short_circuit(multiple_outputs=False, execution_timeout=_SHORT)
@as_airflow_errors()
def note_decision(planned: PlannedExpansion, **context: Unpack[Context]) -> str | None:
    """Note in the audit who approved or rejected the plan, or that no answer came in time. Returns who approved, or
    None, and the run ends here. Fails when the plan is closed, or this person may not approve."""
    return noted_answer(context, tables_at(planned), _plan(planned))


@task(multiple_outputs=False, execution_timeout=_SHORT)
@as_airflow_errors(can_run_again=True)
def expand(planned: PlannedExpansion, approver: str, **context: Unpack[Context]) -> dict[str, Any]:
    """Look, add the partitions unless they are there, look again; once producers must know the count, look once more:
    where the fences are. May be tried again: it sees what is there first."""
    from acktrail.change.api import open_journal
    from acktrail.kafka.admin import ShareGroupAdmin
    from acktrail_expansion.change.apply_expansion import apply_expansion
    from acktrail_expansion.change.expansion_text import result_line

    plan = _plan(planned)
    with ShareGroupAdmin(cluster_at(planned)) as admin:
        settling = apply_expansion(admin, open_journal(tables_at(planned), plan, actor=approver), plan)
    text, counts = result_line(plan, settling), {"partitions_before": plan.old_count, "partitions": plan.new_count}
    _log.info("%s", text)
    found = {"is_settled": settling.is_settled, "settles_at": instant_text(settling.settles_at_ms)}
    return task_results.hand_over(context, plan.plan_id, counts, text=text, **found)


def settled() -> DateTimeSensorAsync:
    """The task `settle`: waits, without a slot, until every producer knows the count."""
    return DateTimeSensorAsync(
        task_id="settle",
        target_time="{{ ti.xcom_pull(task_ids='expand')['settles_at'] }}",
        execution_timeout=_LONGEST_SETTLE,
        doc_md="Producers may use the old count until their metadata is refreshed and what they hold is sent.",
    )


def expansion_preview(plan: ExpansionPlan) -> str:
    """The plan as Markdown: keys, times, notices, groups. Names and texts are escaped."""
    from acktrail_expansion.change import expansion_text as text

    rest = "all of them in the plan of the command line"
    parts = (
        cell(f"Topic {plan.topic}: {text.key_line(plan)}"),
        f"Plan `{plan.plan_id}`, hash `{plan.plan_hash[:16]}`. Partitions cannot be taken away again.",
        notices_table(plan.notices, rest=rest),
        markdown_table(text.GROUP_COLUMNS, text.group_rows(plan), 50, rest=rest) if plan.groups else "",
    )
    return "\n\n".join(filter(None, parts))


def _plan(planned: PlannedExpansion) -> ExpansionPlan:
    """The plan, which has the hash that it was made with."""
    from acktrail_expansion.change.expansion_plan import parse_expansion_plan

    return parse_expansion_plan(planned["plan"], "the plan")
