"""### Reconcile the exported state with the cluster's answers

```
observe >> reconcile >> validate >> [publish, notify]
```

* `observe` samples the groups, exports to the end, and samples the groups again.
* `reconcile` replays the state with PySpark, compares it with the samples, keeps the history and checks the tables.
* `validate` reports critical expectations that failed, and stops the run there.
* `publish` writes the HTML report.
* `notify` sends each change once, also when `validate` stopped the run, by the notifiers in `ACKTRAIL_NOTIFIERS`.

Follows each export. Skips while there is no share group, where nothing changed, and within `ACKTRAIL_RECONCILE_EVERY`
(`5m`) after the last start; runs once an hour and when triggered by hand in any case.

**Needs** the same connections as `acktrail_export`, Java 17 or later for PySpark, and a folder for the report
(`ACKTRAIL_REPORTS`). Empty parameters take the export's values.

**When it fails**: the log's last lines say what to do. Clearing `observe` makes a new observation; clearing a later
task repeats it on the same one.

**Publishes** the asset `acktrail_reported` with the run's summary. Through the alias `acktrail_tables`: the table by
its address, such as `s3://bucket/acktrail/reconciliations`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import dag

from acktrail_dags import parameters
from acktrail_dags.parameters import DagProfile, dag_profiles
from acktrail_dags.pipeline_steps import exported, observe, publish, reconcile, reported, tables_written, validate
from acktrail_dags.task_reports import notify


def make(profile: DagProfile) -> None:
    """The DAG of one profile."""

    @dag(
        **profile.settings("acktrail_reconcile", __doc__, "kafka", "share-groups", "spark", "data-quality"),
        description="Replays the exported state, compares it with the cluster, checks it, reports who is in trouble.",
        schedule=[exported(profile)],
        dagrun_timeout=timedelta(hours=2),
        params={
            **profile.params(),
            **parameters.place_fields("the export's", "the export's"),
            **parameters.spark_field(),
            "report_folder": parameters.text(
                "Report folder",
                "Folder for the HTML report, below ACKTRAIL_REPORTS of the worker or one of its ACKTRAIL_DAG_FOLDERS. "
                "Empty: ACKTRAIL_REPORTS.",
                pattern=parameters.NO_CREDENTIALS,
            ),
        },
    )
    def acktrail_reconcile() -> None:
        """Each task works on the observation that the first one makes."""
        observation: Any = observe()
        validated: Any = validate(observation)
        published = publish.override(outlets=[reported(profile), tables_written(profile)])(observation)
        reconcile(observation) >> validated >> [published, notify(observation)]

    acktrail_reconcile()


for _profile in dag_profiles():
    make(_profile)
