"""### Reconcile what is durable with what the cluster says

Follows an export: samples the groups, exports to the end, samples again (`observe`); replays the state with PySpark,
compares, and keeps the history (`reconcile`); checks the tables and stops here when a critical expectation fails
(`validate`); writes the HTML report (`publish`). Skips while there is no share group, where nothing changed, and within
`ACKTRAIL_RECONCILE_EVERY` (`5m`) of the last beginning; runs once an hour and by hand in any case.

**Needs** what `acktrail_export` needs, Java 17 or later for PySpark, and a folder for the report (parameter
`report_folder` or `ACKTRAIL_REPORTS`). Empty parameters mean: what the export worked on.

**When it fails**: the log's last lines say what to do. Clearing `observe` makes a new observation; clearing a later
task repeats it on the same one.

**Publishes** the asset `acktrail_reported` with the run's summary.
"""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from airflow.sdk import chain, dag, get_current_context, task

from acktrail_dags import parameters
from acktrail_dags.assets import EXPORTED, REPORTED
from acktrail_dags.run_target import ReconcileTarget


@dag(
    dag_id="acktrail_reconcile",
    doc_md=__doc__,
    schedule=[EXPORTED],
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=timedelta(hours=2),
    tags=["acktrail", "kafka", "share-groups", "spark", "data-quality"],
    params={
        "kafka_conn_id": parameters.kafka_conn_id(None, "Airflow connection. Empty: the export's."),
        "tables_uri": parameters.tables_uri("Folder or object-storage URI. Empty: the export's."),
        "spark_master": parameters.spark_master(),
        "report_folder": parameters.report_folder(),
    },
    default_args={"owner": "acktrail", "retries": 2, "retry_delay": timedelta(seconds=15)},
)
def acktrail_reconcile() -> None:
    """Wiring only."""

    @task(retries=4, multiple_outputs=False, execution_timeout=timedelta(minutes=20))
    def observe() -> ReconcileTarget:
        """Sample, export to the end, sample again."""
        from acktrail_dags import steps

        return steps.observe(get_current_context())

    @task(execution_timeout=timedelta(hours=1))
    def reconcile(target: ReconcileTarget) -> None:
        """Replay, compare, keep the history."""
        from acktrail_dags import steps

        steps.reconcile(target)

    @task(execution_timeout=timedelta(minutes=30))
    def validate(target: ReconcileTarget) -> None:
        """The gate."""
        from acktrail_dags import steps

        steps.validate(target)

    @task(outlets=[REPORTED], execution_timeout=timedelta(minutes=20))
    def publish(target: ReconcileTarget) -> None:
        """The report."""
        from acktrail_dags import steps

        get_current_context()["outlet_events"][REPORTED].extra = steps.publish(target)

    target = cast("ReconcileTarget", observe())
    chain(reconcile(target), validate(target), publish(target))


acktrail_reconcile()
