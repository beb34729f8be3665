"""### Deliver the orders again, once billing has done all it had

Waits until the share group `billing` has drained and its members are stopped, resets it, then starts the backfill.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import chain, dag, task

from acktrail_provider.operators import ShareGroupApplyOperator, ShareGroupPlanOperator, ShareGroupVerifyOperator
from acktrail_provider.sensors import ShareGroupDrainedSensor, ShareGroupEmptySensor


@dag(schedule=None, tags=["billing"], doc_md=__doc__)
def backfill_billing() -> None:
    """Wait, reset, backfill."""
    drained = ShareGroupDrainedSensor(task_id="drained", group_id="billing", timeout=timedelta(hours=2))
    stopped = ShareGroupEmptySensor(task_id="stopped", group_id="billing", timeout=timedelta(minutes=30))
    plan = ShareGroupPlanOperator(
        task_id="plan", group_id="billing", topics=["orders"], strategy="to-earliest", reason="Invoices were repaired"
    )
    apply = ShareGroupApplyOperator(task_id="apply", plan=plan.output, dry_run=False)
    verify = ShareGroupVerifyOperator(task_id="verify", plan=plan.output)

    @task
    def backfill(verified: dict[str, object]) -> str:
        """Start the members again; here is where your own work goes."""
        return f"billing begins again; until {verified['open_until']} clients may see the old state"

    chain(drained, stopped, plan, apply, verify, backfill(verify.output))


backfill_billing()
