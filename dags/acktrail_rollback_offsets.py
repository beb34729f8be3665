"""### Undo a reset of share groups

Triggered by hand only: restores the start offsets in the snapshot of an earlier plan. **Delivery states and counts
cannot be restored**: Kafka has no request for them, so records that were acknowledged or archived at or above the
restored start offset are delivered again; the plan counts them. Otherwise the same steps as `acktrail_reset_offsets`: a
dry run by default, a person's approval, verification, audit.

**Needs** the same as `acktrail_reset_offsets`, and the tables that hold the plan.

**When it fails**, the same holds: before `execute` nothing was changed; afterwards clear `verify`, never `execute`.
"""

from __future__ import annotations

from airflow.sdk import dag

from acktrail_dags import parameters
from acktrail_dags import reset_steps as steps
from acktrail_dags.change_steps import dag_settings
from acktrail_dags.parameters import DagProfile, dag_profiles


def make(profile: DagProfile) -> None:
    """The DAG of one profile."""

    @dag(
        **dag_settings(profile, "acktrail_rollback_offsets", __doc__),
        description="Undoes an earlier reset of share groups.",
        params={**profile.params(), **parameters.rollback_form(profile.kafka_conn_id)},
    )
    def acktrail_rollback_offsets() -> None:
        """The order of `acktrail_reset_offsets`."""
        steps.chain_reset_tasks(steps.validate_rollback())

    acktrail_rollback_offsets()


for _profile in dag_profiles():
    make(_profile)
