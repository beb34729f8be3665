"""### Take a reset of share groups back

By hand only: brings the start offsets back that the snapshot of an earlier plan holds. **Delivery states and counts
cannot come back**: Kafka has no request for them, so what was acknowledged or archived at or above the restored start
offset is delivered again; the plan counts it. Otherwise the same steps as `acktrail_reset_offsets`: a dry run by
default, a person's approval, verification, audit.

**Needs** what `acktrail_reset_offsets` needs, and the tables that hold the plan.

**When it fails**, the same holds: before `execute` nothing was changed; afterwards clear `verify`, never `execute`.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag, get_current_context, task

from acktrail_dags.reset_chain import by_hand, carry_out
from acktrail_dags.reset_parameters import rollback_fields
from acktrail_dags.reset_steps import Asked


@dag(dag_id="acktrail_rollback_offsets", doc_md=__doc__, **by_hand(rollback_fields()))
def acktrail_rollback_offsets() -> None:
    """Wiring only."""

    @task(multiple_outputs=False, execution_timeout=timedelta(minutes=20))
    def validate() -> Asked:
        """Which plan is to be taken back."""
        from acktrail_dags import reset_steps

        return reset_steps.validate_rollback(get_current_context())

    carry_out(validate(), subject="Take a reset of share groups back?")


acktrail_rollback_offsets()
