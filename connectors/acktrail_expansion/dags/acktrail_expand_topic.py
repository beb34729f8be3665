"""### Add partitions to a topic

Triggered by hand only. `plan` says which keys move, which groups read the topic and what is open in each. **A dry run
ends here, and is the default.** Then a person reads the plan and approves it (`approve`); `expand` looks at partitions
and groups, adds the partitions and looks again; `settle` waits, without a slot, until every producer knows the count
(`ACKTRAIL_SETTLE`); `look_again` shows where the fences are: between which offsets the last records from before the
expansion lie; `audit` judges what groups did, as each run of `acktrail_partitions` does again. Decision and request are
in the append-only `reset_audit`, the looks in `partition_observations` and `group_positions`.

**Needs** ALTER and DESCRIBE on the topic, DESCRIBE on the groups. Partitions cannot be taken away again.

**When it fails** before `expand`, nothing was changed: correct what the log names and trigger a new run. `expand`
and what follows it may be cleared at any time: they see what is there first, and nothing is done twice.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import dag

from acktrail_dags import parameters as p
from acktrail_dags.approval_steps import approval, dry_run_ends_here
from acktrail_dags.dag_profiles import DagProfile
from acktrail_dags.reset_steps import dag_settings
from acktrail_expansion.dags import expansion_steps as steps


def make(profile: DagProfile) -> None:
    """The DAG of one profile."""

    @dag(
        dag_id=profile.named("acktrail_expand_topic"),
        description="Adds partitions to a topic: plan, approval, expansion between looks, fences.",
        doc_md=profile.doc(__doc__ or ""),
        **{**dag_settings(profile), "dagrun_timeout": timedelta(hours=48)},
        params={
            **profile.params(),
            "topic": p.text("Topic", "The topic that gets more partitions.", required=True, pattern=p.TOPIC_NAME),
            "partitions": p.number("Partitions", "How many in all.", required=True, minimum=1, maximum=10_000),
            "dry_run": p.flag("Dry run", "Plan and preview, then end. Nothing is changed.", default=True),
            "reason": p.text("Reason", "Kept in the plan.", maxLength=1000),
            **p.section(
                "Cluster and tables",
                kafka_conn_id=p.kafka_conn_id(profile.kafka_conn_id),
                tables_uri=p.tables_uri(),
                spark_conn_id=p.spark_conn_id(),
            ),
        },
    )
    def acktrail_expand_topic() -> None:
        """From the form to fences, with a person in between."""
        planned: Any = steps.plan_expansion()
        ends, asked = dry_run_ends_here(), approval("Add partitions to the topic?")
        approver: Any = steps.note_decision(planned)
        expanded, settled = steps.expand(planned, approver), steps.settled()
        looked = steps.expand.override(task_id="look_again")(planned, approver)
        planned >> ends >> asked >> approver >> expanded >> settled >> looked >> steps.audit(planned)

    acktrail_expand_topic()
