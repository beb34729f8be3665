"""### Reset the start offsets of share groups

Triggered by hand only. `validate` reads the form, `preflight` and `group_empty` check that it can be done, `plan` takes
the snapshot and predicts what would happen to every share partition, `check_plan` checks that with Great Expectations.
**A dry run ends here, and is the default.** Then a person reads the plan and approves it (`approve`); `recheck` checks
that nothing changed, `execute` sends one request per group, `verify` reads the state topic and watches it for a while,
`check_result` checks the outcome. A rejection, or no answer in 20 hours, closes the plan for the command line too;
`ACKTRAIL_RESET_APPROVAL=second-person` on the workers keeps the requester from approving. Plan, decision, requests and
outcome are in `reset_plans`, `reset_executions` and the append-only `reset_audit`.

**Needs** the groups without members, READ on groups and topics, Kafka 4.2 or later.

**When it fails** before `execute`, nothing was changed: correct what the log names and trigger a new run. When
`execute` fails, `verify` finds out what happened; if that fails too, clear `verify`: the plan stays UNKNOWN until it
succeeds. Never clear `execute`. `acktrail_rollback_offsets` undoes a reset, start offsets only.
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
        **dag_settings(profile, "acktrail_reset_offsets", __doc__),
        description="Resets the start offsets of share groups: plan, approval, execution, verification.",
        params={**profile.params(), **parameters.reset_form(profile.kafka_conn_id)},
    )
    def acktrail_reset_offsets() -> None:
        """From the form to a verified result, with a person in between."""
        steps.reset_in_order(steps.validate_reset())

    acktrail_reset_offsets()


for _profile in dag_profiles():
    make(_profile)
