"""A DAG file for Airflow's scheduler: copies of the DAGs that ``copies.json`` beside it describes. They have the tasks,
arrows and trigger rules of what they are copies of, and work as the file says: nothing, a failure, or a skip."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.definitions.context import get_parsing_context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException


class Fails(BaseOperator):
    """At once."""

    def execute(self, context: Any) -> None:
        raise AirflowFailException(context["ti"].task_id)


class Skips(BaseOperator):
    """At once."""

    def execute(self, context: Any) -> None:
        raise AirflowSkipException(context["ti"].task_id)


WORK: dict[str, type[BaseOperator]] = {"works": EmptyOperator, "fails": Fails, "skips": Skips}


def copied(dag_id: str, tasks: dict[str, dict[str, Any]]) -> DAG:
    """A DAG that runs once as soon as it is not paused any more."""
    with DAG(dag_id, schedule="@once", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False) as dag:
        made = {name: WORK[of["work"]](task_id=name, trigger_rule=of["rule"]) for name, of in tasks.items()}
        for name, of in tasks.items():
            for after in of["after"]:
                made[after] >> made[name]
    return dag


asked_for = get_parsing_context().dag_id
for dag_id, tasks in json.loads(Path(__file__).with_name("copies.json").read_text()).items():
    if asked_for in (None, dag_id):
        globals()[dag_id] = copied(dag_id, tasks)
