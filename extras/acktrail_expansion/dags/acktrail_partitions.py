"""### Keep the ledger of partitions

Every five minutes: one look at the partitions of topics, their leader epochs and the ends of their logs, and at where
share, consumer and classic groups are, appended to `partition_observations` and `group_positions` (`observe`). An
expansion is known to lie between two looks: the more often, the narrower its fences. `audit` finds expansions and
judges what groups did across them; `validate` checks that with Great Expectations: keys that were consumed out of order
by a group of `ACKTRAIL_ORDERED_GROUPS` fail the run. `notify` sends each topic that grew and each finding of the audit
once, by the notifiers that `ACKTRAIL_NOTIFIERS` names.

**Needs** DESCRIBE on topics and groups, the Airflow connection and `ACKTRAIL_TABLES` as `acktrail_export` does;
`ACKTRAIL_KEY_MAPPINGS` and `ACKTRAIL_SETTLE` of the workers.

**When it fails**: the log's last lines say what to do. A look that is missing makes fences wider, nothing else; `audit`
and `validate` can be cleared at any time.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import dag

from acktrail_dags import parameters
from acktrail_dags.parameters import DagProfile
from acktrail_dags.task_reports import notify_of_branches
from acktrail_expansion.dags import expansion_steps as steps
from acktrail_provider.airflow_names import CronTriggerTimetable


def make(profile: DagProfile) -> None:
    """The DAG of one profile."""

    @dag(
        **profile.settings(
            "acktrail_partitions", __doc__, "kafka", "data-quality", "spark", retry_delay=timedelta(seconds=10)
        ),
        description="Looks at partitions and groups, and audits expansions, every five minutes.",
        schedule=CronTriggerTimetable("*/5 * * * *", timezone="UTC", run_immediately=True),
        dagrun_timeout=timedelta(hours=2),
        params={
            **profile.params(),
            "topics": parameters.names("Topics", "The topics to look at. Empty: all that are not internal."),
            **parameters.place_fields(profile.kafka_conn_id),
            **parameters.spark_field(),
        },
    )
    def acktrail_partitions() -> None:
        """Each task works on the look that the first one takes."""
        look: Any = steps.observe()
        look >> steps.audit(look) >> [steps.validate(look), notify_of_branches(look)]

    acktrail_partitions()
