"""What a reset and the undo of one have in common: everything after the request is known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from airflow.sdk import Param, TriggerRule, chain, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from acktrail_dags import parameters
from acktrail_dags.approval import DECISION, KeptApproval
from acktrail_dags.notifications import callbacks, notifiers
from acktrail_dags.reset_parameters import carrying_out
from acktrail_dags.reset_steps import Asked, Planned

__all__ = ["by_hand", "carry_out"]

_SHORT = timedelta(minutes=20)
_NO_PLAN = "there is no plan"
_HOURS_TO_ANSWER = 20  # a plan may be a day old when it is carried out


@task(execution_timeout=_SHORT)
def preflight(asked: Asked) -> None:
    """Groups, releases, rights, topics: what forbids a reset whatever its plan."""
    from acktrail_dags import reset_steps

    reset_steps.preflight(asked)


@task(execution_timeout=timedelta(minutes=80))
def group_empty(asked: Asked) -> None:
    """Wait for the last member to go."""
    from acktrail_dags import reset_steps

    reset_steps.wait_until_empty(asked)


@task(multiple_outputs=False, execution_timeout=timedelta(hours=1))
def plan(asked: Asked) -> Planned:
    """Snapshot of state and offsets, targets, what they do to every record."""
    from acktrail_dags import reset_steps

    return reset_steps.plan(asked)


@task(execution_timeout=_SHORT)
def check_plan(planned: Planned) -> None:
    """Great Expectations on the plan; its refusals."""
    from acktrail_dags import reset_steps

    reset_steps.check_plan(planned)


@task.short_circuit(execution_timeout=_SHORT)
def dry_run_ends_here() -> bool:
    """Go on only where the form says that this is no dry run."""
    return not get_current_context()["params"]["dry_run"]


@task(execution_timeout=_SHORT)
def recheck(planned: Planned) -> int:
    """Nothing moved while a person read the plan."""
    from acktrail_dags import reset_steps

    return reset_steps.recheck(planned)


@task(trigger_rule=TriggerRule.ALL_DONE, execution_timeout=_SHORT)
def note_decision(planned: Planned | None) -> str:
    """Who approved or rejected it, into the audit."""
    from acktrail_dags import reset_steps

    if planned is None:
        raise AirflowSkipException(_NO_PLAN)
    response = get_current_context()["ti"].xcom_pull(task_ids="approve", key=DECISION)
    return reset_steps.note_decision(planned, response)


@task(retries=0, execution_timeout=timedelta(hours=1))
def execute(planned: Planned, actor: str) -> dict[str, Any]:
    """One request a group. Never tried again by itself: what became of it is verified first."""
    from acktrail_dags import reset_steps

    return reset_steps.execute(planned, actor)


@task(trigger_rule=TriggerRule.NONE_SKIPPED, execution_timeout=timedelta(minutes=80))
def verify(planned: Planned | None) -> list[dict[str, Any]]:
    """What the state topic and the brokers say afterwards, also when the execution failed."""
    from acktrail_dags import reset_steps

    if planned is None:
        raise AirflowSkipException(_NO_PLAN)
    return reset_steps.verify(planned)


@task(execution_timeout=_SHORT)
def check_result(planned: Planned) -> None:
    """Great Expectations on the result."""
    from acktrail_dags import reset_steps

    reset_steps.check_result(planned)


def by_hand(fields: dict[str, Param]) -> dict[str, Any]:
    """The settings of a DAG that a person triggers from a form with `fields` and those that both have."""
    return {
        "schedule": None,
        "catchup": False,
        "max_active_runs": 4,
        "dagrun_timeout": timedelta(hours=30),
        "tags": ["acktrail", "kafka", "share-groups", "data-quality"],
        "params": {
            **fields,
            **carrying_out(),
            "kafka_conn_id": parameters.kafka_conn_id(parameters.DEFAULT_KAFKA_CONN_ID, "Airflow connection."),
            "tables_uri": parameters.tables_uri("Folder or object-storage URI. Empty: ACKTRAIL_TABLES."),
        },
        "default_args": {"owner": "acktrail", "retries": 2, "retry_delay": timedelta(seconds=15)},
        "on_failure_callback": callbacks(),
        "on_success_callback": callbacks(),
    }


def carry_out(asked: Any, *, subject: str) -> None:
    """From a request to a verified result, with a person in between; `subject` heads what they are asked."""
    made = plan(asked)
    planned = cast("Planned", made)
    approve = KeptApproval(
        task_id="approve",
        subject=subject,
        body="{{ ti.xcom_pull(task_ids='plan')['preview'] }}",
        defaults=KeptApproval.REJECT,
        response_timeout=timedelta(hours=_HOURS_TO_ANSWER),
        notifiers=notifiers(),
        doc_md="A person reads the plan and decides. No answer in time is a rejection.",
    )
    again, actor = recheck(planned), note_decision(planned)
    done = execute(planned, cast("str", actor))
    chain(
        preflight(asked),
        group_empty(asked),
        made,
        check_plan(planned),
        dry_run_ends_here(),
        approve,
        again,
        actor,
        done,
    )
    chain(again, done, verify(planned), check_result(planned))
