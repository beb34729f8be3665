"""### Reset the start offsets of share groups

By hand only. `validate` reads the form, `preflight` and `group_empty` see whether it can be done, `plan` takes the
snapshot and says for every share partition what would happen, `check_plan` checks that with Great Expectations.
**A dry run ends here, and is the default.** Then a person reads the plan and approves it (`approve`); `recheck` sees
that nothing moved, `execute` sends one request a group, `verify` looks into the state topic itself and watches for a
while, `check_result` checks the outcome. A rejection, or no answer in 20 hours, closes the plan for the command line
too; `ACKTRAIL_RESET_APPROVAL=second-person` on the workers keeps the requester from approving. Plan, decision, requests
and outcome are in `reset_plans`, `reset_executions` and the append-only `reset_audit`.

**Needs** the groups without members, READ on groups and topics, Kafka 4.2 or later.

**When it fails** before `execute`, nothing was changed: mend what the log names and trigger a new run. When `execute`
fails, `verify` says what became of it; if that fails too, clear `verify`: the plan stays UNKNOWN until it succeeds.
Never clear `execute`. `acktrail_rollback_offsets` takes a reset back, start offsets only.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import dag, get_current_context, task

from acktrail_dags.reset_chain import by_hand, carry_out
from acktrail_dags.reset_parameters import reset_fields
from acktrail_dags.reset_steps import Asked


@dag(dag_id="acktrail_reset_offsets", doc_md=__doc__, **by_hand(reset_fields()))
def acktrail_reset_offsets() -> None:
    """Wiring only."""

    @task(multiple_outputs=False, execution_timeout=timedelta(minutes=20))
    def validate() -> Asked:
        """What the form asks for."""
        from acktrail_dags import reset_steps

        return reset_steps.validate_reset(get_current_context())

    carry_out(validate(), subject="Reset the start offsets of share groups?")


acktrail_reset_offsets()
