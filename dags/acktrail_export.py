"""### Export what share groups acknowledged

Reads `__share_group_state` from where the tables end to the topic's end and appends it; asks the cluster for its groups
and offsets. Kafka prunes that topic every five minutes: what is not exported in time is lost and shows as a gap in
`export_ranges`. Leave this DAG on.

**Needs** an Airflow connection `acktrail_kafka` (`airflow connections add acktrail_kafka --conn-type generic
--conn-host HOST:PORT`, client properties as JSON in the extra) and `ACKTRAIL_TABLES` on the workers, or the parameters.

**When it fails**: the log's last lines say what to do. A run that is tried again, or comes late, goes on where the
tables end: nothing is lost, nothing doubled.

**Publishes** the asset `acktrail_exported`; `acktrail_reconcile` follows it.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import CronTriggerTimetable, dag, get_current_context, task

from acktrail_dags import parameters
from acktrail_dags.assets import EXPORTED


@dag(
    dag_id="acktrail_export",
    doc_md=__doc__,
    schedule=CronTriggerTimetable("* * * * *", timezone="UTC", run_immediately=True),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(minutes=30),
    tags=["acktrail", "kafka", "share-groups"],
    params={
        "kafka_conn_id": parameters.kafka_conn_id(
            parameters.DEFAULT_KAFKA_CONN_ID, "Airflow connection to the cluster."
        ),
        "tables_uri": parameters.tables_uri("Folder or object-storage URI. Empty: ACKTRAIL_TABLES of the worker."),
    },
    default_args={"owner": "acktrail", "retries": 3, "retry_delay": timedelta(seconds=10)},
)
def acktrail_export() -> None:
    """Wiring only."""

    @task(outlets=[EXPORTED], execution_timeout=timedelta(minutes=20))
    def export() -> None:
        """Append what the state topic has gained, and describe the groups as they are now."""
        from acktrail_dags import steps

        context = get_current_context()
        context["outlet_events"][EXPORTED].extra = steps.export(context)

    export()


acktrail_export()
