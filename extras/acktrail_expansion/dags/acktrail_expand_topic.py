"""### Add partitions to a topic

Triggered by hand only. `plan` says which keys move, which groups read the topic and what is open in each. **A dry run
ends here, and is the default.** Then a person reads the plan and approves it (`approve`); `recheck` checks that nothing
changed; `execute` looks at partitions and groups and asks for the partitions; `verify` looks until every broker has
them; `settle` waits, without a slot, until every producer knows the count (`ACKTRAIL_SETTLE`); `look_again` shows where
the fences are: between which offsets the last records from before the expansion lie; `audit` judges what groups did, as
each run of `acktrail_partitions` does again. Plan, decision and request are in `reset_plans` and the append-only
`reset_audit`, the looks in `partition_observations` and `group_positions`.

**Needs** ALTER and DESCRIBE on the topic, DESCRIBE on the groups. Partitions cannot be taken away again.

**When it fails** before `execute`, nothing was changed: correct what the log names and trigger a new run. When
`execute` fails, `verify` finds out what happened; it, and what follows it, may be cleared at any time. Never clear
`execute`.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import TriggerRule, dag

from acktrail_dags import parameters as p
from acktrail_dags.change_steps import change_steps, dag_settings, verify
from acktrail_dags.parameters import DagProfile
from acktrail_expansion.dags import expansion_steps as steps


def make(profile: DagProfile) -> None:
    """The DAG of one profile."""

    @dag(
        **dag_settings(profile, "acktrail_expand_topic", __doc__),
        description="Adds partitions to a topic: plan, approval, expansion between looks, fences.",
        params={
            **profile.params(),
            "topic": p.text("Topic", "The topic that gets more partitions.", required=True, pattern=p.TOPIC_NAME),
            "partitions": p.number("Partitions", "How many in all.", required=True, minimum=1, maximum=10_000),
            **p.of_every_change(),
            **p.section("Cluster and tables", **p.place_fields(profile.kafka_conn_id), **p.spark_field()),
        },
    )
    def acktrail_expand_topic() -> None:
        """From the form to fences, with a person in between."""
        plan: Any = steps.plan_expansion()
        do, settled = change_steps(plan), steps.settled()
        looked: Any = verify.override(task_id="look_again", trigger_rule=TriggerRule.ALL_SUCCESS)(plan)
        decided = plan >> do.dry_run_ends_here >> do.approve >> do.note_decision >> do.recheck
        decided >> do.execute >> do.verify >> settled >> looked >> steps.audit(plan)
        do.execute >> settled  # what `verify` finds does not make a failed execution a success

    acktrail_expand_topic()
