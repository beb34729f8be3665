"""### Keep the ledger of partitions

Every five minutes: one look at the partitions of topics, their leader epochs and the ends of their logs, and at where
share, consumer and classic groups are, appended to `partition_observations` and `group_positions`. An expansion is
known to lie between two looks: the more often, the narrower its fences.

**Needs** DESCRIBE on topics and groups, the Airflow connection and `ACKTRAIL_TABLES` as `acktrail_export` does.

**When it fails**: the log's last lines say what to do. A look that is missing makes fences wider, nothing else.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import CronTriggerTimetable, dag

from acktrail_dags import parameters
from acktrail_dags.dag_profiles import DagProfile, dag_profiles
from acktrail_dags.expansion_steps import observe


def make(profile: DagProfile) -> None:
    """The DAG of one profile."""

    @dag(
        dag_id=profile.named("acktrail_partitions"),
        description="Looks at partitions, log ends and positions of groups, every five minutes.",
        doc_md=profile.doc(__doc__ or ""),
        schedule=CronTriggerTimetable("*/5 * * * *", timezone="UTC", run_immediately=True),
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=timedelta(hours=2),
        tags=["acktrail", "kafka", *profile.tags],
        params={
            **profile.params(),
            "topics": parameters.names("Topics", "The topics to look at. Empty: all that are not internal."),
            "kafka_conn_id": parameters.kafka_conn_id(profile.kafka_conn_id),
            "tables_uri": parameters.tables_uri(),
        },
        default_args={"owner": "acktrail", "retries": 2, "retry_delay": timedelta(seconds=10)},
    )
    def acktrail_partitions() -> None:
        """One task."""
        observe()

    acktrail_partitions()


for _profile in dag_profiles():
    make(_profile)
