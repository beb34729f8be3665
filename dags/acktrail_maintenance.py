"""### Keep the tables small and quick

Once a day: writes the many small files of the exports again as few, merges the ranges of the exports, removes old
commits, and files that no table has needed for a week. With `keep`, drops state records, history and observations that
are older, and records in `export_ranges` what was dropped. Exports and reconciliations run meanwhile.

**Needs** `ACKTRAIL_TABLES` on the workers. No broker is asked.

**When it fails**: the log's last lines say what to do. A run that is tried again does what is left.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag

from acktrail_dags import parameters
from acktrail_dags.parameters import DagProfile, dag_profiles
from acktrail_dags.pipeline_steps import maintain
from acktrail_provider.airflow_names import CronTriggerTimetable


def make(profile: DagProfile) -> None:
    """The DAG of one profile."""

    @dag(
        **profile.settings("acktrail_maintenance", __doc__, "maintenance", retry_delay=timedelta(minutes=1)),
        description="Keeps the tables small and quick, once a day.",
        schedule=CronTriggerTimetable("17 3 * * *", timezone="UTC"),
        dagrun_timeout=timedelta(hours=6),
        params={
            **profile.params(),
            **parameters.tables_field(),
            "keep": parameters.text(
                "Keep",
                "Drop state records, history and observations older than this: 365d. Empty: keep all.",
                pattern=parameters.AGE,
            ),
        },
    )
    def acktrail_maintenance() -> None:
        """One task."""
        maintain()

    acktrail_maintenance()


for _profile in dag_profiles():
    make(_profile)
