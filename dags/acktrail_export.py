"""### Export what share groups acknowledged

Reads `__share_group_state` from where the tables end to the topic's end and appends it; asks the cluster for its groups
and offsets. Leave this DAG on.

**What a minute can lose**: Kafka looks every five minutes and deletes every record behind the newest snapshots, however
new it is. What was written since the last run can go: up to a minute out of five. Lost records show as a gap in
`export_ranges`; no current state is lost. To have every record, run a worker beside this DAG (the service in
`deploy/`): then the DAG copies what is left, and the reconciliation follows it.

**Needs** an Airflow connection `acktrail_kafka` (`airflow connections add acktrail_kafka --conn-type acktrail_kafka
--conn-host HOST:PORT`, client properties as JSON in the extra) and `ACKTRAIL_TABLES` on the workers.

**When it fails**: the log's last lines say what to do. A run that is tried again, or comes late, continues where the
tables end: nothing is lost or doubled.

**Publishes** the asset `acktrail_exported`; `acktrail_reconcile` follows it. Through the alias `acktrail_tables`: the
table by its address, such as `s3://bucket/acktrail/state_records`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

from acktrail_dags import parameters
from acktrail_dags.parameters import DagProfile, dag_profiles
from acktrail_dags.pipeline_steps import export, exported, tables_written
from acktrail_provider.airflow_names import CronTriggerTimetable


def make(profile: DagProfile) -> None:
    """The DAG of one profile."""

    @dag(
        **profile.settings(
            "acktrail_export", __doc__, "kafka", "share-groups", retries=3, retry_delay=timedelta(seconds=10)
        ),
        description="Copies what share groups acknowledged from Kafka into the tables, every minute.",
        schedule=CronTriggerTimetable("* * * * *", timezone="UTC", run_immediately=True),
        dagrun_timeout=timedelta(minutes=30),
        params={
            **profile.params(),
            **parameters.place_fields(profile.kafka_conn_id),
        },
    )
    def acktrail_export() -> None:
        """One task."""
        export.override(outlets=[exported(profile), tables_written(profile)])()

    acktrail_export()


for _profile in dag_profiles():
    make(_profile)
