"""### Undo a reset of share groups

Triggered by hand only: restores the start offsets in the snapshot of an earlier plan. **Delivery states and counts
cannot be restored**: Kafka has no request for them, so records that were acknowledged or archived at or above the
restored start offset are delivered again; the plan counts them. Otherwise the same steps as `acktrail_reset_offsets`: a
dry run by default, a person's approval, verification, audit.

**Needs** what `acktrail_reset_offsets` needs, and the tables that hold the plan.

**When it fails**, the same holds: before `execute` nothing was changed; afterwards clear `verify`, never `execute`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import chain, dag

from acktrail_dags import parameters as p
from acktrail_dags import reset_steps as steps
from acktrail_dags.approval import approval, callbacks


@dag(
    dag_id="acktrail_rollback_offsets",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=4,
    dagrun_timeout=timedelta(hours=30),
    tags=["acktrail", "kafka", "share-groups", "data-quality"],
    params={
        "plan_id": p.text(
            "Plan to undo", "Id of a plan that was executed: acktrail reset list shows them.", pattern=p.PLAN_ID
        ),
        "topics": p.topics("Only these: TOPIC or TOPIC:0,2, one per line. Empty: all of the plan."),
        "allow_skip": p.flag("Allow skipping", "An undo that moves forward skips records that are not finished yet."),
        "allow_moved_on": p.flag("Allow what moved on", "Also undo what changed again since the plan."),
        **p.execution_fields(),
    },
    default_args={"owner": "acktrail", "retries": 2, "retry_delay": timedelta(seconds=15)},
    on_failure_callback=callbacks(),
    on_success_callback=callbacks(),
)
def acktrail_rollback_offsets() -> None:
    """The order of `acktrail_reset_offsets`."""
    order: Any = steps.validate_rollback()
    plan: Any = steps.make_plan(order)
    approver: Any = steps.note_decision(plan)
    recheck, execute = steps.recheck(plan), steps.send_requests(plan, approver)
    chain(
        steps.preflight(order),
        steps.wait_until_empty(order),
        plan,
        steps.check_plan(plan),
        steps.dry_run_ends_here(),
        approval("Undo a reset of share groups?"),
        recheck,
        approver,
        execute,
    )
    chain(recheck, execute, steps.verify(plan), steps.check_result(plan))


acktrail_rollback_offsets()
